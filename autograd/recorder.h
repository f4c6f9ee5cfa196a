// autograd/recorder.h -- the tape's part of activation recompute (Chen et al., "Training deep nets
// with sublinear memory cost", 2016). A function's forward leaves one node, which keeps its inputs
// alone; in backward it runs again, and its calls get the sequence numbers that they had. So the
// gradients are summed in the order in which they would have been without. Casts of leaves save
// nothing and may be shared with other calls: they are always recorded, and found again.
#pragma once
#include "minim/autograd/node.h"

namespace minim {

struct Replay : Buried {
  /// An operand that wants no gradient, of a call in it. Most are made in there, and gone by then.
  struct Constant {
    std::weak_ptr<Storage> storage;
    uint64_t version;
    Shape shape;
    DType dtype;
  };
  std::function<std::vector<Tensor>()> run;
  std::vector<uint64_t> sequences;  ///< of the calls in it
  std::vector<size_t> results;      ///< output k of the node is results[k] of run()
  std::vector<HookHandle> hooks;    ///< on tensors from outside, in the order of their calls
  std::vector<Constant> constants;
  MemoryKind kind = MemoryScope::current();
  /// @throws Error where one was changed in place since.
  void check_constants() const;
};

class Recorder {
 public:
  /// Forward: what is called in this scope is not recorded, only counted; operands from outside
  /// become operands of `node`.
  explicit Recorder(std::shared_ptr<Node> node);
  /// Backward: what is called in this scope is recorded, as it would have been.
  explicit Recorder(const Node& node);
  ~Recorder() { current_ = outer_; }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  static Recorder* current() { return current_; }
  /// Forward: notes which tensors that want no gradient a call reads.
  void watch(std::span<const Tensor> operands);
  /// The innermost replay on this thread; null where nothing is done a second time.
  static Recorder* replaying();
  static uint64_t next_sequence();
  bool forward() const { return bool(node_); }

  /// @param keep the storage too, as of a parameter: it must not change until backward.
  void capture(const Tensor& x, bool keep = false);
  void pass(const OpRow& row, std::span<const Tensor> operands, std::span<const Tensor> outputs);
  /// In a replay, gives a leaf's cast the history that it had.
  bool reuse_cast(const Tensor& leaf, const Tensor& copy);
  /// A hook on a tensor from outside is added by the first call alone; the replay gives its handle.
  static HookHandle hook_once(const Autograd& on, const std::function<HookHandle()>& add);
  /// Forward: `op` changed x in place.
  void wrote(const Tensor& x, const char* op);
  /// @throws Error where one of those is from outside: the replay would change it again.
  void check_written(std::span<const Tensor> outputs) const;
  bool owns(const Tensor& x) const { return node_ && x.impl()->autograd->node == node_; }
  /// @throws Error when the replay had fewer calls than the forward; more are seen at once.
  void finish() const;
  [[noreturn]] static void differ();

 private:
  uint64_t take();
  [[gnu::visibility("default")]] static inline thread_local Recorder* current_ = nullptr;
  Recorder* outer_ = current_;
  std::shared_ptr<Node> node_;  ///< null in a replay
  Replay& replay_;
  size_t at_ = 0, hook_at_ = 0;
  std::vector<std::shared_ptr<Autograd>> casts_;  ///< that a replay has not come to yet
  struct Written {
    std::weak_ptr<Storage> storage;
    const char* op;
  };
  std::vector<Written> written_;
};

}  // namespace minim
