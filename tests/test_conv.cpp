#include <cmath>
#include <limits>

#include "minim/amp/autocast.h"
#include "minim/ops/composite.h"
#include "minim/tests/samples.h"

using namespace minim;
using namespace minim::test;

namespace {

/// The convolution by its definition, with its gradients for the cotangent g.
struct Plain {
  std::vector<double> y, dx, dweight;

  Plain(const Tensor& x, const Tensor& weight, const Tensor& g, const op::Conv2d::Attrs& a)
      : dx(size_t(x.numel())), dweight(size_t(weight.numel())) {
    const auto xs = x.to_vector(), ws = weight.to_vector(), gs = g.to_vector();
    const Index C = x.size(1), H = x.size(2), W = x.size(3), per_group = weight.size(1);
    for (Index n = 0, o = 0; n < g.size(0); ++n)
      for (Index k = 0; k < g.size(1); ++k)
        for (Index i = 0; i < g.size(2); ++i)
          for (Index j = 0; j < g.size(3); ++j, ++o) {
            double sum = 0;
            for (Index c = 0; c < per_group; ++c)
              for (Index u = 0; u < weight.size(2); ++u)
                for (Index v = 0; v < weight.size(3); ++v) {
                  const Index h = i * a.stride.h - a.padding.h + u * a.dilation.h,
                              w = j * a.stride.w - a.padding.w + v * a.dilation.w;
                  if (h < 0 || h >= H || w < 0 || w >= W) continue;
                  const Index channel = k / (g.size(1) / a.groups) * per_group + c;
                  const auto at = size_t(((n * C + channel) * H + h) * W + w);
                  const auto tap =
                      size_t(((k * per_group + c) * weight.size(2) + u) * weight.size(3) + v);
                  sum += xs[at] * ws[tap];
                  dx[at] += gs[size_t(o)] * ws[tap];
                  dweight[tap] += gs[size_t(o)] * xs[at];
                }
            y.push_back(sum);
          }
  }
};

}  // namespace

TEST_CASE("conv2d gives what is computed by hand") {
  Tensor x = counting({1, 1, 3, 3}, 1).set_requires_grad();
  Tensor weight = shaped({1, 0, 0, -1}, {1, 1, 2, 2}, DType::f64).set_requires_grad();
  Tensor bias = tensor({10}, DType::f64).set_requires_grad();
  Tensor y = conv2d(x, weight, bias);
  CHECK(y.shape() == Shape{1, 1, 2, 2});
  CHECK(y.to_vector() == std::vector<double>{6, 6, 6, 6});  // x - its neighbour down right = -4
  y.backward(ones({1, 1, 2, 2}, DType::f64));
  CHECK(gradient_of(x) == std::vector<double>{1, 1, 0, 1, 0, -1, 0, -1, -1});
  CHECK(gradient_of(weight) == std::vector<double>{12, 16, 24, 28});
  CHECK(gradient_of(bias) == std::vector<double>{4});
  Tensor padded = conv2d(x, weight, Tensor(), {.stride = 2, .padding = 1});
  CHECK(padded.to_vector() == std::vector<double>{-1, -3, -7, 5 - 9});
}

