// autograd/node.h -- what the tape is made of. Each recorded call is a Node with a sequence number;
// a tensor that requires gradients carries an Autograd, which says who made it. Nodes point to
// their operands' Autograds, never to their results, so branches that nobody holds die at once.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <vector>

#include "minim/core/pool.h"
#include "minim/core/tensor.h"
#include "minim/ops/op.h"

namespace minim {

struct Node;
struct Replay;  // autograd/recorder.h

/// What may own a chain of others of its kind.
struct Buried {
  std::shared_ptr<Buried> next;
};
/// Frees what `last` owns, if it is the last owner: chains of any length without recursion, without
/// memory for it, and at any time, as in the destructor of a global after main().
void bury(std::shared_ptr<Buried> last) noexcept;

/// Functions in the order in which they were added.
template <class F>
class Hooks {
  using All = std::vector<std::shared_ptr<F>>;
  struct List : Buried {
    All all;
  };

 public:
  HookHandle add(F f) {
    if (!list_) list_ = std::make_shared<List>();
    list_->all.push_back(std::make_shared<F>(std::move(f)));
    return {[list = std::weak_ptr(list_), mine = std::weak_ptr(list_->all.back())] {
      if (auto alive = list.lock()) std::erase(alive->all, mine.lock());
    }};
  }
  bool empty() const { return !list_ || list_->all.empty(); }
  All all() const { return list_ ? list_->all : All(); }  ///< a copy: a hook may remove itself
  std::shared_ptr<Buried> take() noexcept { return std::move(list_); }

 private:
  std::shared_ptr<List> list_;
};
using GradHook = std::function<Tensor(const Tensor&)>;

struct Autograd {
  Autograd() = default;
  ~Autograd();
  bool requires_grad = false;
  bool frozen = false;         ///< set_requires_grad(false) is what was said last
  bool averaged = false;       ///< an average stands in for the values (optim/ema.h)
  std::atomic_flag busy;       ///< leaves only: a LeafLock has it
  std::shared_ptr<Node> node;  ///< null for leaves
  int output = 0;              ///< which of the node's outputs
  Tensor grad;                 ///< leaves only: the sum so far; under LeafLock
  /// The loss scale that the values carry, a gradient's or what was computed from one: 1 is none,
  /// NaN that scaled and other values were mixed.
  double carries = 1;
  uint64_t since = 0;     ///< leaves only: the backward() that `grad` began in; 0: set by hand
  std::string cast_by;    ///< leaves only: what converted a parameter to its dtype, for messages
  Hooks<GradHook> hooks;  ///< leaves only; other tensors' are the node's
  /// The op whose backward kernel made the values, or those they were computed from.
  const OpRow* gradient_of = nullptr;
};

/// Several threads may add to a leaf's gradient and read it: one at a time has this.
class LeafLock {
 public:
  explicit LeafLock(Autograd& leaf);
  ~LeafLock() { busy_.clear(std::memory_order_release); }
  LeafLock(const LeafLock&) = delete;
  LeafLock& operator=(const LeafLock&) = delete;

 private:
  std::atomic_flag& busy_;
};

/// The dotted path of the module that runs on this thread; nodes remember it.
class ModuleScope {
 public:
  using Path = std::shared_ptr<const std::string>;
  explicit ModuleScope(Path path) : outer_(std::exchange(current_, std::move(path))) {}
  explicit ModuleScope(const std::string& path)
      : ModuleScope(std::make_shared<const std::string>(path)) {}
  ~ModuleScope() { current_ = outer_; }
  ModuleScope(const ModuleScope&) = delete;
  ModuleScope& operator=(const ModuleScope&) = delete;
  static const Path& current() { return current_; }  ///< null outside modules

