// Chapter 12: softmax(q k^T) v without ever holding q k^T.
#include "minim/docs/examples/expect.h"
#include "minim/models/init.h"
#include "minim/ops/functional.h"

using namespace minim;

double largest_difference(const Tensor& a, const Tensor& b) {
  return max(abs(a.to(DType::f64) - b.to(DType::f64)).flatten(), {.axes = {0}}).item();
}

/// softmax(scores) . values, three scores at a time.
double online(std::span<const double> scores, std::span<const double> values) {
  double max = -INFINITY, sum = 0, out = 0;
  for (size_t from = 0; from < scores.size(); from += 3) {
    size_t to = std::min(from + 3, scores.size());
    double larger = max;
    for (size_t j = from; j < to; ++j) larger = std::max(larger, scores[j]);
    double shrink = std::exp(max - larger);  // 0 for the first chunk
    sum *= shrink, out *= shrink, max = larger;
    for (size_t j = from; j < to; ++j) {
      double p = std::exp(scores[j] - max);
      sum += p, out += p * values[j];
    }
  }
  return out / sum;
}

void one_row() {
  double scores[] = {1, 3, -2, 5, 0, 800, 799}, values[] = {1, 2, 3, 4, 5, 6, 7};
  double whole =
      sum(softmax(tensor(scores, {7}, DType::f64), {.dim = 0}) * tensor(values, {7}, DType::f64))
          .item();
  std::printf("       online %.12f, whole %.12f\n", online(scores, values), whole);
  expect("chunk by chunk is the same", std::fabs(online(scores, values) - whole) < 1e-12);
}

struct Run {
  size_t held, peak;  ///< bytes: for backward, and at the most in both directions
  Tensor out, dq;
};
Run attention(Index time, AttentionKernel kernel) {
  generator() = {1, 0};
  Tensor x[3];
  for (Tensor& t : x) t = models::init::normal(empty({1, 4, time, 32})).set_requires_grad();
  memory::empty_cache();
  memory::reset_peak();
  size_t before = memory::stats().total.current;
  Tensor y = scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = true, .kernel = kernel});
  size_t held = memory::stats().total.current - before;
  y.backward(ones(y.shape()));
  return {held, memory::stats().total.peak - before, y.detach(), x[0].grad()};
}

int main() {
  one_row();
  for (Index time : {256, 1024, 2048}) {
    Run tiles = attention(time, AttentionKernel::fused);
    Run plain = attention(time, AttentionKernel::reference);
    std::printf("       T %4d  held: fused %8zu, reference %8zu bytes;  peak: %8zu, %8zu\n",
                int(time), tiles.held, plain.held, tiles.peak, plain.peak);
    auto t = size_t(time);
    expect("fused holds the result and two numbers a row", tiles.held == 4 * t * (32 + 2) * 4);
    expect("the reference holds T x T more", plain.held == 4 * t * (32 + t) * 4);
    double forward = largest_difference(tiles.out, plain.out);
    double backward = largest_difference(tiles.dq, plain.dq);
    std::printf("       results differ by %.1e, gradients by %.1e\n", forward, backward);
    expect("and both agree", forward < 1e-5 && backward < 1e-5);
  }
}
