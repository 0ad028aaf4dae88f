// Memory behind tensors: reference counted bytes with a deleter, a version counter and a freed flag.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ops/core/device.h"
#include "ops/core/pooled.h"
#include "ops/core/ref.h"
#include "ops/core/watch.h"

namespace lutra {

// Invariants: `version` grows by one at each in-place write through any tensor of the storage. A freed storage
// (x:free()) has data == nullptr and freed == true, and ops on its tensors raise. A fake storage has fake == true and
// no bytes: it is only an identity, and tensors alias exactly if they share it.
struct Storage : RefCounted, Pooled<Storage> {
  void* data = nullptr;
  size_t nbytes = 0;
  Device device;
  uint32_t version = 0;
  bool freed = false;
  bool fake = false;
  Watched watched;
  std::function<void(void*)> deleter;

  ~Storage();
  void free();  // releases the bytes now; idempotent
};

// Allocates 64-byte aligned bytes of the CPU, or bytes of a device. Throws Error(kMemory) with the size if there is no
// memory, Error(kUser) with the reason if there is no such device.
Ref<Storage> allocate(size_t nbytes, Device device);
// Copies bytes from one device's memory to another's, after all work that the devices were given before. When it
// returns, the host may read what was copied to it and reuse what was copied from it.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);

// Counts the bytes of a CPU storage that the caller made itself, until it is freed.
void count_storage(const Storage& storage);

// The functions of a device type other than the CPU. ops/cuda registers its own.
struct DeviceMemory {
  Ref<Storage> (*allocate)(size_t nbytes, Device device);
  void (*copy)(void* to, Device to_device, const void* from, Device from_device, size_t nbytes);
  void (*check)(Device device);  // throws with the reason if there is no such device
};
// Throws Error(kUser) with the reason if there is no such device.
void check_device(Device device);
void set_device_memory(DeviceType type, const DeviceMemory* memory);

Ref<Storage> fake_storage(Device device);
// Returns the bytes of this machine's memory and swap.
size_t memory_bytes();
// Return the bytes of all live storages of this process, on the CPU and on other devices. Lua's collector is told both.
int64_t allocated_bytes();
int64_t allocated_device_bytes();
// Returns the memory, in bytes, of the smallest device in use other than the CPU; 0 if there is none.
int64_t device_memory_bytes();
void note_device_memory(int64_t bytes);  // a device reports its own memory
// Sets the hook that is called before an allocation fails. It returns whether to try again (the VM collects garbage
// here).
void set_memory_pressure_hook(bool (*hook)(size_t nbytes));
// Calls the hook, if there is one. Allocators of devices call it before they fail. Their locks must not be held.
bool relieve_memory_pressure(size_t nbytes);

}  // namespace lutra
