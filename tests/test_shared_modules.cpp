// What is shared between modules is one thing: in lists, conversions, files, clipping and steps.
#include <memory>

#include "minim/autograd/node.h"
#include "minim/models/conv_layers.h"
#include "minim/models/layers.h"
#include "minim/models/model_file.h"
#include "minim/optim/clip.h"
#include "minim/optim/gradient_statistics.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::models;
using namespace minim::test;

namespace {

using Names = std::vector<std::string>;
Names names_of(const NamedTensors& tensors) {
  Names names;
  for (const auto& [name, tensor] : tensors) names.push_back(name);
  return names;
}

/// One Linear in two Sequentials, and a head that has its weight.
struct Net : Module {
  Net() : head(3, 3, false) {
    auto shared = std::make_shared<Linear>(3, 3);
    a.add(shared);
    a.add<BatchNorm2d>(2);
    b.add<Linear>(3, 3, false);
    b.add(shared);
    both = shared.get();
    head_again();
    child("a", a);
    child("b", b);
    child("head", head);
    child("again", *both);
    name_parameters();
  }
  void head_again() {
    tied.weight = both->weight;
    parameter("tied", tied.weight);
  }
  struct {
    Tensor weight;
  } tied;
  Linear* both;
  Sequential a, b;
  Linear head;
};
const Names kNames{"tied", "a.0.bias", "a.1.weight", "a.1.bias", "b.0.weight", "head.weight"};

}  // namespace

TEST_CASE("E13: tied parameters appear once, under the first name, and are counted once") {
  Net net;
  CHECK(names_of(net.named_parameters()) == kNames);
  CHECK(net.parameters().size() == 6);
  CHECK(net.numel() == 9 + 3 + 2 + 2 + 9 + 9);
  CHECK(net.both->weight.name() == "tied");
  Names state = kNames;
  state.insert(state.end(), {"a.1.running_mean", "a.1.running_var"});
  CHECK(names_of(net.state_dict()) == state);
  Names modules;
  for (auto& [name, module] : net.named_modules()) modules.push_back(name);
  CHECK(modules == Names{"", "a", "a.0", "a.1", "b", "b.0", "head"});
  CHECK(net.both->path() == "a.0");
}

TEST_CASE("a shared module goes by the path of the parent that registered it first") {
  Linear shared(2, 2);
  struct Pair : Module {
    Pair(Module& x, Module& y) { child("x", x), child("y", y); }
  };
  Pair twice(shared, shared);
  CHECK(shared.path() == "x");
  Sequential other;
  Pair outer(twice, other);
  CHECK(shared.path() == "x.x");
  CHECK(outer.named_modules().size() == 4);
}

TEST_CASE("a shared buffer appears once") {
  struct Two : Module {
    Two() : count(zeros({1})) {
      copy = count;
      buffer("first", count);
      buffer("second", copy);
    }
    Tensor count, copy;
  } two;
  CHECK(names_of(two.named_buffers()) == Names{"first"});
  CHECK(names_of(two.state_dict()) == Names{"first"});
  two.load_state_dict({{"second", full({1}, 3)}});
  CHECK(two.count.item() == 3);
}

TEST_CASE(
    "E13: a conversion leaves tied tied and frozen frozen and keeps what has the dtype already") {
  for (DType d : {DType::f32, DType::f16, DType::bf16, DType::f64}) {
    CAPTURE(std::string(name_of(d)));
    Net net;
    net.head.weight.set_requires_grad(false);
    int calls = 0;
    net.both->weight.register_hook([&](const Tensor&) { return ++calls, Tensor(); });
    const Tensor before = net.both->weight;
    net.to(d);
    CHECK(net.both->weight.dtype() == d);
    CHECK((net.both->weight.shared() == before.shared()) == (d == DType::f32));
    CHECK(net.both->weight.impl()->storage.use_count() == 1);
    CHECK(net.tied.weight.shared() == net.both->weight.shared());
    CHECK(net.parameters().size() == 6);
    CHECK(net.both->weight.name() == "tied");
    CHECK(net.both->weight.requires_grad());
    CHECK(!net.head.weight.requires_grad());
    sum((*net.both)(ones({1, 3}, d))).backward();
    CHECK(calls == 1);
  }
}

