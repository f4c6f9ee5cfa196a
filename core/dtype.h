// core/dtype.h -- the element types, what is known of each, and the one place where a runtime dtype
// becomes a C++ type.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "minim/core/error.h"
#include "minim/core/float8.h"

namespace minim {

using Index = int64_t;

enum class DType : uint8_t { boolean, u8, i32, i64, f16, bf16, f32, f64, f8e4m3, f8e5m2 };
inline constexpr size_t kDTypes = 10;
inline constexpr std::array<DType, 4> kFloatDTypes{DType::f64, DType::f32, DType::f16, DType::bf16};

/// Order matters: a higher category decides the result of a mixed operation.
enum class Category : uint8_t { boolean, integral, floating };

struct DTypeInfo {
  const char* name;
  size_t size;  ///< bytes
  Category category;
  int digits;      ///< significand bits with the hidden one; 0 if not floating
  double max;      ///< largest finite value
  double tiniest;  ///< smallest positive value (subnormal); 1 if not floating
};

inline constexpr std::array<DTypeInfo, kDTypes> kDTypeInfo{{
    {"bool", 1, Category::boolean, 0, 1, 1},
    {"u8", 1, Category::integral, 0, 255, 1},
    {"i32", 4, Category::integral, 0, 2147483647.0, 1},
    {"i64", 8, Category::integral, 0, 9223372036854775807.0, 1},
    {"f16", 2, Category::floating, 11, 65504, 0x1p-24},
    {"bf16", 2, Category::floating, 8, 0x1.fep127, 0x1p-133},
    {"f32", 4, Category::floating, 24, std::numeric_limits<float>::max(), 0x1p-149},
    {"f64", 8, Category::floating, 53, std::numeric_limits<double>::max(), 0x1p-1074},
    {"f8e4m3", 1, Category::floating, 4, 448, 0x1p-9},
    {"f8e5m2", 1, Category::floating, 3, 57344, 0x1p-16},
}};

constexpr const DTypeInfo& info(DType d) { return kDTypeInfo[size_t(d)]; }
constexpr const char* name_of(DType d) { return info(d).name; }
constexpr size_t size_of(DType d) { return info(d).size; }
constexpr bool is_floating(DType d) { return info(d).category == Category::floating; }
/// Holds values, but no op computes on it: convert first.
constexpr bool is_storage_only(DType d) { return d == DType::f8e4m3 || d == DType::f8e5m2; }
constexpr bool is_half(DType d) { return d == DType::f16 || d == DType::bf16; }

/// @throws Error when `name` is no dtype.
inline DType dtype_named(std::string_view name) {
  for (size_t d = 0; d < kDTypes; ++d)
    if (name == name_of(DType(d))) return DType(d);
  fail("'", name, "' is not a dtype; known: bool u8 i32 i64 f16 bf16 f32 f64 f8e4m3 f8e5m2");
}

namespace detail {
template <class T>
struct Tag {
  using type = T;
};
}  // namespace detail

/// Calls f(detail::Tag<T>{}) with the C++ type of `d`.
template <class F>
constexpr decltype(auto) visit(DType d, F&& f) {
  using detail::Tag;
  switch (d) {
    case DType::boolean:
      return f(Tag<bool>{});
    case DType::u8:
      return f(Tag<uint8_t>{});
    case DType::i32:
      return f(Tag<int32_t>{});
    case DType::i64:
      return f(Tag<int64_t>{});
    case DType::f16:
      return f(Tag<f16>{});
    case DType::bf16:
      return f(Tag<bf16>{});
    case DType::f32:
      return f(Tag<float>{});
    case DType::f8e4m3:
      return f(Tag<f8e4m3>{});
    case DType::f8e5m2:
      return f(Tag<f8e5m2>{});
    case DType::f64:
      break;
  }
  return f(Tag<double>{});
}

/// The dtype whose elements are of type T: visit() turned round.
template <class T>
constexpr DType dtype_of() {
  for (size_t d = 0; d < kDTypes; ++d)
    if (visit(DType(d), []<class U>(detail::Tag<U>) { return std::is_same_v<U, T>; }))
      return DType(d);
  fail("no dtype has elements of this C++ type");
}

/// The type kernels compute in: f64 for f64, fp32 for every other floating dtype, i64 for integers
/// and bool.
enum class Compute : uint8_t { f32, f64, i64 };
constexpr Compute compute_in(DType d) {
  return d == DType::f64 ? Compute::f64 : is_floating(d) ? Compute::f32 : Compute::i64;
}

/// The dtype that stores a compute type as it is.
template <class A>
constexpr DType dtype_for() {
  return std::is_same_v<A, float>    ? DType::f32
         : std::is_same_v<A, double> ? DType::f64
                                     : DType::i64;
}

template <class T>
concept NarrowFloat = std::is_same_v<T, f16> || std::is_same_v<T, bf16> ||
    std::is_same_v<T, f8e4m3> || std::is_same_v<T, f8e5m2>;

namespace detail {
/// A double from which any rounding to 32 bits or fewer is the same as from v itself: v, or beyond
/// 2^53 rounded to odd (as round_to_odd of core/half.h).
MINIM_HD constexpr double to_odd_double(int64_t v) {
  const int64_t most = int64_t{1} << 53, low = v & 0x7ff;
  return double(v >= -most && v <= most ? v : (v - low) | (low != 0 ? 0x800 : 0));
}
}  // namespace detail

/// Converts one value as a cast does: integers to floats and floats to fewer bits are rounded once,
/// floats to integers truncate, to bool is != 0.
template <class To, class From>
MINIM_HD constexpr To convert_to(From v) {
  if constexpr (std::is_same_v<To, From>)
    return v;
  else if constexpr (std::is_same_v<To, bool>)
    return v != From(0);
  else if constexpr (NarrowFloat<To>) {
    if constexpr (std::is_integral_v<From>)
      return To(detail::to_odd_double(int64_t(v)));
    else if constexpr (std::is_same_v<From, double>)
      return To(v);
    else
      return To(float(v));
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>)
    return static_cast<To>(static_cast<int64_t>(v));
  else if constexpr (NarrowFloat<From>)
    return convert_to<To>(float(v));
  else
    return static_cast<To>(v);
}

}  // namespace minim
