// Working memory of code, which may be kept longer than any state: never the host's.
#pragma once

namespace lutra {

extern constinit thread_local bool own_memory_only;

// What this thread allocates in a scope is Lutra's own memory.
class OwnMemory {
 public:
  OwnMemory() : saved_(own_memory_only) { own_memory_only = true; }
  ~OwnMemory() { own_memory_only = saved_; }
  OwnMemory(const OwnMemory&) = delete;

 private:
  const bool saved_;
};

}  // namespace lutra
