// autograd/recorder.h -- the tape's part of activation recompute (Chen et al., "Training deep nets
// with sublinear memory cost", 2016). A function's forward leaves one node, which keeps its inputs
// alone; in backward it runs again, and its calls get the sequence numbers that they had. So the
// gradients are summed in the order in which they would have been without. Casts of leaves save
// nothing and may be shared with other calls: they are always recorded, and found again.
#pragma once
#include "minim/autograd/node.h"

namespace minim {

struct Replay {
  std::function<std::vector<Tensor>()> run;
  std::vector<uint64_t> sequences;  ///< of the calls in it
  std::vector<size_t> results;      ///< output k of the node is results[k] of run()
  MemoryKind kind = MemoryScope::current();
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
  static uint64_t next_sequence();
  bool forward() const { return bool(node_); }

  /// @param keep the storage too, as of a parameter: it must not change until backward.
  void capture(const Tensor& x, bool keep = false);
  void pass(const OpRow& row, std::span<const Tensor> operands, std::span<const Tensor> outputs);
  /// In a replay, gives a leaf's cast the history that it had.
  bool reuse_cast(const Tensor& leaf, const Tensor& copy);
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
  size_t at_ = 0;
  std::vector<std::shared_ptr<Autograd>> casts_;  ///< that a replay has not come to yet
};

}  // namespace minim
