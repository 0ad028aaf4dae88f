// What who records and compiles launches tells this folder: where temporary memory comes from, and that calls are only
// to be prepared.
#pragma once
#include <vector>

#include "ops/core/storage.h"
#include "ops/extern/extern.h"

namespace lutra::cuda {

// Is told of what a call takes, before the call puts a launch that uses it into the stream.
class ScratchWatch {
 public:
  virtual void taken(size_t block) = 0;
  virtual void taken_lent(const void* p, size_t nbytes) = 0;

 protected:
  ~ScratchWatch() = default;
};

// Temporary memory of libraries' calls, which use the same blocks in turn (all work is on one stream), small ones
// several in turn, so that calls that are recorded need not wait for each other. A block that is too small gives way to
// a larger one, unless somebody holds it.
class ScratchPool {
 public:
  void begin_call();
  void* take(size_t nbytes, Device device);
  bool empty() const { return blocks_.empty(); }
  // The next call may take these bytes for what is large.
  void lend(void* p, size_t nbytes) { lent_ = static_cast<char*>(p), lent_bytes_ = nbytes, lent_taken_ = 0; }
  // What is taken from now on is added to the list too: a recording holds its memory, so that replays find it.
  void hold_in(std::vector<Ref<Storage>>* list) { holder_ = list; }

  ScratchWatch* watch = nullptr;

 private:
  struct Block {
    Ref<Storage> storage;
    bool taken = false;
    uint64_t used = 0;  // when, counted in takes
  };
  void* take_lent(size_t nbytes);

  uint64_t takes_ = 0;
  std::vector<Block> blocks_;
  std::vector<Ref<Storage>>* holder_ = nullptr;
  char* lent_ = nullptr;
  size_t lent_bytes_ = 0, lent_taken_ = 0;
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
