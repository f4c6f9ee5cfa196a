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

/// True when this build has the device's kernels and this machine has the device.
bool available(DeviceKind kind);
/// @param name "cpu" or "cuda". @throws Error when it is unknown or not available, saying why.
Device device_named(const std::string& name);

}  // namespace minim