 private:
  [[gnu::visibility("default")]] static inline thread_local Path current_;
  Path outer_;
};

/// A tensor as backward will read it; null where it is not saved. Holds the storage but no history,
/// so that a node does not keep itself alive.
struct Saved {
  std::shared_ptr<Storage> storage;
  void* data = nullptr;
  uint64_t version = 0;
  std::shared_ptr<const std::string> name;
};

struct Node : Buried {
  const OpRow* row = nullptr;
  uint64_t sequence = 0;
  DType dtype = DType::f32;
  Attrs attrs;
  RngKey rng;
  struct Operand {
    Arg arg;  ///< shape and dtype; the data is `saved` when backward runs
    Saved saved;
    std::shared_ptr<Autograd> gradient_to;  ///< null where no gradient is wanted
  };
  struct Result {
    Arg arg;
    Saved saved;
    Tensor gradient;    ///< during backward: the sum so far, fp32 from the second addend on
    int uses = 0;       ///< during backward: how many operands it is, and gradients from elsewhere
    bool gaps = false;  ///< during backward: its parts (autograd/parts.h) are not all of it
  };
  pool::Vector<Operand> operands;
  pool::Vector<Result> results;
  bool released = false;  ///< backward ran without retain_graph
  bool part = false;      ///< during backward: its gradient is written into that of its operand
  double scale = 1;       ///< of a node that multiplies by the loss scale; 1 for any other
  double carried = 1;     ///< during backward: the loss scale that its gradient carries
  std::atomic<uint64_t> walker{0};  ///< the backward() that goes through it; 0 is none
  ModuleScope::Path module;
  std::shared_ptr<Replay> replay;        ///< of a checkpointed call: instead of a kernel
  std::map<int, Hooks<GradHook>> hooks;  ///< by output

  ~Node();
};

/// Whether calls are recorded on this thread.
class GradMode {
 public:
  static bool enabled() { return enabled_; }

 private:
  friend class GradScope;
  [[gnu::visibility("default")]] static inline thread_local bool enabled_ = true;
};

class GradScope {
 public:
  explicit GradScope(bool on) : outer_(GradMode::enabled_) { GradMode::enabled_ = on; }
  ~GradScope() { GradMode::enabled_ = outer_; }
  GradScope(const GradScope&) = delete;
  GradScope& operator=(const GradScope&) = delete;

 private:
  bool outer_;
};
/// `NoGrad guard;` -- nothing is recorded in this scope.
struct NoGrad : GradScope {
  NoGrad() : GradScope(false) {}
};

Autograd& autograd_of(const Tensor& x);  ///< made on first use

/// Records that `outputs` came from `operands` by args.
void record(const OpRow& row, const OpArgs& args, std::span<const Tensor> operands,
            std::span<const Tensor> outputs);

/// What is computed from a gradient says so too: that it has no derivative, should backward() reach
/// it (recorded calls alone), and which loss scale it carries.
void carry_marks(const OpRow& row, std::span<const Tensor> operands,
                 std::span<const Tensor> outputs);

/// The loss scale that a gradient, or what was computed from one, carries; see Autograd::carries.
inline double carried_scale(const Tensor& x) {
  return x.impl()->autograd ? x.impl()->autograd->carries : 1;
}
void set_carried_scale(const Tensor& x, double scale);
/// Before `values` are written into x, in place. @throws Error where they carry another loss scale.
void check_carried(const Tensor& x, const Tensor& values, const char* what);

/// The loss scale of the backward() that runs on this thread; 1 outside and without one.
double live_loss_scale();

/// The number of the backward() that runs on this thread, from 1; 0 outside.
uint64_t live_backward();

/// Everything `root` was made from, newest first.
std::vector<Node*> reachable(Node* root);

/// The calls that x was made from, in the order they ran, one a line: "%4 f16(2, 3) = matmul %1
/// %3".
std::string dump(const Tensor& x);
/// The same as Graphviz: `dot -Tsvg`. Boxes are calls, with the module they ran in; ellipses
/// leaves.
std::string dump_dot(const Tensor& x);

/// The gradient that was given for x: f64 only where x is. @throws Error unless it is of x's shape,
/// of a floating dtype that is computed in, and of one loss scale.
Tensor taken_as_gradient(const char* what, const Tensor& gradient, const Tensor& x);

/// What made a tensor, for messages: "parameter 'head.weight'", "the result of matmul", "a tensor".
std::string origin(const Tensor& x);

}  // namespace minim
