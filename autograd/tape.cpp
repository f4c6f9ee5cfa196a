#include <algorithm>
#include <atomic>
#include <unordered_map>
#include <unordered_set>

#include "minim/autograd/loss_scale.h"
#include "minim/autograd/parts.h"
#include "minim/autograd/recorder.h"
#include "minim/core/pool.h"
#include "minim/core/probe.h"
#include "minim/core/profile.h"

namespace minim {
namespace {

std::atomic<uint64_t> threads_that_visit{0};
thread_local uint64_t next_visit = ++threads_that_visit << 40;
thread_local double live_scale = 1;
std::atomic<uint64_t> passes{0};
thread_local uint64_t live_pass = 0;

[[noreturn]] void fail_changed(const Arg& arg, const Saved& saved, const Node& node,
                               const char* role, size_t k) {
  fail("[", node.row->name, " backward] ", role, " ", k, " (", arg.shape, " ", name_of(arg.dtype),
       saved.name && !saved.name->empty() ? ", '" + *saved.name + "'" : "",
       ") was changed in place: it is at version ", saved.storage->version,
       ", backward needs version ", saved.version, "; use an out-of-place op, or clone() first");
}

/// The data of x, an operand or a result; null where it is not saved.
template <class X>
void* data_of(const X& x, const Node& node, const char* role, size_t k) {
  if (!x.saved.storage) return nullptr;
  if (x.saved.storage->version != x.saved.version) fail_changed(x.arg, x.saved, node, role, k);
  return x.saved.data;
}

/// A leaf sums in fp32 even when it is stored in 16 bits.
DType grad_dtype(const Autograd& target, DType operand) {
  return !target.node && is_half(operand) ? DType::f32 : operand;
}

/// Whether nobody else holds its elements.
bool is_own(const Tensor& x) {
  return is_sole_owner(x.shared()) && is_sole_owner(x.impl()->storage);
}

/// Adds to `sum` in fp32 (f64 for f64). The first addend is taken as it is.
void accumulate(Tensor& sum, const Tensor& addend) {
  if (!sum.defined()) return void(sum = addend);
  Timed timed("accumulate", Phase::backward);
  OpArgs args(2, 1);
  args.dtype = promote_types(promote_types(sum.dtype(), addend.dtype()), DType::f32);
  const bool own = sum.dtype() == args.dtype && sum.is_contiguous() && is_own(sum);
  point(args.in[0], sum);
  point(args.in[1], addend);
  const Tensor before =
      own ? Tensor() : std::exchange(sum, empty(sum.shape(), args.dtype, sum.device()));
  point(args.out[0], sum);
  run_forward(Op::add, args);
}

void accumulate_leaf(Autograd& leaf, const Tensor& addend, double scale, const OpRow* by) {
  const LeafLock lock(leaf);
  if (leaf.grad.defined() && carried_scale(leaf.grad) != scale)
    fail("gradients with loss scale ", scale, " would be added to gradients with loss scale ",
         carried_scale(leaf.grad),
         "; unscale and zero_grad before the next backward, or keep one scale while accumulating");
  if (!leaf.grad.defined()) leaf.since = live_pass;
  const bool own = addend.is_contiguous() && is_own(addend);
  if (!leaf.grad.defined() && (!own || is_half(addend.dtype()))) {
    Timed timed("accumulate", Phase::backward);
    leaf.grad = empty(addend.shape(), is_half(addend.dtype()) ? DType::f32 : addend.dtype(),
                      addend.device());
    copy_elements(addend, leaf.grad);
  } else {
    accumulate(leaf.grad, addend);
  }
  if (by) autograd_of(leaf.grad).gradient_of = by;
  if (scale != carried_scale(leaf.grad)) set_carried_scale(leaf.grad, scale);
}

/// Appends what `root` was made from, as far as `meets` says that it is new.
template <class Nodes, class Meets>
void collect(Node* root, Nodes& nodes, Meets meets) {
  auto meet = [&](Node* n) {
    if (!n) return;
    nodes.push_back(n);
    if (!meets(*n)) nodes.pop_back();
  };
  size_t i = nodes.size();
  for (meet(root); i < nodes.size(); ++i)
    for (const auto& operand : nodes[i]->operands)
      if (operand.gradient_to) meet(operand.gradient_to->node.get());
}

constexpr auto kOlder = [](const Node* a, const Node* b) { return a->sequence < b->sequence; };

void apply(const Hooks<GradHook>& hooks, Tensor& gradient, const OpRow& made_by, double scale) {
  if (hooks.empty()) return;
  gradient = gradient.detach();
  autograd_of(gradient).gradient_of = &made_by;
  set_carried_scale(gradient, scale);
  for (const auto& hook : hooks.all()) {
    Tensor replaced = (*hook)(gradient);
    if (!replaced.defined()) continue;
    if (!(replaced.shape() == gradient.shape()) || !is_floating(replaced.dtype()))
      fail("[", made_by.name, " backward] a hook turned a gradient ", name_of(gradient.dtype()),
           gradient.shape(), " into ", name_of(replaced.dtype()), replaced.shape(),
           "; keep the shape, or return an undefined Tensor to leave it as it is");
    check_hook_scale(made_by, replaced, scale);
    gradient = replaced.to(gradient.dtype());
  }
}

/// One backward(). No other goes through the same nodes meanwhile.
class Pass {
 public:
  Pass(std::shared_ptr<Node> root, bool retain)
      : visit_(++next_visit), retain_(retain), root_(std::move(root)) {}
  ~Pass() {
    live_scale = outer_scale_;
    live_pass = outer_pass_;
    for (Node* node : nodes_) {
      drop_gradients(*node);
      node->walker.store(0, std::memory_order_release);
    }
  }
  void run(Autograd& root, const Tensor& gradient) {
    live_pass = ++passes;
    claim(root_.get());
    scales_ = trace_scales(nodes_, carried_scale(gradient));
    live_scale = scale_ = scales_.most;
    parts::find(nodes_);
    todo_ = nodes_;
    std::make_heap(todo_.begin(), todo_.end(), kOlder);
    deliver(root, gradient, nullptr);
    while (!todo_.empty()) {
      std::pop_heap(todo_.begin(), todo_.end(), kOlder);
      Node& node = *todo_.back();
      todo_.pop_back();
      if (node.part || has_gradient(node)) run(node);
      drop_gradients(node);
      if (!retain_) release(node);
    }
    for (auto& [leaf, sum, scale, by] : hooked_) {
      apply(leaf->hooks, sum, by ? *by : Op::to, scale);
      Tensor whole = std::move(sum);
      accumulate_leaf(*leaf, whole, scale, by);
    }
  }

