// One interface for all devices to kernels that libraries do better. The implementation and its partition are a pure
// function of (op, dtypes, sizes, strides, attributes, isa, library version, tuning table). So eager and compiled code
// choose alike, at any number of threads.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "ops/core/tensor.h"
#include "ops/defs/op.h"

namespace lutra {

inline constexpr int kExternDims = int(kMaxDims);
[[noreturn]] void fail_dims(const char* op, size_t dims);  // for tensors of more dimensions
// The value of an absent int? attribute.
inline constexpr int64_t kNoInt = INT64_MIN;

struct ExternView {
  void* data = nullptr;  // first element; null for an absent optional tensor
  DType dtype = DType::kFloat32;
  int32_t dim = 0;
  int64_t sizes[kExternDims] = {}, strides[kExternDims] = {};  // the first `dim` entries count; strides in elements
  int64_t numel() const {
    int64_t n = 1;
    for (int32_t d = 0; d < dim; d++) n *= sizes[d];
    return n;
  }
};

// The instruction sets that our own kernels exist for. Each includes those before it. A library chooses by itself.
enum class ExternIsa : uint8_t { kBase, kAvx2, kAvx512, kAmx };

// One call. `in`: tensor arguments in the order of the schema, lists spread. `out`: results. They never overlap with
// `in`, except that the result of an op with an in-place form may be the first of `in` (the same elements). ints: int,
// bool and int[] attributes in that order, lists spread, an absent int? as kNoInt. scalars: Scalar and float
// attributes. strings: string attributes, an absent str? as an empty one. Dtypes are not passed.
struct ExternCall {
  OpId op = OpId::kCount;
  std::span<const ExternView> in, out;
  std::span<const int64_t> ints;
  std::span<const double> scalars;
  std::span<const std::string_view> strings;
  ParallelFor parallel = nullptr;
  int threads = 1;  // of parallel; no result depends on it
  ExternIsa isa = ExternIsa::kBase;
  Device device;           // of all operands except absent ones
  void* stream = nullptr;  // the stream for a GPU candidate's work
  int way = 0;             // which of the candidate's ways
};

// A candidate: one row of a device's table (cpu/table.cc), which lists the best first.
struct ExternKernel {
  OpId op;
  const char* name;
  bool (*supports)(DType dtype);          // of the first tensor; the answer never changes within a process
  bool (*takes)(const ExternCall& call);  // reads no data; null: takes every call of a supported dtype
  void (*run)(const ExternCall& call);    // may throw Error
  int ways = 1;                           // the number of ways to do a call; 0 is the candidate's own choice
  bool stands_in = false;                 // serves calls that no other candidate takes
  bool once = false;                      // runs a host's code, so a call is made only once and in one way
};

// How to run a call: the row of its device's table, the candidate's way, and the number of threads to cut it for (0:
// the call's). On a CPU no bit depends on it.
struct ExternOption {
  int row = -1, way = 0, threads = 0;
  bool operator==(const ExternOption&) const = default;
};

// Registers the candidates of a device type. by_threads: they cut a call into pieces by its number of threads.
void set_extern_table(DeviceType type, std::span<const ExternKernel> table, bool by_threads = false);
// Returns the by_threads that was registered.
bool extern_goes_by_threads(DeviceType type);
// Returns whether some candidate of op supports dtype. The first call may open a library. If it cannot, it reports why
// on standard error.
bool extern_supports(OpId op, DType dtype, DeviceType device);
// Returns the name of the candidate that run_extern picks, or null if none takes the call. On a GPU, "host" waits for
// the device, so it cannot be part of a recording.
const char* extern_candidate(const ExternCall& call);
// Runs the first candidate that takes the call and returns its name. Raises an error if none does.
const char* run_extern(const ExternCall& call);

// Returns the options for a call. The first is run_extern's choice. Returns none if no candidate takes the call.
std::vector<ExternOption> extern_options(const ExternCall& call);
// Returns the name of an option's candidate, or null if that does not take the call.
const char* extern_candidate(const ExternCall& call, const ExternOption& option);
void run_extern(const ExternCall& call, const ExternOption& option);
// Returns the row of a candidate of op, or -1 if there is none of that name.
int extern_row(OpId op, DeviceType device, std::string_view candidate);

}  // namespace lutra
