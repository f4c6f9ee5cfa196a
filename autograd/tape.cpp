#include <algorithm>
#include <atomic>

#include "minim/autograd/node.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

std::atomic<uint64_t> next_visit{0};

void check_version(const Saved& saved, const Node& node, const char* role, size_t k) {
  if (saved.tensor.version() == saved.version) return;
  fail("[", node.row->name, " backward] ", role, " ", k, " (", saved.tensor.shape(), " ",
       name_of(saved.tensor.dtype()),
       saved.tensor.name().empty() ? "" : ", '" + saved.tensor.name() + "'",
       ") was changed in place: it is at version ", saved.tensor.version(),
       ", backward needs version ", saved.version, "; use an out-of-place op, or clone() first");
}

Arg with_data(Arg arg, const Saved& saved, const Node& node, const char* role, size_t k) {
  if (!saved.tensor.defined()) return arg;
  check_version(saved, node, role, k);
  arg.data = saved.tensor.data();
  return arg;
}

/// A leaf sums in fp32 even when it is stored in 16 bits.
DType grad_dtype(const Autograd& target, DType operand) {
  return !target.node && is_half(operand) ? DType::f32 : operand;
}

/// Adds into `sum` in fp32 (f64 for f64). The first addend is taken as it is.
void accumulate(Tensor& sum, const Tensor& addend) {
  if (!sum.defined()) {
    sum = addend;
    return;
  }
  DType wide = promote_types(promote_types(sum.dtype(), addend.dtype()), DType::f32);
  if (sum.dtype() == wide && sum.is_contiguous() && sum.impl()->storage.use_count() == 1) {
    OpArgs args;
    args.n_in = 2;
    args.n_out = 1;
    args.dtype = wide;
    args.in[0] = args.out[0] = arg_of(sum);
    args.in[1] = arg_of(addend);
    Op::add.forward[size_t(sum.device().kind)](args);
    return;
  }
  Tensor wider = empty(sum.shape(), wide, sum.device());
  copy_elements(sum, wider);
  sum = wider;
  accumulate(sum, addend);
}

void accumulate_leaf(Autograd& leaf, const Tensor& addend, double scale) {
  if (leaf.grad.defined() && leaf.scale != scale)
    fail("gradients with loss scale ", scale, " would be added to gradients with loss scale ",
         leaf.scale,
         "; unscale and zero_grad before the next backward, or keep one scale while accumulating");
  leaf.scale = scale;
  bool own = addend.is_contiguous() && addend.shared().use_count() == 1 &&
             addend.impl()->storage.use_count() == 1;
  Tensor mine = addend;
  if (!leaf.grad.defined() && (!own || is_half(addend.dtype()))) {
    mine = empty(addend.shape(), is_half(addend.dtype()) ? DType::f32 : addend.dtype(),
                 addend.device());
    copy_elements(addend, mine);
  }
  accumulate(leaf.grad, mine);
}

/// The loss scale that gradients through these nodes carry.
double loss_scale(const std::vector<Node*>& nodes) {
  double scale = 1;
  for (const Node* n : nodes) {
    if (n->scale == 1 || n->scale == scale) continue;
    if (scale != 1)
      fail("one backward() through losses with scales ", scale, " and ", n->scale,
           "; use one scale between updates");
    scale = n->scale;
  }
  return scale;
}

void apply(const Hooks<GradHook>& hooks, Tensor& gradient, const char* whose) {
  for (const auto& hook : hooks.all()) {
    Tensor replaced = (*hook)(gradient);
    if (!replaced.defined()) continue;
    if (!(replaced.shape() == gradient.shape()) || !is_floating(replaced.dtype()))
      fail("[", whose, " backward] a hook turned a gradient ", name_of(gradient.dtype()),
           gradient.shape(), " into ", name_of(replaced.dtype()), replaced.shape(),
           "; keep the shape, or return an undefined Tensor to leave it as it is");
    gradient = replaced;
  }
}

/// One backward().
class Pass {
 public:
  Pass(Node* root, bool retain) : nodes_(reachable(root)), retain_(retain) {
    scale_ = loss_scale(nodes_);
  }
  ~Pass() {
    for (Node* node : nodes_)
      for (Tensor& g : node->grad_out) g = {};
  }
  void run(Autograd& root, const Tensor& gradient) {
    deliver(root, gradient);
    for (Node* node : nodes_) {
      run(*node);
      for (Tensor& g : node->grad_out) g = {};
      if (!retain_) release(*node);
    }
    for (auto& [leaf, sum] : hooked_) {
      apply(leaf->hooks, sum, "leaf");
      Tensor whole = std::move(sum);
      accumulate_leaf(*leaf, whole, scale_);
    }
  }

