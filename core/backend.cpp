#include "minim/core/backend.h"

#include <cstdlib>
#include <utility>

#include "minim/core/cuda/device.h"
#include "minim/core/error.h"
#include "minim/core/tensor.h"

namespace minim {
namespace {

Device named_by_environment() {
  const char* name = std::getenv("MINIM_DEVICE");
  return name && *name ? device_named(name) : kHost;
}
thread_local Device current = named_by_environment();

bool on_host(const Arg& x) { return x.device == kHost; }

bool is_dense(const Arg& x) { return x.strides == contiguous_strides(x.shape); }

/// The bytes of a dense argument, from one memory to another.
void transfer(const Arg& from, const Arg& to) {
  const size_t bytes = size_t(from.shape.numel()) * size_of(from.dtype);
  if (!on_host(from) && !on_host(to)) {
    const Tensor between = empty(from.shape, from.dtype, kHost);
    backend(from.device).download(between.data(), from.data, bytes);
    return backend(to.device).upload(to.data, between.data(), bytes);
  }
  on_host(from) ? backend(to.device).upload(to.data, from.data, bytes)
                : backend(from.device).download(to.data, from.data, bytes);
}

/// Where they are not dense and of one dtype: converted on the host.
void copy_across(const Arg& from, const Arg& to) {
  auto dense = [](const Arg& like, DType dtype, Device device) {
    return empty(like.shape, dtype, device);
  };
  auto arg = [](const Tensor& x) {
    return Arg{x.data(), x.dtype(), x.shape(), x.strides(), true, x.device()};
  };
  if (!is_dense(from)) {
    const Tensor packed = dense(from, from.dtype, from.device);
    backend(from.device).copy(from, arg(packed));
    return copy_across(arg(packed), to);
  }
  if (is_dense(to) && from.dtype == to.dtype) return transfer(from, to);
  const Tensor moved = dense(from, from.dtype, to.device);
  transfer(from, arg(moved));
  backend(to.device).copy(arg(moved), to);
}

}  // namespace

const Backend& backend(Device device) {
  return device.kind == DeviceKind::cpu ? cpu::kBackend : cuda::backend();
}

Device default_device() { return current; }
DeviceScope::DeviceScope(Device device) : outer_(std::exchange(current, device)) {}
DeviceScope::~DeviceScope() { current = outer_; }

void copy(const Arg& from, const Arg& to) {
  if (!(from.shape == to.shape)) fail("copy from shape ", from.shape, " to ", to.shape);
  from.device == to.device ? backend(to.device).copy(from, to) : copy_across(from, to);
}
void sum_to(const Arg& from, const Arg& to, Index by) { backend(to.device).sum_to(from, to, by); }
void fill_zero(const Arg& to) { backend(to.device).fill(to, 0); }

bool available(DeviceKind kind) { return kind == DeviceKind::cpu || cuda::unavailable().empty(); }

Device device_named(const std::string& name) {
  for (DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda}) {
    if (name != name_of(kind)) continue;
    if (!available(kind))
      fail("device '", name, "' is not available: ", cuda::unavailable(), "; use --device cpu");
    return {kind, 0};
  }
  fail("unknown device '", name, "'; known: cpu, cuda");
}

}  // namespace minim
