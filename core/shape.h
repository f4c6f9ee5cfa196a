// core/shape.h -- shapes and strides (both a Dims, in elements), broadcasting, and axis arithmetic.
#pragma once
#include <initializer_list>
#include <span>
#include <string>

#include "minim/core/dtype.h"

namespace minim {

inline constexpr int kMaxRank = 8;

/// Up to eight sizes, by value, so that it can be a kernel's argument.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<Index> v) : Dims(std::span(v.begin(), v.size())) {}
  explicit Dims(std::span<const Index> v) {
    if (v.size() > size_t(kMaxRank))
      fail("a tensor has at most ", kMaxRank, " dimensions, not ", v.size());
    for (Index x : v) push_back(x);
  }
  MINIM_HD int rank() const { return rank_; }
  MINIM_HD Index operator[](int i) const { return v_[i]; }
  MINIM_HD Index& operator[](int i) { return v_[i]; }
  const Index* begin() const { return v_; }
  const Index* end() const { return v_ + rank_; }
  void push_back(Index x) {
    if (rank_ == kMaxRank) fail("a tensor has at most ", kMaxRank, " dimensions");
    v_[rank_++] = x;
  }
  void insert(int at, Index x) {
    push_back(x);
    for (int i = rank_ - 1; i > at; --i) v_[i] = v_[i - 1];
    v_[at] = x;
  }
  void erase(int at) {
    for (int i = at; i + 1 < rank_; ++i) v_[i] = v_[i + 1];
    --rank_;
  }
  /// Their product. @throws Error naming them where it (a 0 taken as 1, so that strides fit too) is
  /// more than memory can hold.
  Index numel() const;
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.v_[i] != b.v_[i]) return false;
    return true;
  }

 private:
  Index v_[kMaxRank];
  int rank_ = 0;
};
using Shape = Dims;
using Strides = Dims;

/// "(2, 3)"
std::string to_string(const Dims& dims);
inline std::ostream& operator<<(std::ostream& out, const Dims& d) { return out << to_string(d); }

/// Row-major strides.
Strides contiguous_strides(const Shape& shape);

/// Dense strides under which the axes lie in memory in the order that they have in `like`;
/// row-major ones where that repeats elements or turns an axis round.
Strides dense_strides(const Shape& shape, const Strides& like);

/// Maps -rank..rank-1 to 0..rank-1. @throws Error naming `what`, the axis and the rank.
int normalize_axis(Index axis, int rank, const char* what);

/// The axis as a bit, for ops along one. A 0-dim tensor is one line of one element: its axes 0 and
/// -1 are there, and none of its axes. @throws Error as normalize_axis.
uint32_t axis_bit(Index axis, int rank, const char* what);

/// NumPy's rule: align at the last axis; sizes agree or one of them is 1.
/// @throws Error naming `what` and both shapes.
Shape broadcast(const Shape& a, const Shape& b, const char* what);

/// `strides` of `from`, as seen when it is broadcast to `to`: 0 along every stretched or added
/// axis.
Strides broadcast_strides(const Shape& from, const Strides& strides, const Shape& to);

}  // namespace minim