TEST_CASE("conv2d is its definition for every stride, padding, dilation and number of groups") {
  struct Case {
    Shape x, weight;
    op::Conv2d::Attrs attrs;
  };
  for (const Case& c :
       {Case{{2, 3, 7, 6}, {4, 3, 3, 3}, {}},
        Case{{2, 3, 7, 6}, {4, 3, 3, 2}, {.stride = {2, 3}, .padding = {1, 2}}},
        Case{{1, 4, 9, 8}, {6, 2, 3, 3}, {.padding = 3, .dilation = {2, 3}, .groups = 2}},
        Case{{2, 5, 5, 5}, {10, 1, 3, 3}, {.stride = 2, .padding = 1, .groups = 5}},
        Case{{3, 2, 70, 71}, {3, 2, 3, 3}, {.padding = 1}},      // more than one block of positions
        Case{{1, 300, 5, 30}, {2, 300, 3, 3}, {.padding = 1}}})  // blocks of 64
  {
    CAPTURE(c.x);
    CAPTURE(c.weight);
    Tensor x = noise(c.x, DType::f64).set_requires_grad(),
           weight = noise(c.weight, DType::f64, 2).set_requires_grad();
    Tensor y = conv2d(x, weight, Tensor(), c.attrs), g = noise(y.shape(), DType::f64, 3);
    y.backward(g);
    const Plain plain(x, weight, g, c.attrs);
    auto close = [](const std::vector<double>& got, const std::vector<double>& expected) {
      REQUIRE(got.size() == expected.size());
      double worst = 0;
      for (size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::fabs(got[i] - expected[i]));
      CHECK(worst < 1e-11);
    };
    close(y.to_vector(), plain.y);
    close(gradient_of(x), plain.dx);
    close(gradient_of(weight), plain.dweight);
  }
}

TEST_CASE("conv2d adds the bias before the one rounding and sums its gradients in fp32") {
  // 2048 + 1 is no f16: rounded first, each addition of 1 would be lost.
  Tensor x = shaped({2048, 1}, {1, 1, 1, 2}, DType::f16);
  CHECK(conv2d(x, ones({1, 1, 1, 2}, DType::f16), ones({1}, DType::f16)).item() == 2050);
  Tensor weight = ones({1, 1, 1, 1}, DType::f16).set_requires_grad(),
         bias = zeros({1}, DType::f16).set_requires_grad();
  conv2d(ones({5, 1, 64, 64}, DType::f16), weight, bias).backward(ones({5, 1, 64, 64}, DType::f16));
  CHECK(weight.grad().dtype() == DType::f32);
  CHECK(weight.grad().item() == 20480);
  CHECK(bias.grad().item() == 20480);  // a sum in f16 would stop at 2048
}

TEST_CASE("conv2d has the same bits for any number of threads") {
  auto run = [](int count) {
    Threads scope(count);
    Tensor x = noise({5, 4, 40, 40}).set_requires_grad(),
           weight = noise({6, 2, 3, 3}, DType::f32, 2).set_requires_grad(),
           bias = noise({6}, DType::f32, 3).set_requires_grad();
    Tensor y = conv2d(x, weight, bias, {.padding = 1, .groups = 2});
    y.backward(noise(y.shape(), DType::f32, 4));
    return std::vector{y.to_vector(), gradient_of(x), gradient_of(weight), gradient_of(bias)};
  };
  const auto one = run(1);
  CHECK(run(2) == one);
  CHECK(run(3) == one);
}

TEST_CASE("conv2d wants one dtype, and autocast lowers it") {
  Tensor x = noise({1, 1, 3, 3}), weight = noise({1, 1, 2, 2}, DType::f16);
  CHECK(has(error_of([&] { conv2d(x, weight); }), "operands differ in dtype"));
  amp::Autocast region(DType::f16);
  CHECK(conv2d(x, weight).dtype() == DType::f16);
}

TEST_CASE("conv2d names the shapes that do not fit") {
  auto text = [](const Shape& x, const Shape& weight, const op::Conv2d::Attrs& attrs = {}) {
    return error_of([&] { conv2d(ones(x), ones(weight), Tensor(), attrs); });
  };
  CHECK(has(text({3, 4, 5}, {2, 4, 3, 3}), "x must be (N, C, H, W)"));
  CHECK(has(text({1, 3, 5, 5}, {2, 4, 3, 3}), "weight (2, 4, 3, 3) does not fit x (1, 3, 5, 5)"));
  CHECK(has(text({1, 4, 5, 5}, {3, 2, 3, 3}, {.groups = 2}), "in 2 groups"));
  CHECK(has(text({1, 1, 2, 9}, {1, 1, 3, 3}), "reaches over 3 elements, but the height"));
  CHECK(has(text({1, 1, 9, 9}, {1, 1, 3, 3}, {.stride = {1, 0}}), "along the width"));
  CHECK(has(error_of([] {
              conv2d(ones({1, 1, 3, 3}), ones({2, 1, 2, 2}), ones({3}));
            }),
            "bias (3)"));
  CHECK(has(error_of([] { conv2d(ones({1, 1, 3, 3}, DType::i64), ones({2, 1, 2, 2})); }), "i64"));
}

