// Gradients of slices that are written in place, against those of the op that copies what a slice
// shows; and gradients that take the memory of what they are of.
#include <doctest/doctest.h>

#include <functional>

#include "minim/autograd/checkpoint.h"
#include "minim/autograd/node.h"
#include "minim/core/profile.h"
#include "minim/models/attention.h"
#include "minim/ops/functional.h"

using namespace minim;
using autograd::checkpoint;

namespace {

/// Elements begin, begin + step, ... before end of an axis, as a view or as a copy.
using Cut = std::function<Tensor(const Tensor&, Index axis, Index begin, Index end, Index step)>;
Tensor as_view(const Tensor& x, Index axis, Index begin, Index end, Index step) {
  return x.slice(axis, begin, end, step);
}
Tensor as_copy(const Tensor& x, Index axis, Index begin, Index end, Index step) {
  const Tensor index = arange((end - begin + step - 1) / step) * Tensor(step) + Tensor(begin);
  return index_select(x, index, {axis});
}

Tensor noise(const Shape& shape, uint64_t stream) {
  std::vector<double> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = normal(Philox::block(9, stream, i))[0];
  return tensor(values, shape);
}
Tensor weigh(const Tensor& x, uint64_t stream) { return sum(x * noise(x.shape(), stream)); }

/// What is made of x (4, 6) by cutting it.
struct Case {
  const char* what;
  Tensor (*of)(const Tensor& x, const Cut& cut);
};
constexpr Case kCases[] = {
    {"three parts",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 1, 4, 6, 1), 1) + weigh(cut(x, 1, 0, 1, 1), 2) +
              weigh(cut(x, 1, 1, 4, 1), 3);
     }},
    {"parts through other views",
     [](const Tensor& x, const Cut& cut) {
       const Tensor a = cut(x, 1, 0, 2, 1).reshape({2, 2, 2}).transpose(0, 2);
       const Tensor b = cut(x, 1, 2, 6, 1).reshape({2, 2, 2, 2}).permute({3, 1, 0, 2});
       return weigh(rope(a), 1) + weigh(rope(b), 2);
     }},
    {"parts of a transposed tensor",
     [](const Tensor& x, const Cut& cut) {
       const Tensor t = x.transpose(0, 1);
       return weigh(rope(cut(t, 0, 0, 2, 1)), 1) + weigh(rope(cut(t, 0, 2, 6, 1)), 2);
     }},
    {"a gap",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 0, 0, 1, 1), 1) + weigh(cut(x, 0, 2, 4, 1), 2);
     }},
    {"one part alone",
     [](const Tensor& x, const Cut& cut) { return weigh(cut(x, 0, 1, 3, 1), 1); }},
    {"an empty part",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 0, 0, 2, 1), 1) + weigh(cut(x, 0, 2, 2, 1), 2) +
              weigh(cut(x, 0, 2, 4, 1), 3);
     }},
    {"overlapping parts",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 1, 0, 4, 1), 1) + weigh(cut(x, 1, 2, 6, 1), 2) +
              weigh(cut(x, 1, 3, 5, 1), 3);
     }},
    {"the same part twice",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 1, 0, 4, 1), 1) + weigh(cut(x, 1, 0, 4, 1), 2);
     }},
    {"a part used twice",
     [](const Tensor& x, const Cut& cut) {
       const Tensor a = cut(x, 1, 0, 2, 1), b = cut(x, 1, 2, 6, 1);
       return weigh(rope(a), 1) + weigh(rope(b), 2) + weigh(rope(b), 3) + weigh(a * sum(b), 4);
     }},
    {"a view of a part used twice",
     [](const Tensor& x, const Cut& cut) {
       const Tensor a = cut(x, 1, 0, 2, 1).transpose(0, 1), b = cut(x, 1, 2, 6, 1);
       return weigh(rope(a.transpose(0, 1)), 1) + weigh(a, 2) + weigh(b, 3);
     }},
    {"parts of a part",
     [](const Tensor& x, const Cut& cut) {
       const Tensor a = cut(x, 1, 1, 6, 1);
       return weigh(rope(cut(a, 1, 0, 2, 1)), 1) + weigh(cut(a, 1, 2, 4, 1), 2) +
              weigh(cut(x, 1, 0, 1, 1), 3);
     }},
    {"a part and the whole",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 1, 0, 3, 1), 1) + weigh(x, 2) + weigh(cut(x, 1, 3, 6, 1), 3);
     }},
    {"steps",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 1, 0, 6, 2), 1) + weigh(cut(x, 1, 1, 6, 2), 2);
     }},
    {"steps that end within another part",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 1, 0, 6, 2), 1) + weigh(cut(x, 1, 4, 6, 1), 2);
     }},
    {"parts along two axes",
     [](const Tensor& x, const Cut& cut) {
       return weigh(cut(x, 0, 0, 2, 1), 1) + weigh(cut(x, 1, 4, 6, 1), 2);
     }},
    {"a checkpoint that returns what it cuts",
     [](const Tensor& x, const Cut& cut) {
       auto f = [cut](const std::vector<Tensor>& in) {
         const Tensor y = in[0] * 2.0;
         return std::vector{y, rope(cut(y, 1, 0, 2, 1)), rope(cut(y, 1, 2, 6, 1))};
       };
       const std::vector<Tensor> y = checkpoint(f, {x});
       return weigh(y[0], 1) + weigh(y[1], 2) + weigh(y[2], 3);
     }},
    {"a checkpoint that cuts what others cut",
     [](const Tensor& x, const Cut& cut) {
       auto f = [cut](const Tensor& y) { return rope(cut(y, 1, 0, 2, 1)); };
       return weigh(cut(x, 1, 2, 6, 1), 1) + weigh(checkpoint(f, x), 2);
     }},
    {"a part that gets no gradient",
     [](const Tensor& x, const Cut& cut) {
       auto second = [](const std::vector<Tensor>& in) { return std::vector{in[1] * 2.0}; };
       const Tensor a = cut(x, 1, 0, 2, 1), b = cut(x, 1, 2, 6, 1);
       return weigh(checkpoint(second, {a, b})[0], 1);
     }},
};

