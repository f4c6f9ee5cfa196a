// autograd/record.cpp -- how the tape grows: what a call leaves on it, and what a tensor says of
// it.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>

#include "minim/autograd/recorder.h"

namespace minim {
namespace {

std::atomic<uint64_t> next_sequence{0};

/// What the loop of this thread has still to free. Without a destructor: globals may be destroyed
/// after everything that has one.
constinit thread_local std::shared_ptr<Buried>* waiting = nullptr;

bool wanted(const Tensor& x) { return x.defined() && x.requires_grad() && is_floating(x.dtype()); }

void save(Saved& saved, const Tensor& x) {
  if (x.defined()) saved = {x.impl()->storage, x.data(), x.version(), x.impl()->name};
}

/// A tensor from within checkpoint() has no place on the tape until it is returned.
void check_returned(const Tensor& x, const Recorder* recorder) {
  if (!x.defined() || !x.requires_grad() || x.impl()->autograd->output >= 0) return;
  if (recorder && recorder->owns(x)) return;
  fail(
      "a tensor that was made inside checkpoint() and not returned by it is used outside; return "
      "it, or detach() it");
}

void attach(const OpRow& row, std::shared_ptr<Node> node, std::span<const Tensor> outputs,
            bool inside) {
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (int(k) >= row.returned || !is_floating(outputs[k].dtype())) continue;
    Autograd& a = autograd_of(outputs[k]);
    a.requires_grad = true;
    a.node = k + 1 < outputs.size() ? node : std::move(node);
    a.output = inside ? -1 : int(k);
  }
}

}  // namespace

void bury(std::shared_ptr<Buried> last) noexcept {
  if (last.use_count() != 1) return;
  if (waiting) {
    last->next = std::move(*waiting);
    *waiting = std::move(last);
    return;
  }
  for (waiting = &last; last;) {
    const std::shared_ptr<Buried> one = std::move(last);
    last = std::move(one->next);
  }
  waiting = nullptr;
}

Node::~Node() {
  bury(std::move(replay));  // it holds inputs
  for (auto& [output, f] : hooks) bury(f.take());
}

Autograd::~Autograd() {
  bury(hooks.take());
  bury(std::move(node));
}