 private:
  void deliver(Autograd& target, const Tensor& gradient) {
    if (target.node) return accumulate(target.node->grad_out[size_t(target.output)], gradient);
    if (target.hooks.empty()) return accumulate_leaf(target, gradient, scale_);
    auto it = std::find_if(hooked_.begin(), hooked_.end(),
                           [&](const auto& leaf) { return leaf.first == &target; });
    accumulate(it == hooked_.end() ? hooked_.emplace_back(&target, Tensor()).second : it->second,
               gradient);
  }

  void run(Node& node) {
    bool any = std::any_of(node.grad_out.begin(), node.grad_out.end(),
                           [](const Tensor& g) { return g.defined(); });
    if (!any) return;
    if (node.released)
      fail("[", node.row->name,
           "] backward through the same graph a second time: its saved tensors are gone; pass "
           "retain_graph = true to the first backward()");
    for (auto& [output, hooks] : node.hooks)
      if (Tensor& g = node.grad_out[size_t(output)]; g.defined()) apply(hooks, g, node.row->name);
    run_kernel(node);
  }

  void run_kernel(Node& node) {
    const OpRow& row = *node.row;
    OpArgs args;
    args.n_in = int(node.in.size());
    args.n_out = int(node.out.size());
    args.dtype = node.dtype;
    args.attrs = node.attrs;
    args.rng = node.rng;
    std::vector<Tensor> gradients(node.in.size());
    for (size_t k = 0; k < node.in.size(); ++k) {
      args.in[k] = with_data(node.in[k], node.saved_in[k], node, "operand", k);
      if (!node.inputs[k]) continue;
      DType d = grad_dtype(*node.inputs[k], node.in[k].dtype);
      if (node.scale != 1) d = promote_types(d, DType::f32);  // a loss scale need not fit f16
      gradients[k] = empty(node.in[k].shape, d);
      args.grad_in[k] = arg_of(gradients[k]);
    }
    for (size_t k = 0; k < node.out.size(); ++k) {
      args.out[k] = with_data(node.out[k], node.saved_out[k], node, "result", k);
      args.grad_out[k] = arg_of(node.grad_out[k]);
    }
    row.backward[0](args);
    if (Probe* probe = Probe::current()) probe->after_op(row, args, true);
    for (size_t k = 0; k < gradients.size(); ++k)
      if (gradients[k].defined()) {
        Tensor gradient = std::move(gradients[k]);
        deliver(*node.inputs[k], gradient);
      }
  }

  static void release(Node& node) {
    if (node.row->saves.inputs + node.row->saves.outputs == 0) return;
    for (Saved& s : node.saved_in) s = {};
    for (Saved& s : node.saved_out) s = {};
    node.released = true;
  }

  std::vector<Node*> nodes_;
  std::vector<std::pair<Autograd*, Tensor>> hooked_;  ///< leaves with hooks, and their sums
  double scale_;
  bool retain_;
};

}  // namespace

std::vector<Node*> reachable(Node* root) {
  uint64_t visit = ++next_visit;
  std::vector<Node*> nodes;
  auto meet = [&](Node* n) {
    if (!n || n->visit == visit) return;
    n->visit = visit;
    nodes.push_back(n);
  };
  meet(root);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const auto& input : nodes[i]->inputs)
      if (input) meet(input->node.get());
  std::sort(nodes.begin(), nodes.end(), [](Node* a, Node* b) { return a->sequence > b->sequence; });
  return nodes;
}

HookHandle Tensor::register_hook(std::function<Tensor(const Tensor&)> f) const {
  if (!requires_grad())
    fail("[register_hook] ", origin(*this), " does not require gradients: none will ever arrive");
  Autograd& a = *impl_->autograd;
  return (a.node ? a.node->hooks[a.output] : a.hooks).add(std::move(f));
}

void Tensor::backward(bool retain_graph) const {
  if (numel() != 1)
    fail("backward() without a gradient needs a loss of one element, this tensor has shape ",
         shape(), "; reduce it with mean() or sum(), or pass a gradient");
  backward(full(shape(), 1, promote_types(dtype(), DType::f32)), retain_graph);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph) const {
  if (!requires_grad())
    fail("backward() from ", origin(*this),
         ", which does not require gradients: no operand did, or it was made under NoGrad");
  if (!(gradient.shape() == shape()))
    fail("the gradient has shape ", gradient.shape(), ", the tensor ", shape());
  Autograd& root = *impl_->autograd;
  NoGrad no_recording;
  MemoryScope kind(MemoryKind::gradients);
  const Tensor callers = gradient;  // a second owner: a leaf copies it
  Pass(root.node.get(), retain_graph).run(root, callers);
}

}  // namespace minim
