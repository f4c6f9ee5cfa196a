#include <algorithm>

#include "minim/amp/autocast.h"
#include "minim/amp/grad_scaler.h"
#include "minim/models/gpt.h"
#include "minim/ops/functional.h"
#include "minim/optim/optimizer.h"
#include "minim/tests/parity.h"

namespace minim::test {
namespace {

constexpr Index kVocab = 17, kBlock = 8, kBatch = 2;
constexpr int kSteps = 20;

/// Errors are in epsilons of `unit`, over the tensor's largest value. A tensor is the end of a
/// chain of some 20 ops, whose errors (an epsilon of f32 and f64, where sums round; half a one of
/// bf16 and f16) add up like the square root: `allowed`, for f64 more, as PyTorch's own errors are
/// in the difference.
struct Mode {
  const char* name;  ///< in the golden file
  DType unit, stored, casts;
  double allowed;
};
constexpr Mode kModes[] = {{"ref", DType::f64, DType::f64, DType::f32, 8},
                           {"f32", DType::f32, DType::f32, DType::f32, 4.5},
                           {"bf16", DType::bf16, DType::f32, DType::bf16, 2.25},
                           {"f16", DType::f16, DType::f32, DType::f16, 2.25}};

/// The weights, tokens and steps of gpt_run() in tools/make_goldens.py.
class Run {
 public:
  explicit Run(DType stored)
      : model_({.vocab = kVocab, .block = kBlock, .layers = 2, .heads = 2, .embd = 16}),
        inputs_(empty({kBatch, kBlock}, DType::i64)),
        targets_(empty({kBatch, kBlock}, DType::i64)) {
    model_.to(stored);
    uint32_t seed = 1;
    for (auto& [name, w] : model_.named_parameters()) {
      const bool scale = name.find("norm") != name.npos && name.ends_with("weight");
      std::vector<double> v = recurrence(w.numel(), seed);
      for (double& u : v) u = (scale ? 1 : 0) + (u - 0.5) / 2;
      NoGrad no_recording;
      Tensor(w).copy_(tensor(v, w.shape(), stored));
      seed += 1000;
    }
    const std::vector<double> tokens = recurrence(kBatch * (kBlock + 1), 5);
    for (Index b = 0; b < kBatch; ++b)
      for (Index t = 0; t < kBlock; ++t) {
        auto token = [&](Index at) {
          return Index(kVocab * tokens[size_t(b * (kBlock + 1) + at)]);
        };
        inputs_.span<int64_t>()[size_t(b * kBlock + t)] = token(t);
        targets_.span<int64_t>()[size_t(b * kBlock + t)] = token(t + 1);
      }
  }

  /// logits, d_PARAMETER and losses, by name.
  std::vector<std::pair<std::string, std::vector<double>>> results(DType casts) {
    std::vector<std::pair<std::string, std::vector<double>>> found;
    optim::AdamW optimizer(model_.parameters(), {.lr = 1e-2, .eps = 1e-5, .weight_decay = 0.1});
    amp::GradScaler scaler({.dynamic = false, .init_scale = casts == DType::f16 ? 1024. : 1.});
    std::vector<double> losses;
    for (int step = 0; step < kSteps; ++step) {
      Tensor logits, loss;
      {
        amp::Autocast region(casts);
        logits = model_(inputs_);
        loss = cross_entropy(logits, targets_);
      }
      optimizer.zero_grad();
      scaler.scale(loss).backward();
      scaler.unscale(optimizer);
      losses.push_back(loss.item());
      if (step == 0) {
        found.emplace_back("logits", logits.to_vector());
        for (auto& [name, w] : model_.named_parameters())
          found.emplace_back("d_" + name, w.grad().to_vector());
      }
      scaler.step(optimizer);
      scaler.update();
    }
    found.emplace_back("losses", losses);
    return found;
  }

 private:
  models::GPT model_;
  Tensor inputs_, targets_;
};

}  // namespace

std::vector<Comparison> compare_gpt(std::vector<std::string>& findings) {
  const models::SafeTensors file = golden("gpt.safetensors");
  std::vector<Comparison> all;
  for (const Mode& mode : kModes) {
    Run run(mode.stored);
    for (const auto& [name, got] : run.results(mode.casts)) {
      const std::vector<double> right = values_of(file, "ref/" + name),
                                theirs = values_of(file, std::string(mode.name) + "/" + name);
      Comparison c{"GPT", name, mode.unit, errors_of(got, right, mode.unit),
                   errors_of(theirs, right, mode.unit)};
      if (!(c.minim.absolute <= std::max(c.torch.absolute, mode.allowed)))
        findings.push_back(std::string(mode.name) + "/" + name + " is " +
                           std::to_string(c.minim.absolute) + " epsilons off, PyTorch's " +
                           std::to_string(c.torch.absolute) + "; allowed are " +
                           std::to_string(mode.allowed));
      all.push_back(std::move(c));
    }
  }
  return all;
}

}  // namespace minim::test