LeafLock::LeafLock(Autograd& leaf) : busy_(leaf.busy) {
  while (busy_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
}

Autograd& autograd_of(const Tensor& x) {
  if (!x.impl()->autograd) x.impl()->autograd = pool::make<Autograd>();
  return *x.impl()->autograd;
}

std::string origin(const Tensor& x) {
  if (!x.name().empty()) return "'" + x.name() + "'";
  const auto& a = x.impl()->autograd;
  return a && a->node ? std::string("the result of ") + a->node->row->name : "a tensor";
}

void record(const OpRow& row, const OpArgs& args, std::span<const Tensor> operands,
            std::span<const Tensor> outputs) {
  Recorder* recorder = Recorder::current();
  for (const Tensor& x : operands) check_returned(x, recorder);
  bool leaf_cast = &row == &Op::to && !operands[0].impl()->autograd->node;
  if (recorder && leaf_cast && recorder->reuse_cast(operands[0], outputs[0])) return;
  if (recorder && !leaf_cast && recorder->forward()) return recorder->pass(row, operands, outputs);
  auto node = pool::make<Node>();
  node->row = &row;
  node->sequence = leaf_cast ? ++next_sequence : Recorder::next_sequence();
  node->dtype = args.dtype;
  node->attrs = args.attrs;
  node->rng = args.rng;
  node->module = ModuleScope::current();
  node->operands.resize(operands.size());
  for (size_t k = 0; k < operands.size(); ++k) {
    const Tensor& x = operands[k];
    Node::Operand& o = node->operands[k];
    o.arg = args.in[k];
    o.arg.data = nullptr;
    if (row.saves.inputs >> k & 1) save(o.saved, x);
    if (wanted(x)) o.gradient_to = x.impl()->autograd;
  }
  node->results.resize(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    Node::Result& r = node->results[k];
    r.arg = args.out[k];
    r.arg.data = nullptr;
    if (row.saves.outputs >> k & 1) save(r.saved, outputs[k]);
  }
  attach(row, std::move(node), outputs, false);
  if (recorder && leaf_cast) recorder->capture(outputs[0]);
}

uint64_t Recorder::next_sequence() { return current_ ? current_->take() : ++minim::next_sequence; }

Recorder::Recorder(std::shared_ptr<Node> node) : node_(std::move(node)), replay_(*node_->replay) {
  current_ = this;
}
Recorder::Recorder(const Node& node) : replay_(*node.replay) {
  for (const auto& [arg, saved, a] : node.operands)
    if (a && a->node && a->node->row == &Op::to && !a->node->operands[0].gradient_to->node)
      casts_.push_back(a);
  current_ = this;
}

uint64_t Recorder::take() {
  if (node_)
    return replay_.sequences.emplace_back(outer_ ? outer_->take() : ++minim::next_sequence);
  if (at_ == replay_.sequences.size()) differ();
  return replay_.sequences[at_++];
}

void Recorder::capture(const Tensor& x, bool keep) {
  auto a = wanted(x) ? x.impl()->autograd : nullptr;
  if (a && std::ranges::count(node_->operands, a, &Node::Operand::gradient_to)) return;
  Node::Operand o{arg_of(x), {}, a};
  o.arg.data = nullptr;
  if (keep || !a->node) save(o.saved, x);
  node_->operands.push_back(std::move(o));
}

void Recorder::pass(const OpRow& row, std::span<const Tensor> operands,
                    std::span<const Tensor> outputs) {
  for (const Tensor& x : operands)
    if (wanted(x) && x.impl()->autograd->node != node_) capture(x);
  take();
  attach(row, node_, outputs, true);
}

void Recorder::watch(std::span<const Tensor> operands) {
  if (!forward()) return;
  for (const Tensor& x : operands)
    if (x.defined() && !wanted(x) && !x.impl()->scalar)
      replay_.constants.push_back({x.impl()->storage, x.version(), x.shape(), x.dtype()});
}

void Replay::check_constants() const {
  for (const Constant& c : constants)
    if (const auto storage = c.storage.lock(); storage && storage->version != c.version)
      fail("[checkpoint backward] a tensor (", c.shape, " ", name_of(c.dtype),
           ") that the function uses was changed in place since the forward: it is at version ",
           storage->version, ", backward needs version ", c.version,
           "; use an out-of-place op, or give the function a clone()");
}

Recorder* Recorder::replaying() {
  Recorder* replay = current_;
  while (replay && replay->forward()) replay = replay->outer_;
  return replay;
}

bool Recorder::reuse_cast(const Tensor& leaf, const Tensor& copy) {
  Recorder* replay = replaying();
  if (!replay) return false;
  auto it = std::find_if(replay->casts_.begin(), replay->casts_.end(), [&](const auto& a) {
    return a->node->operands[0].gradient_to == leaf.impl()->autograd &&
           a->node->results[0].arg.dtype == copy.dtype();
  });
  if (it == replay->casts_.end()) differ();
  copy.impl()->autograd = *it;
  replay->casts_.erase(it);
  if (forward()) capture(copy);
  return true;
}

HookHandle Recorder::hook_once(const Autograd& on, const std::function<HookHandle()>& add) {
  Recorder* replay = replaying();
  HookHandle handle;
  if (!replay ||
      (on.node && std::ranges::binary_search(replay->replay_.sequences, on.node->sequence))) {
    handle = add();
  } else {
    if (replay->hook_at_ == replay->replay_.hooks.size()) differ();
    handle = replay->replay_.hooks[replay->hook_at_++];
  }
  if (current_->forward()) current_->replay_.hooks.push_back(handle);
  return handle;
}

void Recorder::wrote(const Tensor& x, const char* op) {
  if (forward()) written_.push_back({x.impl()->storage, op});
}

void Recorder::check_written(std::span<const Tensor> outputs) const {
  for (const auto& [storage, op] : written_) {
    const auto alive = storage.lock();
    if (!alive || std::ranges::any_of(outputs, [&](const Tensor& y) {
          return y.defined() && y.impl()->storage == alive;
        }))
      continue;
    fail("[checkpoint] the function changed a tensor from outside in place, by ", op,
         "; backward calls it again and would change it twice; do that outside, or return the new "
         "value");
  }
}

void Recorder::finish() const {
  if (at_ != replay_.sequences.size()) differ();
}

void Recorder::differ() {
  fail(
      "[checkpoint] in backward the function called other ops than in forward; it may depend only "
      "on its inputs and on what does not change in between (not on train() and eval(), counters, "
      "or a generator of its own)");
}

bool Tensor::requires_grad() const {
  return impl_ && impl_->autograd && impl_->autograd->requires_grad;
}

const Tensor& Tensor::set_requires_grad(bool on) const {
  if (on && !is_floating(dtype()))
    fail("only floating tensors can require gradients, this one is ", name_of(dtype()));
  Autograd& a = autograd_of(*this);
  a.requires_grad = on;
  a.frozen = !on;
  return *this;
}

Tensor taken_as_gradient(const char* what, const Tensor& gradient, const Tensor& x) {
  const DType d = gradient.dtype();
  if (!is_floating(d) || is_storage_only(d) || !(gradient.shape() == x.shape()))
    fail("[", what, "] a gradient that is ", name_of(d), gradient.shape(), " does not fit ",
         origin(x), " of shape ", x.shape(), "; it is f16, bf16, f32 or f64 and of the same shape");
  if (std::isnan(carried_scale(gradient)))
    fail("[", what, "] the gradient for ", origin(x),
         " was computed from gradients that carry a loss scale and from what does not grow with "
         "them (other values, or a function that is not linear): it fits no scale; call "
         "scaler.unscale(optimizer) before gradients are changed");
  if (d != DType::f64 || x.dtype() == DType::f64) return gradient;
  NoGrad no_recording;
  return gradient.to(DType::f32);  // so that what is inf there is seen
}

Tensor Tensor::grad() const {
  const auto& a = impl()->autograd;
  if (!a) return {};
  const LeafLock lock(*a);
  return a->grad;
}

void Tensor::set_grad(const Tensor& grad) const {
  // Freed after the lock.
  Tensor before = grad.defined() ? taken_as_gradient("set_grad", grad, *this) : grad;
  Autograd& a = autograd_of(*this);
  const LeafLock lock(a);
  if (!a.grad.defined() || !grad.defined()) a.since = 0;
  std::swap(a.grad, before);
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> f) const try {
  if (!requires_grad())
    fail("[register_hook] ", origin(*this), " does not require gradients: none will ever arrive");
  Autograd& a = *impl()->autograd;
  if (a.output < 0) return {};  // inside a checkpointed call: the replay will register it
  auto add = [&] { return (a.node ? a.node->hooks[a.output] : a.hooks).add(std::move(f)); };
  return Recorder::current() ? Recorder::hook_once(a, add) : add();
} catch (const std::bad_alloc&) {
  pool::fail_full("register_hook");
}

Tensor Tensor::detach() const {
  Tensor same = as_strided(*this, shape(), strides(), impl()->offset);
  if (const double scale = carried_scale(*this); scale != 1) set_carried_scale(same, scale);
  return same;
}

}  // namespace minim
