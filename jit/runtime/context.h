// What the files that implement Executable share: the working memory of a run, and launches about to be made.
#pragma once
#include <memory>
#include <vector>

#include "jit/codegen/cuda/code.h"
#include "jit/runtime/arena.h"
#include "jit/runtime/executable.h"
#include "jit/runtime/order.h"
#include "jit/runtime/working_memory.h"
#include "ops/core/error.h"
#include "ops/core/small_vec.h"
#include "ops/cuda/driver.h"

namespace lutra {

constexpr int kMaxChunks = 128, kMaxBeside = 64;  // of a kernel; kernels side by side

struct Executable::Context {
  std::vector<HostValue> values;
  std::vector<InputView> inputs;  // of run
  std::vector<void*> outputs;     // of run_into
  std::vector<void*> buffers;
  std::vector<Ref<Storage>> storages;  // of output buffers, while a run is under way
  bool holds_storages = false;
  std::unique_ptr<uint64_t[]> memory;
  uint64_t* blocks = nullptr;  // into memory, 64-byte aligned
  Ref<Storage> arena;          // where a run has no working memory; a GPU's for one run
  WorkingMemory working;       // on a GPU, while a run is under way that needs any
  ArenaLayout layout;
  char* arena_base = nullptr;
  std::vector<Storage*> donors;  // of run, by buffer; empty where there is none

  Storage* donor(int32_t buffer) const { return donors.empty() ? nullptr : donors[size_t(buffer)]; }
  std::vector<Tensor> moved;     // to a GPU: the CPU's inputs of no dimensions
  LaunchOrder* order = nullptr;  // of a run that is being recorded
};

// A kernel that is about to run: its block and how its loop is cut.
struct Executable::Part {
  const Step* step;
  BlockHead* head;
  int64_t extent, work;
  int chunks, first;  // first: among the chunks of the kernels beside it
  int64_t align() const { return extent / chunks >= 1024 ? 64 : 1; }
};

// The operands of a library's call, which the call points to.
struct Executable::CallOperands {
  SmallVec<ExternView, 4> in, out;
  SmallVec<int64_t, 16> ints;
  SmallVec<double, 4> scalars;
  std::vector<std::string_view> strings;
};

// A launch for a GPU. Several steps' blocks are copied to `several` (KernelSource::several_entry).
struct Executable::GpuLaunch {
  cuda::FunctionHandle function = nullptr;
  cuda::Grid grid;
  uint64_t* param = nullptr;
  size_t words = 0;  // of param, that mean something
  uint64_t several[512];
};

// The bytes of n elements; an absurd size is out of memory, not an overflow.
size_t storage_bytes(int64_t n, size_t size);
const cuda::LaunchCode& code_of(const CachedKernel& kernel);
Error fault_error(const std::vector<Fault>& faults, const Fault& launch, const LaunchFault& fault, int64_t size);

}  // namespace lutra