 private:
  static bool has_gradient(const Node& node) {
    return std::ranges::any_of(node.results, [](const auto& r) { return r.gradient.defined(); });
  }
  static void drop_gradients(Node& node) {
    for (auto& result : node.results) result.gradient = {}, result.uses = 0;
  }

  /// Takes what `root` was made from for this pass.
  void claim(Node* root) {
    collect(root, nodes_, [this](Node& n) {
      uint64_t by = n.walker.load(std::memory_order_relaxed);
      if (by == visit_) return false;
      if (by = 0; n.walker.compare_exchange_strong(by, visit_, std::memory_order_acquire))
        return true;
      nodes_.pop_back();
      fail("[", n.row->name,
           " backward] another backward() is going through this graph, in another thread or around "
           "the hook that called this one; let it end first, or give each a forward of its own "
           "(leaves may be shared)");
    });
  }

  void deliver(Autograd& target, const Tensor& gradient, const OpRow* by) {
    if (target.node)
      return accumulate(target.node->results[size_t(target.output)].gradient, gradient);
    if (target.hooks.empty()) return accumulate_leaf(target, gradient, scale_, by);
    const size_t at = hooked_at_.try_emplace(&target, hooked_.size()).first->second;
    if (at == hooked_.size()) hooked_.push_back({&target, {}, scale_, by});
    accumulate(hooked_[at].sum, gradient);
  }

  void run(Node& node) {
    if (node.released)
      fail("[", node.row->name,
           "] backward through the same graph a second time: its saved tensors are gone; pass "
           "retain_graph = true to the first backward()");
    for (auto& [output, hooks] : node.hooks)
      if (Tensor& g = node.results[size_t(output)].gradient; g.defined())
        apply(hooks, g, *node.row, scales_.uniform ? scales_.most / node.scale : node.carried);
    if (!scales_.uniform) scale_ = node.carried * node.scale;
    if (node.replay) return replay(node);
    if (node.part) return parts::put(node);
    if (!pass_on(node)) run_kernel(node);
  }

