// core/convert.h -- dtype lives only here: kernels load a run of elements into their compute type
// and store it back, rounding once. Everything between is float, double or int64.
#pragma once
#include "minim/core/dtype.h"

namespace minim {

/// load_run and store_run where there is something to do.
template <class A>
const A* load_converted(const void* p, DType dtype, Index stride, Index n, A* buffer);
template <class A>
void store_converted(void* p, DType dtype, Index stride, Index n, const A* values);

/// Elements p[0], p[stride], ... p[(n-1)*stride] as A (float, double or int64_t). Returns `p`
/// itself where it already is a dense run of A, else `buffer` (room for n) or what is always there:
/// a null p gives NaN (floats) or a loud integer, so that reading what was not saved shows.
template <class A>
const A* load_run(const void* p, DType dtype, Index stride, Index n, A* buffer) {
  if (p && stride == 1 && dtype == dtype_for<A>()) return static_cast<const A*>(p);
  return load_converted(p, dtype, stride, n, buffer);
}

/// Stores n values at p[0], p[stride], ...; the current Probe counts what a 16-bit store loses.
template <class A>
void store_run(void* p, DType dtype, Index stride, Index n, const A* values) {
  if (p == values && dtype == dtype_for<A>()) return;  // computed in place
  store_converted(p, dtype, stride, n, values);
}

inline std::byte* advance(void* p, DType dtype, Index elements) {
  return static_cast<std::byte*>(p) + elements * Index(size_of(dtype));
}
inline const std::byte* advance(const void* p, DType dtype, Index elements) {
  return static_cast<const std::byte*>(p) + elements * Index(size_of(dtype));
}

}  // namespace minim
