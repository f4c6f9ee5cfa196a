// core/walk.h -- visits every element of some tensors of one (broadcast) shape as runs along one
// axis: axes that are dense in all of them are merged first, so contiguous tensors are one long
// run.
#pragma once
#include <array>

#include "minim/core/parallel.h"
#include "minim/core/shape.h"

namespace minim::detail {

template <size_t N>
struct Walk {
  std::array<Index, N> stride;  ///< along the run, per tensor; 0 where it is broadcast

  /// @param strides per tensor, already broadcast to `shape`.
  Walk(const Shape& shape, const std::array<const Strides*, N>& strides) : stride{} {
    sizes_.push_back(1);
    for (auto& s : steps_) s.push_back(1);
    for (int i = shape.rank(); i-- > 0;) {
      if (shape[i] == 1) continue;
      bool merges = sizes_.rank() > 0;
      int last = sizes_.rank() - 1;
      if (sizes_[last] == 1) {  // the first real axis replaces the unit one
        sizes_[last] = shape[i];
        for (size_t k = 0; k < N; ++k) steps_[k][last] = (*strides[k])[i];
        continue;
      }
      for (size_t k = 0; k < N; ++k) merges &= (*strides[k])[i] == steps_[k][last] * sizes_[last];
      if (merges) {
        sizes_[last] *= shape[i];
      } else {
        sizes_.push_back(shape[i]);
        for (size_t k = 0; k < N; ++k) steps_[k].push_back((*strides[k])[i]);
      }
    }
    for (size_t k = 0; k < N; ++k) stride[k] = steps_[k][0];
  }

  /// Calls f(offsets, n) for every run of at most kRun elements; offsets are in elements, per
  /// tensor. Threaded.
  template <class F>
  void run(F&& f) const {
    constexpr Index kRun = 4096;
    Index inner = sizes_[0], pieces = (inner + kRun - 1) / kRun, rows = 1;
    for (int d = 1; d < sizes_.rank(); ++d) rows *= sizes_[d];
    Index grain = std::max<Index>(1, 4 * kRun / std::max<Index>(1, std::min(inner, kRun)));
    parallel_for(rows * pieces, grain, [&](Index begin, Index end) {
      for (Index unit = begin; unit < end; ++unit) {
        Index row = unit / pieces, from = (unit % pieces) * kRun;
        std::array<Index, N> at;
        for (size_t k = 0; k < N; ++k) at[k] = from * steps_[k][0];
        for (int d = 1; d < sizes_.rank(); ++d) {
          Index i = row % sizes_[d];
          row /= sizes_[d];
          for (size_t k = 0; k < N; ++k) at[k] += i * steps_[k][d];
        }
        f(at, std::min(kRun, inner - from));
      }
    });
  }

 private:
  Dims sizes_;  ///< merged, innermost first
  std::array<Dims, N> steps_;
};

}  // namespace minim::detail