  /// The gradient of a view of all elements is a view of that gradient, where its dtype stays.
  bool pass_on(Node& node) {
    if (!node.row->unview) return false;
    const Node::Operand& x = node.operands[0];
    Tensor g = std::exchange(node.results[0].gradient, {});
    OpArgs args(1, 1);
    args.in[0] = x.arg;
    args.attrs = node.attrs;
    Strides strides;
    if (g.dtype() != grad_dtype(*x.gradient_to, x.arg.dtype) ||
        !node.row->unview(args, arg_of(g), strides)) {
      node.results[0].gradient = g;
      return false;
    }
    g = as_strided(g, x.arg.shape, strides, g.impl()->offset);
    deliver(*x.gradient_to, g, node.row);
    return true;
  }

  /// Records the calls again; their nodes take their turns among the others.
  void replay(const Node& node) {
    for (size_t k = 0; k < node.operands.size(); ++k) data_of(node.operands[k], node, "operand", k);
    node.replay->check_constants();
    std::vector<Tensor> all;
    {
      GradScope recording(true);
      MemoryScope kind(node.replay->kind);
      ProbeScope seen_before(nullptr);
      ModuleScope module(node.module);
      Recorder recorder(node);
      all = node.replay->run();
      recorder.finish();
    }
    size_t first = nodes_.size();
    for (size_t k = 0; k < node.results.size(); ++k) {
      size_t which = node.replay->results[k];
      if (which >= all.size() || !all[which].requires_grad() ||
          !(all[which].shape() == node.results[k].arg.shape))
        Recorder::differ();
      Autograd& result = *all[which].impl()->autograd;
      if (const Tensor& g = node.results[k].gradient; g.defined())
        deliver(result, g.detach(), nullptr);  // a hook may hold it, so nothing is added in place
      if (result.node) ++result.node->results[size_t(result.output)].uses;
      replayed_.push_back(result.node);
      claim(result.node.get());
    }
    parts::find(std::span(nodes_).subspan(first));
    for (; first < nodes_.size(); ++first) {
      nodes_[first]->carried = node.carried;
      todo_.push_back(nodes_[first]);
      std::push_heap(todo_.begin(), todo_.end(), kOlder);
    }
  }

  /// A saved operand as the room of its gradient; undefined where anything else may read it.
  Tensor overwritten(const Node::Operand& x, DType d) const {
    const auto& storage = x.saved.storage;
    if (retain_ || Probe::current() || !storage || x.arg.dtype != d ||
        storage->bytes != size_t(x.arg.shape.numel()) * size_of(d) ||
        !(x.arg.strides == contiguous_strides(x.arg.shape)) || !is_sole_owner(storage))
      return {};
    return Tensor(pool::make<TensorImpl>(
        TensorImpl{storage, x.arg.shape, x.arg.strides, 0, d, false, {}, {}}));
  }

  /// The operands whose gradients the kernel makes, as bits: all that want one, but those of a sum
  /// take the result's as it is, where its shape and dtype stay.
  uint32_t left_to_make(const Node& node) {
    uint32_t left = 0;
    const Tensor g =  // a second owner: a leaf copies it
        node.row == &Op::add ? node.results[0].gradient : Tensor();
    for (uint32_t k = 0; const auto& [arg, saved, target] : node.operands) {
      if (target && g.defined() && arg.shape == g.shape() &&
          grad_dtype(*target, arg.dtype) == g.dtype())
        deliver(*target, g, node.row);
      else if (target)
        left |= 1u << k;
      ++k;
    }
    return left;
  }

