// The harness of the table on the rows' CUDA kernels, and their results beside the CPU's. In a
// build without CUDA this file is left out; on a machine without a device its cases say so and
// pass.
#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cmath>
#include <memory>

#include "minim/core/allocator.h"
#include "minim/core/cuda/device.h"
#include "minim/testing/op_trial.h"

using namespace minim;
using namespace minim::test;

namespace {

void must(cudaError_t status) {
  if (status != cudaSuccess) fail("CUDA: ", cudaGetErrorString(status));
}

/// An argument's bytes on the device while a kernel runs.
class Staged {
 public:
  Staged(Arg& arg, bool written) : arg_(arg), host_(arg.data), written_(written) {
    if (!host_) return;
    Index extent = 1;
    for (int i = 0; i < arg.shape.rank(); ++i)
      extent = arg.shape[i] == 0 ? 0 : extent + (arg.shape[i] - 1) * arg.strides[i];
    bytes_ = size_t(std::max<Index>(1, extent)) * size_of(arg.dtype);
    must(cudaMalloc(&arg.data, bytes_));
    must(cudaMemcpy(arg.data, host_, bytes_, cudaMemcpyHostToDevice));
  }
  ~Staged() {
    if (!host_) return;
    cudaFree(arg_.data);
    arg_.data = host_;
  }
  Staged(const Staged&) = delete;
  Staged& operator=(const Staged&) = delete;
  void fetch() const {
    if (host_ && written_) must(cudaMemcpy(host_, arg_.data, bytes_, cudaMemcpyDeviceToHost));
  }

 private:
  Arg& arg_;
  void* host_;
  bool written_;
  size_t bytes_ = 0;
};

void run_staged(Kernel kernel, OpArgs& args, bool backward) {
  std::vector<std::unique_ptr<Staged>> staged;
  auto stage = [&](Arg* list, int n, bool written) {
    for (int k = 0; k < n; ++k) staged.push_back(std::make_unique<Staged>(list[k], written));
  };
  stage(args.in, args.n_in, false);
  stage(args.out, args.n_out, !backward);
  if (backward) stage(args.grad_out, args.n_out, false);
  if (backward) stage(args.grad_in, args.n_in, true);
  kernel(args);
  must(cudaDeviceSynchronize());
  for (const auto& s : staged) s->fetch();
}

/// Kernels are plain functions, so the row they stand for is kept here.
thread_local const OpRow* staged_row = nullptr;

/// The row, with its CUDA kernels in the place of the CPU's.
OpRow on_device(const OpRow& row) {
  staged_row = &row;
  OpRow copy = row;
  copy.forward[0] = [](OpArgs& args) { run_staged(staged_row->forward[1], args, false); };
  if (row.backward[0])
    copy.backward[0] = [](OpArgs& args) { run_staged(staged_row->backward[1], args, true); };
  return copy;
}

bool no_device() {
  const std::string why = cuda::unavailable();
  if (!why.empty()) MESSAGE("not run: ", why);
  return !why.empty();
}

void expect_none(const std::string& what, const Findings& findings) {
  INFO(what);
  for (const std::string& finding : findings) FAIL_CHECK(finding);
}

/// Both are within the row's bound of the exact result, and rounded once.
void compare(const Trial& trial, const Tensor& device, const Tensor& host, Findings& findings) {
  if (!host.defined()) return;
  const std::vector<double> a = device.to_vector(), b = host.to_vector();
  for (size_t i = 0; i < b.size(); ++i) {
    const DTypeInfo& t = info(host.dtype());
    const double step = t.digits ? std::ldexp(2.0, -t.digits) : 0;  // an ulp of 1
    const double allowed = (trial.row.error * 0x1p-22 + 2 * step) * (1 + std::fabs(b[i]));
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (!same && !(std::fabs(a[i] - b[i]) <= allowed))
      findings.push_back(trial.name() + " in " + name_of(host.dtype()) + ": element " +
                         std::to_string(i) + " is " + std::to_string(a[i]) + ", on the CPU " +
                         std::to_string(b[i]));
  }
}

Findings beside_cpu(const OpRow& row, const OpRow& device) {
  Findings findings;
  for (const Trial& trial : trials(row))
    for (DType d : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      const std::vector<Tensor> xs = trial.operands(d, row.differentiable);
      const std::vector<Tensor> ys = trial.operands(d, row.differentiable);
      const Outcome a = forward_backward(trial, device, xs, xs);
      const Outcome b = forward_backward(trial, row, ys, ys);
      for (size_t k = 0; k < b.out.size(); ++k) compare(trial, a.out[k], b.out[k], findings);
      for (size_t k = 0; k < b.grads.size(); ++k) compare(trial, a.grads[k], b.grads[k], findings);
    }
  return findings;
}

}  // namespace

TEST_CASE("cuda: pointwise and rowwise rows have kernels, forward and backward") {
  int with_kernels = 0;
  for (const OpRow* row : all_ops()) {
    if (!row->forward[1]) continue;
    ++with_kernels;
    INFO(row->name);
    CHECK((row->backward[1] != nullptr) == row->differentiable);
  }
  CHECK(with_kernels >= 30);
  CHECK(bool(Op::gelu.forward[1]));
  CHECK(bool(Op::softmax.forward[1]));
  CHECK_FALSE(bool(Op::matmul.forward[1]));
  CHECK_FALSE(bool(Op::reshape.backward[1]));
}

TEST_CASE("cuda: a missing device says why, and tensors are refused on a present one") {
  const std::string why = cuda::unavailable();
  CHECK(available(DeviceKind::cuda) == why.empty());
  if (why.empty())
    CHECK(device_named("cuda") == Device{DeviceKind::cuda, 0});
  else
    CHECK_THROWS_WITH_AS(device_named("cuda"),
                         ("device 'cuda' is not available: " + why + "; use --device cpu").c_str(),
                         Error);
  CHECK_THROWS_AS(empty({2}, DType::f32, {DeviceKind::cuda, 0}), Error);
}

TEST_CASE("cuda: every row passes the harness on the device and agrees with the CPU") {
  if (no_device()) return;
  for (const OpRow* row : all_ops()) {
    if (!row->forward[1]) continue;
    const OpRow device = on_device(*row);
    expect_none(row->name, check_gradients(device));
    expect_none(row->name, check_dtypes(device));
    expect_none(row->name, check_layouts(device));
    expect_none(row->name, check_saves(device));
    expect_none(row->name, beside_cpu(*row, device));
  }
}
