// Trains on batches of varied shape and compares what the process holds with what its tensors need:
// a cache that keeps a block of each size would hold many times as much.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "minim/amp/autocast.h"
#include "minim/core/allocator.h"
#include "minim/core/random.h"
#include "minim/models/gpt.h"
#include "minim/ops/composite.h"
#include "minim/optim/optimizer.h"

using namespace minim;

namespace {

constexpr double kMost = 1.5;

double resident_megabytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);  // its most, in KiB
  return double(usage.ru_maxrss) / 1024;
}

void step(const models::GPT& model, optim::AdamW& opt, Index batch, Index time) {
  const Tensor tokens = full({batch, time}, 1, DType::i64);
  {
    amp::Autocast on(DType::bf16);
    cross_entropy(model(tokens), tokens).backward();
  }
  opt.step();
  opt.zero_grad();
}

}  // namespace

int main() {
  const models::GPT model({.vocab = 256, .block = 128, .layers = 2, .heads = 4, .embd = 128});
  optim::AdamW opt(model.parameters(), {});
  constexpr int kSteps = 60;
  for (int k = 0; k < kSteps; ++k) {
    const auto [a, b, c, d] = Philox::block(11, 0, uint64_t(k));
    step(model, opt, 1 + a % 48, 1 + b % 128);
  }
  const double needed = double(memory::stats().most) / (1 << 20), held = resident_megabytes();
  std::printf(
      "%d batches of varied shape: tensors need %.1f MB, the process holds %.1f: %.2f times\n",
      kSteps, needed, held, held / needed);
  return held <= kMost * needed ? 0 : 1;
}
