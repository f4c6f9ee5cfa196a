// Chapter 10: the training loop with a loss scaler, in bf16, and with accumulation.
#include <minim/minim.h>

#include "minim/docs/examples/expect.h"

using namespace minim;

constexpr int64_t kSteps = 60, kBatch = 16, kTime = 32;

/// Model and optimizer, the same for each form, and the batches of a step.
struct Setup {
  models::Dataset data = models::toy_language(1337, 50000);
  models::GPT model{{.vocab = data.vocab, .block = kTime, .layers = 2, .heads = 2, .embd = 32}};
  optim::AdamW opt{model.parameters(), {.lr = 3e-3, .weight_decay = 0.1}};

  /// `count` of the step's sequences, from number `first` on.
  models::Batch batch(int64_t step, size_t first = 0, size_t count = kBatch) const {
    auto starts = models::batch_starts(1337, step, 0, kBatch, int64_t(data.train.size()), kTime);
    return models::make_batch(data.train, std::span(starts).subspan(first, count), kTime);
  }
};

double with_fp16() {
  Setup s;
  amp::GradScaler scaler;
  double last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    auto [x, y] = s.batch(step);
    Tensor loss;
    {
      amp::Autocast on(DType::f16);
      loss = cross_entropy(s.model(x), y);
    }
    s.opt.zero_grad();
    scaler.scale(loss).backward();
    scaler.unscale(s.opt);
    optim::clip_grad_norm(s.opt.parameters(), 1.0);
    scaler.step(s.opt);
    scaler.update();
    last = loss.item();
  }
  return last;
}

double with_bf16() {
  Setup s;
  double last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    auto [x, y] = s.batch(step);
    Tensor loss;
    {
      amp::Autocast on(DType::bf16);
      loss = cross_entropy(s.model(x), y);
    }
    s.opt.zero_grad();
    loss.backward();
    optim::clip_grad_norm(s.opt.parameters(), 1.0);
    s.opt.step();
    last = loss.item();
  }
  return last;
}

double with_accumulation() {
  Setup s;
  amp::GradScaler scaler;
  constexpr size_t kMicros = 4;
  double last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    s.opt.zero_grad();
    last = 0;
    for (size_t micro = 0; micro < kMicros; ++micro) {
      auto [x, y] = s.batch(step, micro * kBatch / kMicros, kBatch / kMicros);
      Tensor loss;
      {
        amp::Autocast on(DType::f16);
        loss = cross_entropy(s.model(x), y) / double(kMicros);
      }
      scaler.scale(loss).backward();
      last += loss.item();
    }
    scaler.unscale(s.opt);
    optim::clip_grad_norm(s.opt.parameters(), 1.0);
    scaler.step(s.opt);
    scaler.update();
  }
  return last;
}

double with_fp32() {
  Setup s;
  double last = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    auto [x, y] = s.batch(step);
    Tensor loss = cross_entropy(s.model(x), y);
    s.opt.zero_grad();
    loss.backward();
    optim::clip_grad_norm(s.opt.parameters(), 1.0);
    s.opt.step();
    last = loss.item();
  }
  return last;
}

int main() {
  double losses[4];
  double (*forms[])() = {with_fp32, with_fp16, with_bf16, with_accumulation};
  const char* names[] = {"fp32", "fp16 with scaler", "bf16", "fp16, 4 micro-batches"};
  for (int i = 0; i < 4; ++i) {
    generator() = {1337, 0};
    losses[i] = forms[i]();
    std::printf("       %-22s %.4f\n", names[i], losses[i]);
  }
  expect("fp16 ends where fp32 does, within 0.02", std::fabs(losses[1] - losses[0]) < 0.02);
  expect("so does bf16", std::fabs(losses[2] - losses[0]) < 0.02);
  expect("and accumulation of the same sequences", std::fabs(losses[3] - losses[0]) < 0.02);
}
