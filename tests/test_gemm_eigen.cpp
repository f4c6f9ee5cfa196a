// Eigen as an independent judge of matrix products: another author's blocking, packing and order.
#include <doctest/doctest.h>

#include <Eigen/Dense>
#include <random>

#include "minim/core/gemm.h"

using namespace minim;

namespace {

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

template <class T>
RowMajor<T> random_matrix(Index rows, Index cols, unsigned seed) {
  std::minstd_rand random(seed);
  return RowMajor<T>::NullaryExpr(rows, cols,
                                  [&] { return T(double(random() % 4001) / 1000.0 - 2.0); });
}

template <class T>
RowMajor<T> product(const RowMajor<T>& a, const RowMajor<T>& b) {
  RowMajor<T> c = RowMajor<T>::Zero(a.rows(), b.cols());
  DType dtype = dtype_for<T>();
  gemm({.m = a.rows(),
        .n = b.cols(),
        .k = a.cols(),
        .a = {a.data(), dtype, a.cols(), 1},
        .b = {b.data(), dtype, b.cols(), 1},
        .c = c.data(),
        .c_dtype = dtype,
        .c_row_stride = b.cols()});
  return c;
}

/// Two orders of one sum differ by at most 2 k eps times the sum of magnitudes.
template <class T>
void compare() {
  const double eps = dtype_for<T>() == DType::f64 ? 0x1p-53 : 0x1p-24;
  unsigned seed = 1;
  for (auto [m, n, k] : {std::array<Index, 3>{1, 1, 1},
                         {1, 300, 70},
                         {5, 3, 2},
                         {14, 32, 16},
                         {67, 129, 257},
                         {200, 33, 600}}) {
    RowMajor<T> a = random_matrix<T>(m, k, seed++), b = random_matrix<T>(k, n, seed++);
    RowMajor<double> bound =
        2 * double(k) * eps * (a.cwiseAbs() * b.cwiseAbs()).template cast<double>();
    RowMajor<double> error = (product(a, b) - a * b).cwiseAbs().template cast<double>();
    CHECK_MESSAGE((error.array() <= bound.array()).all(), name_of(dtype_for<T>()), " ", m, " x ", k,
                  " x ", n, ": off by ", error.maxCoeff());
  }
}

}  // namespace

TEST_CASE("gemm: agrees with Eigen to the rounding of the sums in f64 and f32") {
  compare<double>();
  compare<float>();
}