/// The gradient of a leaf from which x was made, after `passes` backwards.
Tensor gradient(const Case& c, const Cut& cut, DType d, int passes, bool hooks = false) {
  const Tensor leaf = noise({4, 6}, 0).to(d).detach().set_requires_grad();
  const Tensor x = leaf * 2.0;
  auto twice = [](const Tensor& g) { return g * 2.0; };
  if (hooks) x.register_hook(twice);
  const Cut hooked = [&](const Tensor& from, Index axis, Index begin, Index end, Index step) {
    const Tensor part = cut(from, axis, begin, end, step);
    if (part.requires_grad()) part.register_hook(twice);
    return part;
  };
  const Tensor y = c.of(x, hooks ? hooked : cut);
  for (int i = 0; i < passes; ++i) y.backward(true);
  return leaf.grad();
}

}  // namespace

TEST_CASE("gradients of slices are those of copies whatever else is made of the tensor") {
  for (const Case& c : kCases)
    for (DType d : {DType::f32, DType::bf16})
      for (int passes : {1, 2})
        for (bool hooks : {false, true}) {
          CAPTURE(c.what);
          CAPTURE(hooks);
          const Tensor a = gradient(c, as_view, d, passes, hooks);
          CHECK(a.to_vector() == gradient(c, as_copy, d, passes, hooks).to_vector());
        }
}

TEST_CASE("attention takes q and k and v apart without a copy in backward") {
  const models::MultiHeadAttention attention({.width = 16, .heads = 4});
  const Tensor x = noise({2, 5, 16}, 1).set_requires_grad();
  const Tensor y = attention(x), g = noise({2, 5, 16}, 2);
  Profile profile;
  {
    ProfileScope scope(&profile);
    y.backward(g);
  }
  for (const Profile::Row& row : profile.rows()) {
    const std::string_view name = row.name;
    CAPTURE(name);
    CHECK((name == "linear" || name == "scaled_dot_product_attention" || name == "backward pass"));
  }
}

TEST_CASE("attention on parts of one tensor gives the bits that it gives on tensors of their own") {
  for (AttentionKernel kernel : {AttentionKernel::fused, AttentionKernel::reference})
    for (Index width : {4, 32})
      for (DType d : {DType::f32, DType::bf16, DType::f16}) {
        const Tensor all = noise({2, 70, 9 * width}, 1).to(d).detach().set_requires_grad() * 2.0;
        Tensor parts[3], own[3], whole;
        for (Index i = 0; i < 3; ++i) {
          const Tensor part = all.slice(2, 3 * i * width, 3 * (i + 1) * width);
          parts[i] = part.reshape({2, 70, 3, width}).transpose(1, 2);
          own[i] = parts[i].detach().contiguous().set_requires_grad();
        }
        all.register_hook([&](const Tensor& g) {
          whole = g;
          return Tensor();
        });
        auto attend = [&](const Tensor(&x)[3]) {
          return scaled_dot_product_attention(x[0], x[1], x[2], {},
                                              {.causal = true, .kernel = kernel});
        };
        const Tensor a = attend(parts), b = attend(own), g = noise(a.shape(), 2).to(d);
        CHECK(a.transpose(1, 2).is_contiguous());
        CHECK(a.to_vector() == b.to_vector());
        a.backward(g), b.backward(g);
        for (Index i = 0; i < 3; ++i) {
          const Tensor part = whole.slice(2, 3 * i * width, 3 * (i + 1) * width);
          CHECK(part.reshape({2, 70, 3, width}).transpose(1, 2).to_vector() ==
                own[i].grad().to(d).to_vector());
        }
      }
}

