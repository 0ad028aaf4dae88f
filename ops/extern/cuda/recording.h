// What who records and compiles launches tells this folder: where temporary memory comes from, and that calls are only
// to be prepared.
#pragma once
#include <vector>

#include "ops/core/storage.h"
#include "ops/extern/extern.h"

namespace lutra::cuda {

// Is told of each block that a call takes, before the call puts a launch that uses it into the stream.
class ScratchWatch {
 public:
  virtual void taken(size_t block) = 0;

 protected:
  ~ScratchWatch() = default;
};

// Temporary memory of launches that are recorded: a recording keeps its pool, so that replays find their memory. Calls
// of one recording use the same blocks in turn, small ones several in turn, so that they need not wait for each other.
class ScratchPool {
 public:
  void begin_call();
  void* take(size_t nbytes, Device device);
  bool empty() const { return blocks_.empty(); }

  ScratchWatch* watch = nullptr;

 private:
  struct Block {
    Ref<Storage> storage;
    bool taken;
    uint64_t used;  // when, counted in takes
  };
  uint64_t takes_ = 0;
  std::vector<Block> blocks_;
};
// While one lives, calls of this thread take their temporary memory from the pool.
class ScratchScope {
 public:
  explicit ScratchScope(ScratchPool* pool);
  ~ScratchScope();
  ScratchScope(const ScratchScope&) = delete;

 private:
  ScratchPool* before_;
};

// While one lives, calls of this thread only compile and load their kernels and find their libraries' algorithms:
// nothing is put into the stream. Views need sizes, strides and a pointer that is not null where a tensor is present.
class PrepareScope {
 public:
  PrepareScope();
  ~PrepareScope();
  PrepareScope(const PrepareScope&) = delete;
};
bool preparing();
// Prepares what a call like this one will need; what goes wrong is left for the call itself to say.
void prepare(const ExternCall& call);

}  // namespace lutra::cuda
