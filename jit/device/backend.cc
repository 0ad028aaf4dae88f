// The registry of backends.
#include "jit/device/backend.h"

#include "ops/core/error.h"

namespace lutra {
namespace {

constinit const Backend* backends[kMaxDeviceTypes] = {};

}  // namespace

void register_backend(DeviceType type, const Backend* backend) {
  LUTRA_CHECK(size_t(type) < std::size(backends), "device type ", int(type));
  backends[size_t(type)] = backend;
}

const Backend& backend_of(DeviceType type) {
  const Backend* found = size_t(type) < std::size(backends) ? backends[size_t(type)] : nullptr;
  LUTRA_CHECK(found, "no backend for device type ", int(type));
  return *found;
}

std::shared_ptr<Code> Backend::load(const std::string& image) const {
  fail_internal("a device that gives no images is given one of ", image.size(), " bytes");
}

std::string Backend::target_key(Device device, const std::string& isa) const {
  const Machine m = machine(device);
  return str("numerics ", numerics::kVersion, "; ", to_string(device), " ", m.isa, ", code for ", isa, "; ",
             m.processors, " processors; caches ", m.cache_bytes[0], " ", m.cache_bytes[1], " ", m.cache_bytes[2],
             "; shared ", m.shared_bytes, "; ", m.threads, " threads, ", m.registers, " registers; rates ",
             m.memory_rate, " ", m.add_rate);
}

}  // namespace lutra
