// Converts device names to Devices and back.
#include "ops/core/device.h"

#include "ops/core/closest.h"
#include "ops/core/current_device.h"
#include "ops/core/error.h"

namespace lutra {

constinit thread_local DeviceMode* installed_device_mode = nullptr;

namespace {

DeviceMode& device_mode() {
  thread_local DeviceMode own;
  return installed_device_mode ? *installed_device_mode : own;
}

// Parses one or two digits without leading zeros. Returns -1 for anything else.
int index_of(std::string_view digits) {
  if (digits.empty() || digits.size() > 2 || (digits.size() == 2 && digits[0] == '0')) return -1;
  int index = 0;
  for (char c : digits) {
    if (c < '0' || c > '9') return -1;
    index = index * 10 + (c - '0');
  }
  return index;
}
}  // namespace

int current_cuda_index() {
  DeviceMode& mode = device_mode();
  mode.cuda_index_reads++;
  return mode.cuda_index;
}
uint64_t current_cuda_index_reads() { return device_mode().cuda_index_reads; }
void set_current_cuda_index(int index) { device_mode().cuda_index = int8_t(index); }

Device default_device() {
  DeviceMode& mode = device_mode();
  mode.made_on_reads++;
  return mode.made_on;
}
uint64_t default_device_reads() { return device_mode().made_on_reads; }
void set_default_device(Device device) { device_mode().made_on = device; }

std::string to_string(Device d) {
  if (d.type == DeviceType::kCPU) return "cpu";
  return d.type == DeviceType::kCUDA ? str("cuda:", int(d.index)) : str("device", int(d.type), ":", int(d.index));
}

Device parse_device(std::string_view text) {
  if (text == "cpu" || text == "cpu:0") return {};
  if (text == "cuda") return {DeviceType::kCUDA, int8_t(current_cuda_index())};
  const int index = text.substr(0, 5) == "cuda:" ? index_of(text.substr(5)) : -1;
  if (index < 0) fail("device '", text, "' is unknown", KnownNames{"cpu", "cuda", "cuda:N"}.expected(text));
  return {DeviceType::kCUDA, int8_t(index)};
}

}  // namespace lutra
