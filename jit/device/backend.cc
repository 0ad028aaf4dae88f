// Kinds of devices in; what they registered out.
#include "jit/device/backend.h"

#include "ops/core/error.h"

namespace lutra {
namespace {

constinit const Backend* backends[kMostDeviceTypes] = {};

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

}  // namespace lutra
