// tests/gemm_matrix.h -- matrices of any dtype and layout, for the tests of products.
#pragma once
#include <cstddef>
#include <random>
#include <vector>

#include "minim/core/convert.h"
#include "minim/core/gemm.h"

namespace minim {

enum class Layout { row_major, col_major, scattered };

/// A matrix of any dtype and layout with padding, filled with numbers around 1 of either sign.
struct Matrix {
  DType dtype;
  int64_t rows, cols, row_stride, col_stride;
  std::vector<std::byte> bytes;

  Matrix(DType d, int64_t r, int64_t c, Layout layout, unsigned seed) : dtype(d), rows(r), cols(c) {
    row_stride = layout == Layout::row_major ? c + 3 : layout == Layout::col_major ? 1 : 2 * c + 1;
    col_stride = layout == Layout::row_major ? 1 : layout == Layout::col_major ? r + 5 : 2;
    size_t n = size_t(r * row_stride + c * col_stride + 8);
    std::vector<double> values(n);
    std::minstd_rand random(seed);
    for (double& v : values) v = double(random() % 4001) / 1000.0 - 2.0;
    bytes.resize(n * size_of(d));
    store_run(bytes.data(), d, 1, Index(n), values.data());
  }
  double operator()(int64_t i, int64_t j) const {
    double x;
    return *load_run(advance(bytes.data(), dtype, i * row_stride + j * col_stride), dtype, 1, 1,
                     &x);
  }
  void set(int64_t i, int64_t j, double x) {
    store_run(advance(bytes.data(), dtype, i * row_stride + j * col_stride), dtype, 1, 1, &x);
  }
  MatrixRef ref() const { return {bytes.data(), dtype, row_stride, col_stride}; }
};

inline GemmArgs product(const Matrix& a, const Matrix& b, Matrix& c) {
  return {.m = a.rows,
          .n = b.cols,
          .k = a.cols,
          .a = a.ref(),
          .b = b.ref(),
          .c = c.bytes.data(),
          .c_dtype = c.dtype,
          .c_row_stride = c.row_stride};
}

}  // namespace minim