  void run_kernel(Node& node) {
    const uint32_t wanted = left_to_make(node);
    if (!wanted) return;
    const OpRow& row = *node.row;
    const size_t n_in = node.operands.size(), n_out = node.results.size();
    OpArgs args{int(n_in), int(n_out)};
    args.dtype = node.dtype;
    args.attrs = node.attrs;
    args.rng = node.rng;
    pool::Vector<Tensor> gradients(n_in);
    for (size_t k = 0; k < n_in; ++k) {
      args.in[k] = node.operands[k].arg;
      args.in[k].data = data_of(node.operands[k], node, "operand", k);
      if (!(wanted >> k & 1)) continue;
      DType d = grad_dtype(*node.operands[k].gradient_to, args.in[k].dtype);
      if (node.scale != 1) d = promote_types(d, DType::f32);  // a loss scale need not fit f16
      if (row.strided) gradients[k] = parts::place(*node.operands[k].gradient_to, d);
      if (row.over >> k & 1 && (gradients[k] = overwritten(node.operands[k], d)).defined())
        node.released = true;  // at once: an error may end this pass
      if (!gradients[k].defined()) gradients[k] = empty(args.in[k].shape, d, args.in[k].device);
      point(args.grad_in[k], gradients[k]);
    }
    for (size_t k = 0; k < n_out; ++k) {
      args.out[k] = node.results[k].arg;
      args.out[k].data = data_of(node.results[k], node, "result", k);
      point(args.grad_out[k], node.results[k].gradient);
    }
    {
      Timed timed(row.name, &row == &Op::to ? Phase::casts : Phase::backward);
      run_backward(row, args);
      timed.made(std::span(args.grad_in, n_in));
    }
    if (Probe* probe = Probe::current()) {
      ModuleScope module(node.module);
      probe->after_op(row, args, true);
    }
    for (size_t k = 0; k < n_in; ++k)
      if (gradients[k].defined()) {
        deliver(*node.operands[k].gradient_to, gradients[k], &row);
        gradients[k] = {};
      }
  }

  static void release(Node& node) {
    node.replay.reset();
    if (node.row->saves.inputs + node.row->saves.outputs == 0) return;
    for (auto& operand : node.operands) operand.saved = {};
    for (auto& result : node.results) result.saved = {};
    node.released = true;
  }

  struct Hooked {
    Autograd* leaf;
    Tensor sum;
    double scale;
    const OpRow* by;
  };
  uint64_t visit_;
  bool retain_;
  std::shared_ptr<Node> root_;  ///< a hook may drop the tensor
  Scales scales_;
  double scale_ = 1;  ///< that gradients for leaves carry, of the node whose turn it is
  double outer_scale_ = live_scale;
  uint64_t outer_pass_ = live_pass;
  pool::Vector<Node*> nodes_, todo_;  ///< all, and a heap of those whose turn is to come
  std::vector<std::shared_ptr<Node>> replayed_;
  std::vector<Hooked> hooked_;  ///< leaves with hooks, and their sums
  std::unordered_map<const Autograd*, size_t> hooked_at_;
};

}  // namespace

std::vector<Node*> reachable(Node* root) {
  std::vector<Node*> nodes;
  std::unordered_set<const Node*> seen;
  collect(root, nodes, [&](const Node& n) { return seen.insert(&n).second; });
  std::sort(nodes.rbegin(), nodes.rend(), kOlder);
  return nodes;
}

double live_loss_scale() { return live_scale; }
uint64_t live_backward() { return live_pass; }

/// @param gradient its owner beside the caller, so that a leaf copies what is the caller's
static void differentiate(const Tensor& x, const Tensor gradient, bool retain_graph) try {
  if (const auto& a = x.impl()->autograd; a && a->gradient_of)
    fail("[", a->gradient_of->name, "] backward() from ", origin(x),
         ", which was computed from a gradient that the backward kernel of ", a->gradient_of->name,
         " made: kernels have no second derivative (there is no create_graph); grad().detach() is "
         "a gradient taken as a constant");
  if (!x.requires_grad())
    fail("backward() from ", origin(x),
         ", which does not require gradients: no operand did, or it was made under NoGrad");
  const std::shared_ptr<Autograd> root = x.impl()->autograd;
  if (root->output < 0) fail("backward() inside checkpoint(): nothing is recorded there");
  if (root->carries != 1)
    fail("backward() from ", origin(x),
         ", which was computed from gradients that still carry a loss scale; call "
         "scaler.unscale(optimizer) before they are used");
  NoGrad no_recording;
  MemoryScope kind(MemoryKind::gradients);
  Timed timed("backward pass", Phase::overhead);
  Pass(root->node, retain_graph).run(*root, gradient);
} catch (const std::bad_alloc&) {
  pool::fail_full("backward");
}

void Tensor::backward(bool retain_graph) const {
  if (numel() != 1)
    fail("backward() without a gradient needs a loss of one element, this tensor has shape ",
         shape(), "; reduce it with mean() or sum(), or pass a gradient");
  differentiate(*this, full(shape(), 1, promote_types(dtype(), DType::f32), device()),
                retain_graph);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  differentiate(*this, taken_as_gradient("backward", gradient, *this), retain_graph);
}

}  // namespace minim
