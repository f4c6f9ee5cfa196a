#include "minim/models/language_model.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "minim/amp/autocast.h"
#include "minim/autograd/node.h"
#include "minim/core/random.h"
#include "minim/models/dataset.h"
#include "minim/ops/functional.h"

namespace minim::models {
namespace {

/// Eval mode in this scope.
class EvalScope {
 public:
  explicit EvalScope(Module& m) : module_(m), was_training_(m.training()) { m.eval(); }
  ~EvalScope() { module_.train(was_training_); }

 private:
  Module& module_;
  bool was_training_;
};

double largest_magnitude(const Tensor& logits) {
  return std::max(max(logits).item(), -min(logits).item());
}

/// Where the context of token n begins: a block, of which half goes each time that it is full.
Index context_start(Index n, Index block) {
  const Index half = std::max<Index>(1, block / 2);
  return n <= block ? 0 : (n - block + half - 1) / half * half;
}

int32_t pick(std::vector<double> logits, const Sampling& how, Index position) {
  for (double v : logits)
    if (std::isnan(v) || v == INFINITY)
      fail("the model's logits are not finite (", v,
           "): its weights are broken; `minim eval` tells its loss");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
  if (how.temperature == 0) return order[0];
  size_t kept = how.top_k > 0 ? std::min(size_t(how.top_k), order.size()) : order.size();
  std::vector<double> cumulative;
  double total = 0, top = logits[size_t(order[0])];
  for (size_t i = 0; i < kept; ++i)
    cumulative.push_back(total += std::exp((logits[size_t(order[i])] - top) / how.temperature));
  auto bits = Philox::block(how.seed, random_stream(RandomUse::sampling), uint64_t(position));
  double u = uniform01(join(bits[0], bits[1])) * total;
  size_t at =
      size_t(std::upper_bound(cumulative.begin(), cumulative.end(), u) - cumulative.begin());
  return order[std::min(at, kept - 1)];
}

}  // namespace

Batch make_batch(const TokenArray& tokens, std::span<const int64_t> starts, Index block) {
  MemoryScope kind(MemoryKind::data);
  Shape shape{Index(starts.size()), block};
  Batch batch{empty(shape, DType::i64, kHost), empty(shape, DType::i64, kHost)};
  auto x = batch.inputs.span<int64_t>(), y = batch.targets.span<int64_t>();
  const size_t n = size_t(block);
  for (size_t b = 0; b < starts.size(); ++b) {
    tokens.read(size_t(starts[b]), x.subspan(b * n, n));
    tokens.read(size_t(starts[b]) + 1, y.subspan(b * n, n));
  }
  return {batch.inputs.to(default_device()), batch.targets.to(default_device())};
}

Evaluation evaluate(Decoder& model, const TokenArray& tokens, Index block, Index batch,
                    const amp::Precision& precision) {
  EvalScope eval(model);
  NoGrad no_recording;
  Evaluation result;
  double sum = 0;
  std::vector<Window> windows = validation_windows(Index(tokens.size()), block);
  for (size_t first = 0; first < windows.size();) {
    size_t last = first;  // windows of one length go together
    std::vector<int64_t> starts;
    while (last < windows.size() && Index(starts.size()) < batch &&
           windows[last].length == windows[first].length)
      starts.push_back(windows[last++].start);
    Batch b = make_batch(tokens, starts, windows[first].length);
    Tensor logits, loss;
    {
      amp::Autocast casts(precision.autocast ? precision.compute : DType::f32, precision.policy);
      logits = model(b.inputs);
      loss = cross_entropy(logits, b.targets, {.reduction = Reduction::sum});
    }
    sum += loss.item();
    if (double largest = largest_magnitude(logits); !(largest <= result.max_logit))
      result.max_logit = largest;  // NaN stays
    result.tokens += b.targets.numel();
    first = last;
  }
  result.loss = sum / double(result.tokens);
  return result;
}

std::vector<int32_t> generate(Decoder& model, std::vector<int32_t> tokens, const Sampling& how,
                              const std::function<void(int32_t)>& made) {
  if (tokens.empty()) fail("generation needs a prompt of at least one token");
  if (!(how.temperature >= 0) || how.top_k < 0 || how.count < 0)
    fail("temperature ", how.temperature, ", top-k ", how.top_k, " and count ", how.count,
         " must not be negative");
  EvalScope eval(model);
  NoGrad no_recording;
  Index block = model.config().block, vocab = model.config().vocab;
  for (int32_t t : tokens)
    if (t < 0 || t >= vocab) fail("prompt token ", t, " is outside the vocabulary of ", vocab);
  KeyValueCache cache;
  Index start = 0;
  for (Index i = 0; i < how.count; ++i) {
    const Index n = Index(tokens.size()), first = context_start(n, block);
    if (first != std::exchange(start, first) || !how.cache) cache.clear();
    const Index seen = cache.empty() ? 0 : cache.front().length;
    Tensor x = empty({1, n - first - seen}, DType::i64, kHost);
    std::copy(tokens.begin() + first + seen, tokens.end(), x.span<int64_t>().begin());
    Tensor logits = model(x.to(default_device()), how.cache ? &cache : nullptr).select(1, -1);
    tokens.push_back(pick(logits.flatten().to_vector(), how, n));
    if (made) made(tokens.back());
  }
  return tokens;
}

}  // namespace minim::models
