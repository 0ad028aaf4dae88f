// The device of a tensor: "cpu", "cuda:0".
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lutra {

enum class DeviceType : uint8_t { kCPU, kCUDA };
// The number of device types that may be registered, including those without an enumerator.
inline constexpr size_t kMaxDeviceTypes = 4;

struct Device {
  DeviceType type = DeviceType::kCPU;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

std::string to_string(Device d);
// The index of this thread's current GPU, which "cuda" without an index means.
int current_cuda_index();
void set_current_cuda_index(int index);
// Throws Error for anything but "cpu", "cuda" and "cuda:N".
Device parse_device(std::string_view text);

}  // namespace lutra
