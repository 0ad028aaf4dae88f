// The interface for code that records and compiles launches. It supplies temporary memory, and can ask that calls are
// only prepared.
#pragma once
#include <vector>

#include "ops/core/storage.h"
#include "ops/extern/extern.h"

namespace lutra::cuda {

// Is told which memory a call takes, before the call enqueues a launch that uses it.
class ScratchWatch {
 public:
  virtual void taken(size_t block) = 0;
  virtual void taken_lent(const void* p, size_t nbytes) = 0;

 protected:
  ~ScratchWatch() = default;
};

// Temporary memory of library calls, which use the same blocks in turn (all work is on one stream). Calls rotate among
// several small blocks, so that recorded calls need not wait for each other. A larger block replaces one that is too
// small, unless somebody holds it.
class ScratchPool {
 public:
  void begin_call();
  void* take(size_t nbytes, Device device);
  bool empty() const { return blocks_.empty(); }
  // Lets the next call use these bytes for large requests.
  void lend(void* p, size_t nbytes) { lent_ = static_cast<char*>(p), lent_bytes_ = nbytes, lent_taken_ = 0; }
  // Adds all blocks taken from now on to the list too. A recording holds its memory, so that replays find it.
  void hold_in(std::vector<Ref<Storage>>* list) { holder_ = list; }

  ScratchWatch* watch = nullptr;

 private:
  struct Block {
    Ref<Storage> storage;
    bool taken = false;
    uint64_t used = 0;  // the time of the last use, counted in takes
  };
  void* take_lent(size_t nbytes);

  uint64_t takes_ = 0;
  std::vector<Block> blocks_;
  std::vector<Ref<Storage>>* holder_ = nullptr;
  char* lent_ = nullptr;
  size_t lent_bytes_ = 0, lent_taken_ = 0;
};
// A scope in which calls of this thread take their temporary memory from the pool.
class ScratchScope {
 public:
  explicit ScratchScope(ScratchPool* pool);
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;

 private:
  ScratchPool* before_;
};

// A scope in which calls of this thread only compile and load their kernels and find their libraries' algorithms.
// Nothing is enqueued. Views need sizes, strides and, if the tensor is present, a non-null pointer.
class PrepareScope {
 public:
  PrepareScope();
  ~PrepareScope();
  PrepareScope(const PrepareScope&) = delete;
};
bool preparing();
// Prepares what a call like this one will need. Errors are ignored: the call itself will report them.
void prepare(const ExternCall& call);

}  // namespace lutra::cuda
