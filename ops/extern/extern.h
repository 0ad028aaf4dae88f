// Kernels that libraries do better, behind one interface for all devices. The implementation and its partition are a
// pure function of (op, dtypes, sizes, strides, attributes, isa, library version, tuning table): eager and compiled
// code choose alike, at any number of threads.
#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "ops/core/tensor.h"
#include "ops/defs/op.h"

namespace lutra {

inline constexpr int kExternDims = int(kMostDims);
[[noreturn]] void fail_dims(const char* op, size_t dims);  // more than that
// What an absent int? attribute reads as.
inline constexpr int64_t kNoInt = INT64_MIN;

struct ExternView {
  void* data = nullptr;  // first element; null for an absent optional tensor
  DType dtype = DType::kFloat32;
  int32_t dim = 0;
  int64_t sizes[kExternDims] = {}, strides[kExternDims] = {};  // the first dim count; strides in elements
  int64_t numel() const {
    int64_t n = 1;
    for (int32_t d = 0; d < dim; d++) n *= sizes[d];
    return n;
  }
};

// The instruction sets that kernels of ours exist for, each with those before it; a library chooses by itself.
enum class ExternIsa : uint8_t { kBase, kAvx2, kAvx512, kAmx };

// One call. Tensor arguments are `in`, in the order of the schema, lists spread; results are `out`, never overlapping
// with in, but that the result of an op with an in-place form may be the first of in (the same elements). ints: int,
// bool and int[] attributes in that order, lists spread, an absent int? as kNoInt; scalars: Scalar and float
// attributes; strings: string attributes, an absent str? as an empty one. Dtypes are not passed.
struct ExternCall {
  OpId op = OpId::kCount;
  std::span<const ExternView> in, out;
  std::span<const int64_t> ints;
  std::span<const double> scalars;
  std::span<const std::string_view> strings;
  ParallelFor parallel = nullptr;
  int threads = 1;  // that parallel has: no result depends on it
  ExternIsa isa = ExternIsa::kBase;
  Device device;           // of all operands but absent ones
  void* stream = nullptr;  // where a GPU's candidate puts its work
  int way = 0;             // of those that the candidate has
};

// A candidate: a row of a device's table (cpu/table.cc), best first.
struct ExternKernel {
  OpId op;
  const char* name;
  bool (*supports)(DType dtype);          // of the first tensor; the answer never changes within a process
  bool (*takes)(const ExternCall& call);  // looks at no data; null: takes every call of a dtype it supports
  void (*run)(const ExternCall& call);    // may throw Error
  int ways = 1;                           // how many ways it has of doing a call, 0 being its own choice
  bool stands_in = false;                 // serves calls that no other candidate takes
  bool once = false;                      // a call is made once and in one way: it runs a host's code
};

// How a call may be run: which row of its device's table, in which of its ways, cut as for so many threads (0: the
// call's). On a CPU no bit depends on it.
struct ExternOption {
  int row = -1, way = 0, threads = 0;
  bool operator==(const ExternOption&) const = default;
};

// The candidates of a kind of device, registered by its table. by_threads: they cut a call into pieces as its number of
// threads says.
void set_extern_table(DeviceType type, std::span<const ExternKernel> table, bool by_threads = false);
// As it was registered.
bool extern_goes_by_threads(DeviceType type);
// Whether some candidate of op supports dtype. The first question may open a library, and says on standard error why it
// cannot.
bool extern_supports(OpId op, DType dtype, DeviceType device);
// The name of the candidate that run_extern picks, null where none takes the call. "host" on a GPU: it waits for the
// device, so it cannot be part of a recording.
const char* extern_candidate(const ExternCall& call);
// Runs the first candidate that takes the call, whose name is the answer; an error where none does.
const char* run_extern(const ExternCall& call);

// What can be chosen among, first what run_extern picks. Empty where no candidate takes the call.
std::vector<ExternOption> extern_options(const ExternCall& call);
// The name of an option's candidate, null where that does not take the call.
const char* extern_candidate(const ExternCall& call, const ExternOption& option);
void run_extern(const ExternCall& call, const ExternOption& option);
// The row of a candidate of op, -1 where there is none of that name.
int extern_row(OpId op, DeviceType device, std::string_view candidate);

}  // namespace lutra
