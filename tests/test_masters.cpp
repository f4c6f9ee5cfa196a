// What a user writes into a 16-bit parameter that has a master, or into weights of which a copy is
// kept elsewhere, is not undone.
#include <functional>

#include "minim/autograd/node.h"
#include "minim/core/warn.h"
#include "minim/models/init.h"
#include "minim/models/layers.h"
#include "minim/optim/ema.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using optim::Options;

namespace {

/// Every way to write into a parameter.
struct Writer {
  const char* name;
  std::function<void(Tensor)> write;  ///< makes element 1 a 7, or element 0 too
};
const Writer kWriters[] = {
    {"copy_",
     [](Tensor w) {
       w.copy_(tensor({1, 7, 3}, w.dtype()));
     }},
    {"fill_", [](Tensor w) { w.fill_(7); }},
    {"mul_ and add_",
     [](Tensor w) {
       w.mul_(tensor({1, 0, 1}, w.dtype()));
       w.add_(tensor({0, 7, 0}, w.dtype()));
     }},
    {"a view", [](Tensor w) { w.slice(0, 1, 2).fill_(7); }},
    {"load_state_dict",
     [](Tensor w) {
       struct Net : models::Module {
         explicit Net(Tensor p) : w(p) { parameter("w", w); }
         Tensor w;
       };
       Net(w).load_state_dict({{"w", tensor({1, 7, 3})}});
     }},
    {"init", [](Tensor w) { models::init::uniform(w, 7, 7); }},
    {"copy_elements", [](Tensor w) { copy_elements(full({3}, 7), w); }},
    {"data()",
     [](Tensor w) {
       w.dtype() == DType::f16 ? void(w.span<f16>()[1] = f16(7.f))
                               : void(w.span<bf16>()[1] = bf16(7.f));
     }},
};

}  // namespace

TEST_CASE(
    "L10: a 16-bit parameter's master takes what is written, in every rule and way of writing" *
    doctest::test_suite("host")) {
  for (const optim::Rule* rule : {&optim::kSGD, &optim::kAdam, &optim::kAdamW, &optim::kMuon})
    for (DType d : {DType::f16, DType::bf16})
      for (bool fused : {true, false})
        for (const Writer& writer : kWriters) {
          CAPTURE(std::string(rule->name));
          CAPTURE(std::string(name_of(d)));
          CAPTURE(fused);
          CAPTURE(std::string(writer.name));
          const bool muon = rule->kind == optim::Kind::muon;
          const Tensor flat = parameter({1, -2, 3}, d);
          const Tensor w = muon ? as_strided(flat, {1, 3}, {3, 1}, 0).set_requires_grad() : flat;
          optim::Optimizer opt(*rule, {{{w}}}, {.lr = 1e-3, .masters = true, .fused = fused});
          auto step = [&] {
            w.set_grad(tensor({.1, -.2, .3}).reshape(w.shape()));
            CHECK(opt.step().stepped);
          };
          step();
          const double before = w.to_vector()[0], master = opt.master(0).to_vector()[0];
          NoGrad no_recording;
          writer.write(flat);
          const Values written = w.to_vector();
          REQUIRE(written[1] == 7);
          CHECK(opt.master(0).to_vector()[0] == (written[0] == before ? master : written[0]));
          CHECK(opt.master(0).to_vector()[1] == 7);  // also before the step
          step();
          for (size_t i = 0; i < 3; ++i) CHECK(std::abs(w.to_vector()[i] - written[i]) < .04);
          CHECK(opt.master(0).to_vector()[1] != 7);
          CHECK(opt.master(0).to_vector()[1] == doctest::Approx(7).epsilon(.001));
        }
}

TEST_CASE("a master keeps its fraction where the written value is its rounding") {
  Tensor w = parameter({1, 1}, DType::bf16, "w");
  optim::SGD opt({w}, {.lr = 1, .masters = true});
  set_grad(w, {6e-4, 6e-4});
  opt.step();
  REQUIRE(w.to_vector() == Values{1, 1});
  NoGrad no_recording;
  w.copy_(tensor({1, .5}));  // the first is what it was
  set_grad(w, {0, 0});
  opt.step();
  CHECK(opt.master(0).to_vector() == Values{double(1 - 6e-4f), .5});
}

TEST_CASE(
    "a loaded state and loaded weights agree in either order, and the weights have the word") {
  for (const bool weights_last : {true, false})
    for (const bool pruned : {true, false}) {
      CAPTURE(weights_last);
      CAPTURE(pruned);
      Tensor w = parameter({1, 2}, DType::bf16, "w"), again = parameter({5, 6}, DType::bf16, "w");
      optim::AdamW one({w}, {.masters = true}), two({again}, {.masters = true});
      set_grad(w, {.1, -.3});
      one.step();
      std::vector<optim::NamedState> saved;
      for (const auto& [name, t] : one.state()) saved.emplace_back(name, t.clone());
      NoGrad no_recording;
      Tensor weights = w.detach().clone();
      if (pruned) weights.slice(0, 1, 2).fill_(0);
      if (!weights_last) again.copy_(weights);
      two.load_state(saved);
      optim::Ema reads(two, .9);  // and changes nothing by it
      if (weights_last) again.copy_(weights);
      Values want = one.master(0).to_vector();
      if (pruned) want[1] = 0;
      CHECK(two.master(0).to_vector() == want);
      CHECK(again.to_vector() == weights.to_vector());
    }
}

TEST_CASE("an average takes what is written in the weights, with masters as without") {
  for (const bool masters : {true, false}) {
    Tensor w = parameter({1, 1}, DType::bf16, "w");
    optim::SGD opt({w}, {.lr = 1, .masters = masters, .stochastic_rounding = !masters});
    optim::Ema average(opt, 0);  // it is what was read last
    NoGrad no_recording;
    w.slice(0, 0, 1).fill_(7);
    average.update();
    CHECK(average.state()[1].second.to_vector() == Values{7, 1});
    CHECK(optim::Ema(opt, 0).state()[1].second.to_vector() == Values{7, 1});
    set_grad(w, {0, 0});
    opt.step();
    CHECK(w.to_vector() == Values{7, 1});  // bf16-sr keeps no copy
  }
}

TEST_CASE("while averages stand in for the weights no step is lost, nor a master, nor silently") {
  Tensor w = parameter({1, 1}, DType::bf16, "w");
  optim::SGD opt({w}, {.lr = 1, .masters = true});
  optim::Ema ema(opt, .5);
  set_grad(w, {6e-4, .5});
  opt.step();
  const Values master = opt.master(0).to_vector(), weights = w.to_vector();
  std::vector<std::string> warnings;
  WarningScope hear([&](const std::string& text) { warnings.push_back(text); });
  {
    auto swapped = ema.swap();
    CHECK(w.to_vector() != weights);
    CHECK(opt.master(0).to_vector() == master);
    CHECK(state_of(opt, "w.master").to_vector() == master);
    says(error_of([&] { opt.step(); }), "averages stand in for the weights");
    says(error_of([&] { ema.update(); }), "averages stand in for the weights");
  }
  CHECK(warnings.empty());
  CHECK(opt.master(0).to_vector() == master);
  {
    auto swapped = ema.swap();
    NoGrad no_recording;
    w.fill_(9);
  }
  CHECK(w.to_vector() == weights);
  REQUIRE(warnings.size() == 1);
  says(warnings[0], "'w' was written while its average stood in for it");
  set_grad(w, {0, 0});
  CHECK(opt.step().stepped);
  CHECK(opt.master(0).to_vector() == master);
}
