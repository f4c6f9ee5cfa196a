// core/device.h -- where a tensor lives. DeviceKind indexes every per-device table; there is no `if
// (cuda)` elsewhere.
#pragma once
#include <cstdint>
#include <string>

namespace minim {

enum class DeviceKind : uint8_t { cpu, cuda };
inline constexpr int kDeviceKinds = 2;
constexpr const char* name_of(DeviceKind k) { return k == DeviceKind::cpu ? "cpu" : "cuda"; }

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int8_t index = 0;
  friend constexpr bool operator==(Device, Device) = default;
};
inline constexpr Device kHost{};

/// Where tensors of this thread are made when nobody says so: the CPU, or what the variable
/// MINIM_DEVICE names, or the innermost DeviceScope. @throws Error where MINIM_DEVICE names none.
Device default_device();
class DeviceScope {
 public:
  explicit DeviceScope(Device device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  Device outer_;
};

/// True when this build has the device's kernels and this machine has the device.
bool available(DeviceKind kind);
/// @param name "cpu" or "cuda". @throws Error when it is unknown or not available, saying why.
Device device_named(const std::string& name);

}  // namespace minim
