// Working memory of compiled code. It may be kept longer than any state lives, so it never comes from the host's
// allocator.
#pragma once

namespace lutra {

extern constinit thread_local bool own_memory_only;

// A scope in which this thread allocates Lutra's own memory.
class OwnMemory {
 public:
  OwnMemory() : saved_(own_memory_only) { own_memory_only = true; }
  ~OwnMemory() { own_memory_only = saved_; }
  OwnMemory(const OwnMemory&) = delete;

 private:
  const bool saved_;
};

}  // namespace lutra
