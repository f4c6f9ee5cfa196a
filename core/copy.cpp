// Copies between arguments of any dtype and strides.
#include <algorithm>
#include <cstring>

#include "minim/core/loops.h"
#include "minim/core/probe.h"

namespace minim {
namespace {

template <class A>
void copy_as(const Arg& from, const Arg& to) {
  detail::Walk<2> walk(to.shape, {{&to.strides, &from.strides}});
  const Index to_stride = walk.stride[0], from_stride = walk.stride[1];
  const bool dense = to_stride == 1 && from_stride == 1;
  walk.run([&](const std::array<Index, 2>& at, Index n) {
    if (dense && from.dtype == to.dtype &&
        !Probe::current()) {  // which counts what is stored, one by one (and quiets NaNs)
      std::memmove(advance(to.data, to.dtype, at[0]), advance(from.data, from.dtype, at[1]),
                   size_t(n) * size_of(to.dtype));
      return;
    }
    A buffer[kBlock];
    for (Index i = 0; i < n; i += kBlock) {
      Index m = std::min(kBlock, n - i);
      const void* source =
          advance(static_cast<const void*>(from.data), from.dtype, at[1] + i * from_stride);
      void* target = advance(to.data, to.dtype, at[0] + i * to_stride);
      const bool direct = to.dtype == dtype_for<A>() && to_stride == 1;
      const A* v =
          load_run(source, from.dtype, from_stride, m, direct ? static_cast<A*>(target) : buffer);
      store_run(target, to.dtype, to_stride, m, v);
    }
  });
}

}  // namespace

void copy(const Arg& from, const Arg& to) {
  if (!(from.shape == to.shape)) fail("copy from shape ", from.shape, " to ", to.shape);
  bool exact_in_float = is_floating(from.dtype) && is_floating(to.dtype) &&
                        from.dtype != DType::f64 && to.dtype != DType::f64;
  if (!is_floating(from.dtype)) return copy_as<int64_t>(from, to);
  exact_in_float ? copy_as<float>(from, to) : copy_as<double>(from, to);
}

void fill_zero(const Arg& to) {
  std::memset(to.data, 0, size_t(to.shape.numel()) * size_of(to.dtype));
}

}  // namespace minim
