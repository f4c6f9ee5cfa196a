#include "minim/amp/autocast.h"
#include "minim/optim/muon.h"
#include "minim/tests/full_memory.h"
#include "minim/tests/optim_fixture.h"

using namespace minim;
using namespace minim::test;
using optim::Options;

namespace {

/// sin(k), sin(k + 1), ...
Tensor waves(Index rows, Index columns, double k, DType d = DType::f64) {
  Values v(size_t(rows * columns));
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(k + double(i));
  return tensor(v, {rows, columns}, d);
}

Values stepped(Index rows, Index columns, Options o, DType d = DType::f64) {
  Tensor p = waves(rows, columns, 0, d);
  optim::Muon opt({p.set_requires_grad().set_name("w")}, o);
  for (double k : {10., 20., 33.}) {
    p.set_grad(waves(rows, columns, k, d == DType::f64 ? d : DType::f32));
    opt.step();
  }
  return p.to_vector();
}

}  // namespace

// By the formulas of the paper and of torch.optim.Muon, in double.
TEST_CASE("Muon equals its formulas on tall and on wide matrices") {
  const Values tall{-0.030687624299918864, 0.8431549138517364,  0.9284413846258469,
                    0.15878534202312072,   -0.7420482659630707, -0.9753109493976918};
  check_near(stepped(3, 2, {.lr = .02}), tall, 1e-14);
  check_near(stepped(3, 2, {.lr = .02}, DType::f32), tall, 1e-5);
  check_near(stepped(2, 4, {.lr = .02, .match_adamw_rms = true, .maximize = true}),
             {0.007509082812204762, 0.8401505056317393, 0.9003614281260198, 0.13278420583070033,
              -0.7495932522330188, -0.9437623139344256, -0.270240656587424, 0.6517390141474151},
             1e-14);
}

TEST_CASE("an orthogonalized matrix has singular values near 1 and stays fp32 inside autocast too" *
          doctest::test_suite("host")) {
  check_near(optim::orthogonalized(tensor(Values{3, 0, 0, .1}, {2, 2}, DType::f64)).to_vector(),
             {0.6970136068245822, 0, 0, 1.1287797397059907}, 1e-14);
  CHECK(optim::orthogonalized(zeros({3, 3})).to_vector() == Values(9, 0));
  Tensor x = zeros({8, 40});
  for (Index i = 0; i < 320; ++i) x.span<float>()[size_t(i)] = std::sin(float(i * i));
  Tensor plain = optim::orthogonalized(x), one = waves(1, 8, 3, DType::f32);
  Tensor along = matmul(one, plain);
  CHECK(norm(along).item() / norm(one).item() == doctest::Approx(1).epsilon(.3));
  amp::Autocast casts(DType::bf16);
  CHECK(optim::orthogonalized(x).to_vector() == plain.to_vector());
  Tensor tall = optim::orthogonalized(x.transpose(0, 1));
  CHECK(tall.shape() == Shape{40, 8});
  check_near(tall.transpose(0, 1).contiguous().to_vector(), plain.to_vector(), 1e-5);
}

TEST_CASE("Muon takes matrices and AdamW the rest in one optimizer with one state") {
  Tensor w = waves(3, 2, 0, DType::bf16).set_requires_grad().set_name("w");
  Tensor b = parameter({1, 2}, DType::bf16, "b"), exact = parameter({1, 2});
  says(error_of([&] {
         optim::Muon(std::vector<Tensor>{w, b}, {.masters = true});
       }),
       "'b' is bf16(2); Muon is for matrices: put the others in a group with rule = &kAdamW");
  Options o{.lr = .02, .betas = {.8, .9}, .masters = true};
  optim::Muon opt({{{w}}, {{b}, {}, {}, &optim::kAdamW}}, o);
  optim::AdamW alone({exact}, {.lr = .02, .betas = {.8, .9}});
  for (double k : {10., 20., 33.}) {
    w.set_grad(waves(3, 2, k, DType::f32));
    for (const Tensor& p : {b, exact}) set_grad(p, {k, -1});
    CHECK(opt.step().stepped);
    alone.step();
  }
  check_near(opt.master(1).to_vector(), exact.to_vector(), 0);
  check_near(w.to_vector(), stepped(3, 2, {.lr = .02}), 1. / 128);
  std::string names;
  for (const auto& [name, t] : opt.state()) names += name + " ";
  CHECK(names ==
        "applied_steps lr w.step w.master w.momentum b.step b.master b.exp_avg b.exp_avg_sq ");
  says(error_of([&] { optim::Muon({w}, {.eps = 1e-3, .masters = true}); }), "not betas, eps");
  says(error_of([&] { optim::SGD({w}, {.match_adamw_rms = true, .masters = true}); }), "no Muon");
}

// Sanitizers end the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a step of Muon that memory does not suffice for changes nothing" *
          doctest::test_suite("host")) {
  std::vector<Tensor> params;
  for (int i = 0; i < 3; ++i) params.push_back(full({512, 512}, 1).set_requires_grad());
  optim::Muon opt(params, {.lr = 1});
  for (const Tensor& p : params) p.set_grad(full({512, 512}, .5));
  CHECK(whole_or_refused([&] { opt.step(); },
                         [&] {
                           bool same = true;
                           for (const Tensor& p : params)
                             same &= std::as_const(p).span<float>()[0] == 1;
                           for (const auto& [name, t] : opt.state())
                             same &= name == "lr" || !any(t != 0).item<bool>();
                           return same;
                         }));
}
#endif
