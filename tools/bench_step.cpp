// The training step of `minim train`: forward, loss, backward, clip, AdamW.
#include <fmt/format.h>

#include "minim/core/parallel.h"
#include "minim/tools/bench.h"
#include "minim/tools/trainer.h"

namespace minim::bench {
namespace {

struct Model {
  const char* name;
  Index layers, heads, embd, block, batch;
};
constexpr Model kSmall{"small", 4, 4, 128, 64, 12}, kLarge{"large", 6, 6, 384, 256, 8};
/// The small one, with twice the work in one respect: time should be linear in it.
constexpr Model kScaled[] = {{"small", 4, 4, 128, 64, 12},
                             {"small, twice the batch", 4, 4, 128, 64, 24},
                             {"small, twice the layers", 8, 4, 128, 64, 12},
                             {"small, twice the width", 4, 8, 256, 64, 12}};

struct Mode {
  const char *precision, *policy, *name;
};
constexpr Mode kFp32{"fp32", "torch", "fp32"};
constexpr Mode kModes[] = {kFp32,
                           {"amp-bf16", "lean", "amp-bf16-lean"},
                           {"amp-bf16", "torch", "amp-bf16-torch"},
                           {"amp-fp16", "lean", "amp-fp16-lean"},
                           {"amp-fp16", "torch", "amp-fp16-torch"}};

/// Multiply-adds of the matrix products and of causal attention, two operations each; backward does
/// twice the work of forward.
double flops_of(const Model& m, Index vocab) {
  const double tokens = double(m.batch * m.block), width = double(m.embd);
  const double matrices = 12 * double(m.layers) * width * width + width * double(vocab);
  const double attention = double(m.layers) * width * double(m.block + 1);
  return 3 * 2 * tokens * (matrices + attention);
}

Body step(const Model& m, const Mode& mode) {
  TrainConfig config;
  config.model.layers = m.layers;
  config.model.heads = m.heads;
  config.model.embd = m.embd;
  config.model.block = m.block;
  config.model.bias = false;
  config.train.batch = m.batch;
  config.train.schedule = "constant";
  config.train.lr = 1e-4;
  config.amp.precision = mode.precision;
  config.amp.policy = mode.policy;
  config.run.log_every = 1 << 30;
  const MemoryStats before = memory::stats();  // of whatever else is prepared
  auto trainer = std::make_shared<Trainer>(config);
  do trainer->step();
  while (trainer->scaler().enabled() && trainer->scaler().calibrating());
  memory::reset_peak();
  trainer->step();
  const MemoryStats after = memory::stats();
  Body body{.run = [trainer] { trainer->step(); },
            .flops = flops_of(m, trainer->data().vocab),
            .tokens = double(trainer->tokens_per_step())};
  body.notes.emplace_back("total", double(after.total.peak - before.total.current));
  for (size_t k = 0; k < kMemoryKinds; ++k)
    body.notes.emplace_back(name_of(MemoryKind(k)),
                            double(after.by_kind[k].peak - before.by_kind[k].current));
  return body;
}

Case case_of(const char* group, const Model& m, const Mode& mode, int threads) {
  return {fmt::format("{}/{}/t{}/{}", group, m.name, threads, mode.name), threads,
          [&m, &mode] { return step(m, mode); }};
}

}  // namespace

std::vector<Set> step_sets(int threads) {
  std::vector<Set> sets;
  for (const Model* m : {&kSmall, &kLarge}) {
    Set& set = sets.emplace_back();
    for (const Mode& mode : kModes) set.push_back(case_of("step", *m, mode, threads));
    if (threads > 1) set.push_back(case_of("step", *m, kFp32, 1));
  }
  Set& scaled = sets.emplace_back();
  for (const Model& m : kScaled) scaled.push_back(case_of("scaling", m, kFp32, threads));
  return sets;
}

}  // namespace minim::bench
