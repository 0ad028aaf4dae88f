// Memory behind tensors: reference counted bytes with a deleter, a version counter and a freed flag.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ops/core/device.h"
#include "ops/core/pooled.h"
#include "ops/core/ref.h"

namespace lutra {

// Invariants: version grows by one at each in-place write through any tensor of the storage; a freed storage (x:free())
// has data == nullptr and freed == true, and ops on its tensors raise; a fake storage has fake == true and only an
// identity: tensors alias exactly if they share it.
struct Storage : RefCounted, Pooled<Storage> {
  void* data = nullptr;
  size_t nbytes = 0;
  Device device;
  uint32_t version = 0;
  bool freed = false;
  bool fake = false;
  std::function<void(void*)> deleter;

  ~Storage();
  void free();  // releases the bytes now; idempotent
};

// 64-byte aligned CPU bytes, or a device's. Throws Error(kMemory) naming the size when there are none, Error(kUser)
// with the reason where there is no such device.
Ref<Storage> allocate(size_t nbytes, Device device);
// Bytes from one device's memory to another's, after the work that the devices were given before; on return the host
// may read what was copied to it and reuse what was copied from it.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);

// For one that makes storages of the CPU itself: its bytes count until it is freed.
void count_storage(const Storage& storage);

// What a kind of device other than the CPU brings; ops/cuda registers itself.
struct DeviceMemory {
  Ref<Storage> (*allocate)(size_t nbytes, Device device);
  void (*copy)(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);
  void (*check)(Device device);  // throws with the reason where there is no such device
};
// Throws Error(kUser) with the reason where there is no such device.
void check_device(Device device);
void set_device_memory(DeviceType type, const DeviceMemory* memory);

Ref<Storage> fake_storage(Device device);
// Bytes of memory and swap that this machine has.
size_t memory_bytes();
// Bytes of all live storages of this process on the CPU, and on other devices (Lua's collector is told about both).
int64_t allocated_bytes();
int64_t allocated_device_bytes();
// Bytes of memory of the smallest device beside the CPU that is in use; 0 where there is none.
int64_t device_memory_bytes();
void note_device_memory(int64_t bytes);  // a device's room notes its own
// Called before giving up on an allocation; returns whether it is worth another try (the VM collects garbage here).
void set_memory_pressure_hook(bool (*hook)(size_t nbytes));
// Calls the hook, if there is one: what devices' allocators do before they give up. Their locks must not be held.
bool relieve_memory_pressure(size_t nbytes);

}  // namespace lutra
