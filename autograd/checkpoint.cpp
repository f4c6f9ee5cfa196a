#include "minim/autograd/checkpoint.h"

#include <optional>

#include "minim/amp/autocast.h"
#include "minim/autograd/recorder.h"
#include "minim/core/pool.h"
#include "minim/ops/call.h"

namespace minim::autograd {
namespace {

using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

constexpr OpRow checkpoint_row() {
  OpRow row{};
  row.name = "checkpoint";
  row.saves = {1, 0};
  return row;
}
constexpr OpRow kRow = checkpoint_row();

/// The generator as it was; as it is again at the end.
struct GeneratorScope {
  explicit GeneratorScope(Generator g) : outer(std::exchange(generator(), g)) {}
  ~GeneratorScope() { generator() = outer; }
  Generator outer;
};

std::function<std::vector<Tensor>()> again(const Function& fn, const std::vector<Tensor>& inputs) {
  return [fn, inputs, random = generator(), casts = amp::Autocast::state()] {
    GeneratorScope draws(random);
    std::optional<amp::Autocast> region;
    if (casts.enabled || amp::Autocast::current()) region.emplace(casts);
    return fn(inputs);
  };
}

}  // namespace

std::vector<Tensor> checkpoint(const Function& fn, const std::vector<Tensor>& inputs) try {
  if (!GradMode::enabled()) return fn(inputs);
  if (Recorder* outer = Recorder::current(); outer && outer->forward()) {
    std::vector<Tensor> outputs = fn(inputs);
    Recorder::next_sequence();  // of the node that the replay will have here
    return outputs;
  }
  auto node = pool::make<Node>();
  node->row = &kRow;
  node->module = ModuleScope::current();
  node->replay = std::make_shared<Replay>();
  node->replay->run = again(fn, inputs);
  std::vector<Tensor> outputs;
  {
    Recorder recorder(node);
    for (const Tensor& x : inputs)
      if (x.defined()) recorder.capture(x, true);
    outputs = fn(inputs);
    recorder.check_written(outputs);
  }
  node->sequence = Recorder::next_sequence();
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (!outputs[k].defined() || !outputs[k].requires_grad()) continue;
    Autograd& a = *outputs[k].impl()->autograd;
    if (a.node != node || a.output >= 0) continue;  // not made in here, or returned before
    a.output = int(node->results.size());
    node->results.push_back({arg_of(outputs[k]), {}, {}});
    node->results.back().arg.data = nullptr;
    node->replay->results.push_back(k);
  }
  return outputs;
} catch (const std::bad_alloc&) {
  pool::fail_full("checkpoint");
}

Tensor checkpoint(const std::function<Tensor(const Tensor&)>& fn, const Tensor& input) try {
  Function many = [fn](const std::vector<Tensor>& x) { return std::vector{fn(x[0])}; };
  return checkpoint(many, std::vector{input})[0];
} catch (const std::bad_alloc&) {
  pool::fail_full("checkpoint");
}

}  // namespace minim::autograd
