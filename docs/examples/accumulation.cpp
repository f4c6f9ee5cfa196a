// Chapter 9: a large batch in small pieces.
#include "minim/amp/autocast.h"
#include "minim/amp/grad_scaler.h"
#include "minim/docs/examples/expect.h"
#include "minim/models/gpt.h"
#include "minim/models/language_model.h"
#include "minim/models/toy_language.h"
#include "minim/ops/composite.h"
#include "minim/optim/optimizer.h"

using namespace minim;

/// Logits of two classes for which class 0 costs `loss`.
std::vector<double> costing(double loss) { return {0, std::log(std::expm1(loss))}; }

/// A micro-batch of one token that costs 4, and one of three that cost 1; -100 is padding.
void tokens_count() {
  std::vector<double> a, b;
  for (int i = 0; i < 3; ++i)
    for (double v : costing(4)) a.push_back(v);
  for (int i = 0; i < 3; ++i)
    for (double v : costing(1)) b.push_back(v);
  CountedLoss first = cross_entropy_counted(tensor(a, {3, 2}), tensor({0, -100, -100}, DType::i64));
  CountedLoss second = cross_entropy_counted(tensor(b, {3, 2}), tensor({0, 0, 0}, DType::i64));
  double n = first.n_valid.item() + second.n_valid.item();
  double of_means = (first.loss.item() + second.loss.item()) / 2;
  double of_tokens = ((first.loss * first.n_valid + second.loss * second.n_valid) / n).item();
  std::printf("       mean of means %.4f, mean over tokens %.4f\n", of_means, of_tokens);
  expect("the mean of means is 2.5", std::fabs(of_means - 2.5) < 1e-5);
  expect("the mean over tokens is 1.75", std::fabs(of_tokens - 1.75) < 1e-5);
}

struct Outcome {
  std::vector<double> gradient;
  size_t peak;
};
/// The gradients of 8 sequences, `size` at a time.
Outcome in_pieces_of(Index size) {
  generator() = {1, 0};
  auto data = models::toy_language(1, 5000);
  models::GPT model({.vocab = data.vocab, .block = 32, .layers = 2, .heads = 2, .embd = 32});
  auto starts = models::batch_starts(1, 0, 0, 8, int64_t(data.train.size()), 32);
  memory::reset_peak();
  for (size_t i = 0; i < starts.size(); i += size_t(size)) {
    auto [x, y] = models::make_batch(data.train, std::span(starts).subspan(i, size_t(size)), 32);
    (cross_entropy(model(x), y) * (double(size) / 8)).backward();
  }
  Outcome result{{}, memory::stats().by_kind[size_t(MemoryKind::activations)].peak};
  for (const Tensor& p : model.parameters())
    for (double v : p.grad().to_vector()) result.gradient.push_back(v);
  return result;
}

void same_gradient() {
  Outcome whole = in_pieces_of(8), pieces = in_pieces_of(1);
  double largest = 0, difference = 0;
  for (size_t i = 0; i < whole.gradient.size(); ++i) {
    largest = std::max(largest, std::fabs(whole.gradient[i]));
    difference = std::max(difference, std::fabs(whole.gradient[i] - pieces.gradient[i]));
  }
  std::printf("       gradients up to %.3f differ by %.1e; activations at most %zu and %zu bytes\n",
              largest, difference, whole.peak, pieces.peak);
  expect("1 x 8 and 8 x 1 are the same to 1e-6", difference < 1e-6);
  expect("and take a fifth of the memory at most", pieces.peak * 5 < whole.peak);
}

/// f32 sums, whatever the parameter's dtype: a bf16 sum of ones would stop at 256.
void sums_are_wide() {
  Tensor w = ones({1}, DType::bf16).set_requires_grad();
  for (int i = 0; i < 1024; ++i) sum(w.to(DType::f32)).backward();
  expect("1024 gradients of 1 are 1024", w.grad().item() == 1024);
  expect("in f32", w.grad().dtype() == DType::f32);
}

void one_scale() {
  Tensor w = ones({1}).set_requires_grad();
  amp::GradScaler scaler;
  scaler.scale(sum(w * 2.0)).backward();
  expect_error("all pieces carry one scale", "loss scale", [&] { sum(w * 2.0).backward(); });
}

int main() {
  tokens_count();
  same_gradient();
  sums_are_wide();
  one_scale();
}
