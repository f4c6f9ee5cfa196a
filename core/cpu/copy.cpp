// Copies between arguments of any dtype and strides, and fills.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "minim/core/cpu/verbs.h"
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

void cpu::copy(const Arg& from, const Arg& to) {
  bool exact_in_float = is_floating(from.dtype) && is_floating(to.dtype) &&
                        from.dtype != DType::f64 && to.dtype != DType::f64;
  if (!is_floating(from.dtype)) return copy_as<int64_t>(from, to);
  exact_in_float ? copy_as<float>(from, to) : copy_as<double>(from, to);
}

void cpu::fill(const Arg& to, const detail::Number& value) {
  const bool dense = to.strides == contiguous_strides(to.shape);
  if (dense && value.real() == 0 && !std::signbit(value.real()))
    return void(std::memset(to.data, 0, size_t(to.shape.numel()) * size_of(to.dtype)));
  visit(to.dtype, [&]<class T>(detail::Tag<T>) {
    const T v = value.converted<T>();
    detail::Walk<1> walk(to.shape, {{&to.strides}});
    walk.run([&](const std::array<Index, 1>& at, Index n) {
      T* p = static_cast<T*>(to.data) + at[0];
      for (Index i = 0; i < n; ++i) p[i * walk.stride[0]] = v;
    });
  });
}

}  // namespace minim