TEST_CASE("a hook on what was sliced sees the whole gradient once") {
  const Tensor leaf = noise({4, 6}, 0).set_requires_grad(), x = leaf * 2.0;
  std::vector<Tensor> seen;
  x.register_hook([&](const Tensor& g) {
    seen.push_back(g);
    return Tensor();
  });
  for (int i = 0; i < 2; ++i) kCases[0].of(x, as_view).backward(true);
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].shape() == Shape{4, 6});
  CHECK(seen[0].to_vector() == seen[1].to_vector());
  CHECK(leaf.grad().to_vector() == (seen[0] * 4.0).to_vector());
}

TEST_CASE("what a hook on a slice kept is not written to") {
  const Tensor x = noise({4, 6}, 0).set_requires_grad() * 2.0, a = x.slice(1, 0, 2);
  std::vector<Tensor> kept;
  a.register_hook([&](const Tensor& g) {
    kept.push_back(g);
    return g * 2.0;
  });
  (weigh(rope(a), 1) + weigh(x.slice(1, 2, 6), 2)).backward();
  REQUIRE(kept.size() == 1);
  const Tensor b = x.detach().slice(1, 0, 2).clone().set_requires_grad();
  weigh(rope(b), 1).backward();
  CHECK(kept[0].to_vector() == b.grad().to_vector());
}

TEST_CASE("a gradient takes the memory of what it is of only where nobody reads that again") {
  const Tensor w = noise({6, 6}, 1).set_requires_grad(), leaf = noise({4, 6}, 0);
  const Tensor x = leaf.clone().set_requires_grad();
  auto model = [&](const Tensor& in, std::vector<Tensor>* kept) {
    const Tensor a = in * 2.0, b = gelu(a), c = linear(b, w, {}), d = c + 1.0, e = d * d;
    if (kept) *kept = {a, b, c, d, e};
    return weigh(e, 1);
  };
  std::vector<Tensor> kept, before;
  auto gradients = [&](bool keep, bool retain) {
    w.set_grad({}), x.set_grad({});
    const Tensor y = model(x, keep ? &kept : nullptr);
    for (const Tensor& t : kept) before.push_back(t.detach().clone());
    for (int i = 0; i < 1 + retain; ++i) {
      w.set_grad({}), x.set_grad({});
      y.backward(retain && i == 0);
    }
    return std::pair(w.grad().to_vector(), x.grad().to_vector());
  };
  const auto taken = gradients(false, false);
  CHECK(gradients(false, true) == taken);
  CHECK(gradients(true, false) == taken);
  for (size_t i = 0; i < kept.size(); ++i) CHECK(kept[i].to_vector() == before[i].to_vector());
  CHECK(x.to_vector() == leaf.to_vector());
}

TEST_CASE("after an error an operand that a gradient overwrote is not read again") {
  const Tensor w = noise({6, 6}, 1).set_requires_grad(), x = noise({4, 6}, 0).set_requires_grad();
  const Tensor loss = sum(linear(x * 2.0, w, {}));
  w.set_grad(w.detach().clone());
  set_carried_scale(w.grad(), 1024);
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains("loss scale"), Error);
  w.set_grad({});
  CHECK_THROWS_WITH_AS(loss.backward(), doctest::Contains("a second time"), Error);
  CHECK_FALSE(w.grad().defined());
}

TEST_CASE("backward through a chain needs room for one gradient beside what forward saved") {
  const Tensor x = noise({1 << 16}, 0).set_requires_grad(), y = sum(gelu(gelu(gelu(x * 2.0))));
  memory::reset_peak();
  const size_t held = memory::stats().total.current, one = sizeof(float) << 16;
  y.backward();
  CHECK(memory::stats().total.peak - held < one + one / 2);
}
