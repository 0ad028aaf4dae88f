// The launches of one extern call: kernels by source, name and element types; temporary memory; faults.
#pragma once
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ops/core/launch_fault.h"
#include "ops/core/storage.h"
#include "ops/cuda/context.h"
#include "ops/extern/cuda/recording.h"
#include "ops/extern/extern.h"

namespace lutra::cuda {

// CUDA C++ text, which follows the prelude (prelude.cc). It lives as long as the process. Its address is its identity.
struct ExternSource {
  const char* name;
  const char* text;
  const char* before[2] = {};  // texts that it shares with other sources
};
extern const char kPrelude[];
extern const char kTensorCoresText[];  // tensor_cores.cc: tf32 and mma
extern const char kAttentionText[];    // attention_text.cc
extern const char kHalfCoresText[];    // tensor_cores.cc: mma of halves T0, loads of its operands

// The dtypes of T0, T1, ...
struct ElementTypes {
  DType of[4];
  int count = 0;
  ElementTypes(std::initializer_list<DType> types) {
    for (DType t : types) of[count++] = t;
  }
};

// One kernel of a source. T0, T1, ... are defined as the C++ types of dtypes, VARIANT as a number.
struct KernelId {
  const ExternSource& source;
  const char* name;
  ElementTypes types;
  int variant = 0;
  int shared_bytes = 0;  // dynamic shared memory
};
// Returns the whole text to compile.
std::string kernel_text(const KernelId& kernel);

struct ExternGrid {
  int64_t x = 1, y = 1, z = 1;
};

// Tests replace the GPU by an emulator. Views are then in the host's memory.
struct Emulator {
  virtual ~Emulator() = default;
  virtual void launch(const std::string& text, const char* name, const ExternGrid& grid, unsigned block,
                      void** params) = 0;
  LaunchFault fault;
};
void set_emulator(Emulator* emulator);
bool emulated();

// Registers the error of a fault, once for each op (a string that is the key). The fault's `arg` is the dim.
int64_t fault_site(std::string_view op, std::function<Error(const LaunchFault&)> describe);
// "gather: index 12 is out of bounds for dimension 1 with size 10"
int64_t index_fault_site(std::string_view op);
// Returns the error for an emulator's fault.
Error describe_fault(const LaunchFault& fault);

class Launcher {
 public:
  explicit Launcher(const ExternCall& call);
  ~Launcher();
  Launcher(const Launcher&) = delete;

  // Enqueues a launch. It does nothing if the grid is empty.
  template <class... A>
  void run(const KernelId& kernel, const ExternGrid& grid, unsigned block, const A&... args) {
    void* params[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
    launch(kernel, grid, block, params);
  }
  // Runs a thread for each of n items.
  template <class... A>
  void each(const KernelId& kernel, int64_t n, const A&... args) {
    run(kernel, {(n + 255) / 256}, 256, args...);
  }

  // Returns 512-byte aligned memory, which is valid until the call returns.
  void* scratch_bytes(size_t n);
  template <class T>
  T* scratch(int64_t n) {
    return static_cast<T*>(scratch_bytes(size_t(n > 0 ? n : 1) * sizeof(T)));
  }
  void zero(void* p, size_t nbytes);
  void copy(void* to, const void* from, size_t nbytes);
  LaunchFault* fault();
  // Tells the context that a library has enqueued work.
  void launched();
  Context& context() { return *context_; }
  StreamHandle stream() const { return stream_; }

  const ExternCall& call;

 private:
  void launch(const KernelId& kernel, const ExternGrid& grid, unsigned block, void** params);

  Context* context_ = nullptr;
  StreamHandle stream_ = nullptr;
  std::vector<Ref<Storage>> held_;
};

// copy.cc: copies elements to another view of the same shape, converted as on the CPU. Both may be broadcast from
// smaller ones.
void copy_view(Launcher& l, const ExternView& from, const ExternView& to);
// Returns a contiguous temporary copy of v in the dtype.
ExternView contiguous_copy(Launcher& l, const ExternView& v, DType dtype);

}  // namespace lutra::cuda
