#include "minim/models/layers.h"
#include "minim/ops/functional.h"
#include "minim/optim/ema.h"
#include "minim/tests/full_memory.h"
#include "minim/tests/messages.h"

using namespace minim;
using namespace minim::test;
using models::Linear;
using models::Module;

TEST_CASE("a name that another member of the module has is refused") {
  struct Net : Module {
    explicit Net(int kind, bool twice) : inner(1, 1) {
      parameter("w", one);
      buffer("b", count);
      child("c", inner);
      const std::string name = twice ? std::string(1, "wbc"[kind / 3]) : "free";
      if (kind % 3 == 0) parameter(name, two);
      if (kind % 3 == 1) buffer(name, two);
      if (kind % 3 == 2) child(name, inner);
    }
    Tensor one = ones({1}), two = ones({1}), count = ones({1});
    Linear inner;
  };
  for (int kind = 0; kind < 9; ++kind) {
    check_says(error_of([&] { Net(kind, true); }),
               {std::string("attribute '") + "wbc"[kind / 3] + "' already exists"});
    CHECK_NOTHROW(Net(kind, false));
  }
  struct Late : Module {
    Late() { parameter("w", w); }
    void again() { buffer("w", w); }
    Tensor w = ones({1});
  } late;
  struct Root : Module {
    explicit Root(Module& m) { child("late", m); }
  } root(late);
  check_says(error_of([&] { late.again(); }), {"[module 'late'] attribute 'w' already exists"});
}

TEST_CASE("only what set_requires_grad(false) was said of last is frozen when it is registered") {
  struct Uses : Module {
    explicit Uses(Tensor t) : w(t) { parameter("w", w); }
    Tensor w;
  };
  const auto requires_it = [](const std::function<void(const Tensor&)>& before) {
    const Tensor t = ones({1});
    before(t);
    return Uses(t).w.requires_grad();
  };
  CHECK(requires_it([](const Tensor& t) { t.set_grad({}); }));
  CHECK(requires_it([](const Tensor& t) { t.grad(); }));
  CHECK(requires_it([](const Tensor& t) { optim::SGD({t}).zero_grad(); }));
  CHECK(requires_it([](const Tensor& t) { t.set_requires_grad(false).set_requires_grad(); }));
  CHECK(!requires_it([](const Tensor& t) { t.set_requires_grad(false); }));
  CHECK(!requires_it([](const Tensor& t) { t.set_requires_grad().set_requires_grad(false); }));
}

TEST_CASE("a dotted name that a child's member has is refused, whichever was registered first") {
  struct Net : Module {
    explicit Net(int order, const char* name) {
      for (int i : {order, 1 - order}) i == 0 ? parameter(name, own) : child("a", inner);
    }
    Tensor own = ones({1});
    Linear inner{1, 1};
  };
  check_says(error_of([] { Net(0, "a.bias"); }), {"[module ''] attribute 'a.bias' already exists",
                                                  "bias of a has the dotted name of a.bias;"});
  check_says(error_of([] { Net(1, "a.bias"); }), {"[module ''] attribute 'a.bias' already exists",
                                                  "a.bias has the dotted name of bias of a;"});
  for (int order : {0, 1}) CHECK_NOTHROW(Net(order, "a.other"));
}

TEST_CASE(
    "a finite value that a parameter's dtype does not hold is refused by loads and conversions") {
  for (auto [d, most] : {std::pair(DType::f16, 65504.),
                         {DType::bf16, 3.3895313892515355e38},
                         {DType::f32, 3.4028234663852886e38}}) {
    CAPTURE(std::string(name_of(d)));
    struct Net : Module {
      Net() : fc(700, 2, false) { child("fc", fc), child("again", fc), child("last", last); }
      Linear fc, last{1, 1, false};
    } net;
    net.to(DType::f64);
    const Tensor wide = net.last.weight;
    const auto put = [&](double v) {
      NoGrad no_recording;
      net.last.weight.fill_(1);
      net.fc.weight.fill_(0).slice(0, 1, 2).slice(1, 650, 651).fill_(v);
    };
    for (double bad : {most * 1.01, -most * 1.01}) {
      put(bad);
      check_says(error_of([&] { net.to(d); }),
                 {"[Module::to] fc.weight has the value ", "does not fit ", name_of(d)});
      CHECK(net.last.weight.shared() == wide.shared());
    }
    Net small;
    small.to(d);
    const auto before = small.last.weight.to_vector();
    check_says(error_of([&] { small.load_state_dict(net.state_dict()); }),
               {"fc.weight has the value -", "does not fit ", name_of(d)});
    CHECK(small.last.weight.to_vector() == before);
    for (double good : {most, -std::numeric_limits<double>::infinity()}) {
      put(good);
      small.load_state_dict(net.state_dict());
      CHECK(small.fc.weight.to_vector()[1350] == good);
    }
    CHECK_NOTHROW(net.to(d));
  }
}

TEST_CASE("a model in which one parameter is a view of another is not converted: they would part") {
  struct Net : Module {
    explicit Net(bool view) {
      if (view) down = up.detach().transpose(0, 1);
      parameter("up", up), parameter("down", down);
    }
    Tensor up = ones({2, 3}), down = up;
  } viewed(true), tied(false);
  check_says(error_of([&] { viewed.to(DType::f64); }),
             {"[Module::to] down is a view of the memory of up", "(down = up)", ".clone() one"});
  CHECK(viewed.up.dtype() == DType::f32);
  CHECK_NOTHROW(viewed.to(DType::f32));
  tied.to(DType::f64);
  CHECK(tied.up.shared() == tied.down.shared());
}

TEST_CASE("a model is not converted while averages stand in for its weights") {
  Linear fc(2, 2);
  optim::SGD opt(fc.parameters(), {.lr = 1});
  const optim::Ema ema(opt, .5);
  {
    const auto swapped = ema.swap();
    check_says(error_of([&] { fc.to(DType::f64); }), {"[Module::to] averages stand in"});
    CHECK(fc.weight.dtype() == DType::f32);
  }
  fc.to(DType::f64);
  CHECK(fc.weight.dtype() == DType::f64);
}

// Sanitizers end the program instead.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_CASE("a conversion that memory does not suffice for leaves the model in its dtype" *
          doctest::test_suite("host")) {
  struct Net : Module {
    Net() {
      for (int i = 0; i < 4; ++i) {
        w[i] = ones({1 << 19});
        parameter(std::to_string(i), w[i]);
      }
    }
    Tensor w[4];
  } net;
  CHECK(whole_or_refused([&] { net.to(DType::f64); },
                         [&] {
                           for (const Tensor& t : net.w)
                             if (t.dtype() != DType::f32) return false;
                           return true;
                         }));
}
#endif