TEST_CASE("an optimizer from before to(f32) of an f32 module still moves it, and once") {
  Linear layer(1, 1, false);
  optim::SGD opt(layer.parameters(), {.lr = 1});
  const double before = layer.weight.item();
  layer.to(DType::f32);
  sum(layer(ones({1, 1}))).backward();
  opt.step();
  CHECK(layer.weight.item() == double(float(before) - 1));
  CHECK_NOTHROW(optim::SGD(layer.parameters()));
}

TEST_CASE("a frozen tensor stays frozen where another module registers it") {
  Linear first(2, 2);
  first.weight.set_requires_grad(false);
  struct Uses : Module {
    explicit Uses(Tensor w) : weight(w) { parameter("weight", weight); }
    Tensor weight;
  };
  CHECK(!Uses(first.weight).weight.requires_grad());
  CHECK(!first.weight.requires_grad());
  CHECK(Uses(first.bias).weight.requires_grad());
  CHECK(Uses(zeros({2})).weight.requires_grad());
  CHECK(Uses(first.weight.detach()).weight.requires_grad());  // a tensor of its own
}

TEST_CASE("E13: optimizers and clipping see a tied parameter once, however often it is passed") {
  Net net;
  CHECK_NOTHROW(optim::AdamW(net.parameters()));
  Tensor w = scalar(5, "w"), v = scalar(7, "v");
  const std::vector<Tensor> many{w, v, w, w};
  set_grad(w, {3});
  set_grad(v, {4});
  CHECK(optim::grad_norm(many) == 5);
  CHECK(optim::gradient_statistics(many).size() == 2);
  CHECK(optim::clip_grad_norm(many, 2.5) == 5);
  CHECK(w.grad().item() == doctest::Approx(1.5));
  CHECK(v.grad().item() == doctest::Approx(2));
  optim::SGD opt(many, {.lr = 1});
  opt.step();
  CHECK(w.item() == doctest::Approx(3.5));
  const Tensor g = tensor({6});  // one tensor as the gradient of both
  w.set_grad(g);
  v.set_grad(g);
  optim::clip_grad_norm(many, 3 * std::sqrt(2.0));
  CHECK(g.item() == doctest::Approx(3));
}

TEST_CASE("a Stepper that lists a parameter twice is unscaled once") {
  struct Lists : amp::Stepper {
    Tensor w = scalar(1);
    optim::SGD sgd{{w}, {.lr = 1}};
    std::vector<Tensor> parameters() const override { return {w, w}; }
    amp::StepResult step(const amp::StepRequest& r) override { return sgd.step(r); }
  } opt;
  amp::GradScaler scaler({.init_scale = 16});
  scaler.scale(product(opt.w, .5)).backward();
  scaler.unscale(opt);
  CHECK(opt.w.grad().item() == .5);
  CHECK(scaler.step(opt).stepped);
  CHECK(opt.w.item() == .5);
}

TEST_CASE("a tied tensor is loaded from any of its names, and from several only if they agree") {
  Net net, other;
  other.load_state_dict(net.state_dict());
  CHECK(other.both->weight.to_vector() == net.both->weight.to_vector());
  NamedTensors all = net.state_dict();  // as PyTorch's has it: under every name
  for (const char* name : {"a.0.weight", "b.1.weight", "again.weight"})
    all.emplace_back(name, net.both->weight);
  all.emplace_back("b.1.bias", net.both->bias.detach().clone());
  CHECK_NOTHROW(other.load_state_dict(all));
  NamedTensors without(all.begin() + 1, all.end());
  without[0].second = full({3}, 2);
  without.back().second = full({3}, 2);
  CHECK_NOTHROW(other.load_state_dict(without));
  CHECK(other.both->bias.to_vector() == Values(3, 2));
  without.back().second = full({3}, 4);
  const std::string error = error_of([&] { other.load_state_dict(without); });
  says(error, "a.0.bias and b.1.bias are one tensor in the model, but differ");
  CHECK(other.both->bias.to_vector() == Values(3, 2));
  std::erase_if(all, [](const auto& s) { return s.second.shape() == Shape{3, 3}; });
  says(error_of([&] { other.load_state_dict(all); }), "missing: tied");
}