TEST_CASE("max_pool2d takes the largest element, and hands its gradient to the first of them") {
  Tensor x = counting({1, 1, 4, 4}, 1).set_requires_grad();
  Tensor y = max_pool2d(x, {.kernel_size = 2});
  CHECK(y.to_vector() == std::vector<double>{6, 8, 14, 16});
  Tensor same = ones({1, 2, 3}).set_requires_grad();
  max_pool2d(same, {.kernel_size = {2, 3}}).backward(full({1, 1, 1}, 5));
  CHECK(gradient_of(same) == std::vector<double>{5, 0, 0, 0, 0, 0});
  // Windows that overlap add up, in fp32.
  Tensor top = shaped({0, 9, 0}, {1, 1, 3}, DType::f16).set_requires_grad();
  max_pool2d(top, {.kernel_size = {1, 2}, .stride = 1}).backward(full({1, 1, 2}, 3, DType::f16));
  CHECK(gradient_of(top) == std::vector<double>{0, 6, 0});
}

TEST_CASE("max_pool2d never takes the padding, and always a NaN") {
  Tensor x = full({1, 2, 2}, -5);
  Tensor y = max_pool2d(x, {.kernel_size = 2, .stride = 1, .padding = 1});
  CHECK(y.to_vector() == std::vector<double>(9, -5));
  const double nan = std::nan("");
  Tensor z = max_pool2d(shaped({1, nan, 7, 2, 3, 4}, {1, 1, 6}), {.kernel_size = {1, 3}});
  CHECK(std::isnan(z.to_vector()[0]));
  CHECK(z.to_vector()[1] == 4);
  // Dilated taps can straddle a small image.
  Tensor gap = max_pool2d(ones({1, 1, 1}), {.kernel_size = 2, .padding = 1, .dilation = 2});
  CHECK(gap.item() == -std::numeric_limits<double>::infinity());
}

TEST_CASE("avg_pool2d counts the padding as zeros unless it is told not to") {
  Tensor x = full({1, 1, 3, 3}, 9);
  auto pool = [&](bool count) {
    return avg_pool2d(x, {.kernel_size = 3, .stride = 1, .padding = 1, .count_include_pad = count})
        .to_vector();
  };
  CHECK(pool(true) == std::vector<double>{4, 6, 4, 6, 9, 6, 4, 6, 4});
  CHECK(pool(false) == std::vector<double>(9, 9));
  Tensor leaf = counting({1, 2, 4}, 1).set_requires_grad();
  Tensor y = avg_pool2d(leaf);
  CHECK(y.to_vector() == std::vector<double>{3.5, 5.5});
  y.backward(shaped({4, 8}, {1, 1, 2}, DType::f64));
  CHECK(gradient_of(leaf) == std::vector<double>{1, 1, 2, 2, 1, 1, 2, 2});
}

TEST_CASE("avg_pool2d sums in fp32, beyond what f16 holds") {
  Tensor y = avg_pool2d(full({1, 64, 64}, 1024, DType::f16), {.kernel_size = 64});
  CHECK(y.dtype() == DType::f16);
  CHECK(y.item() == 1024);
}

TEST_CASE("a pool whose window lies in the padding alone is refused") {
  CHECK(has(error_of([] {
              avg_pool2d(ones({1, 4, 4}), {.kernel_size = 2, .padding = 2});
            }),
            "[avg_pool2d] padding 2, 2 is more than half"));
  CHECK(has(error_of([] {
              max_pool2d(ones({1, 4, 4}), {.kernel_size = 5});
            }),
            "the window reaches over 5 elements"));
  CHECK(has(error_of([] { max_pool2d(ones({4})); }), "(..., height, width)"));
}
