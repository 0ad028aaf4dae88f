// Turns products into calls of cublasLtMatmul. The algorithm is the first of the library's heuristics, or the n-th if
// requested. It is found once for each problem and kept. The library's types and codes are declared here and follow
// its binary interface.
#include "ops/extern/cuda/cublaslt.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "ops/cuda/library.h"
#include "ops/extern/cuda/kernels.h"

namespace lutra::cuda {
namespace {

using Status = int;
using Handle = struct cublasLtContext*;
using Descriptor = void*;  // an operation, a layout or a preference

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  Status state;
  float waves;
  int reserved[4];
};

enum { kCompute32F = 68, kCompute32FFastTf32 = 77, kCompute64F = 70 };
enum { kR32F = 0, kR64F = 1, kR16F = 2, kR16BF = 14 };
enum { kTransposeA = 3, kTransposeB = 4 };   // of an operation
enum { kBatchCount = 5, kBatchStride = 6 };  // of a layout
enum { kWorkspaceBytes = 1, kReductionSchemes = 3, kAlignmentA = 5, kAlignmentB, kAlignmentC, kAlignmentD };
constexpr uint32_t kReductionsInCompute = 1 | 2;  // don't round partial results to a half type
constexpr size_t kMaxWorkspace = size_t(32) << 20;

// X(member, symbol, signature)
#define LUTRA_CUBLASLT_FUNCTIONS(X)                                                                               \
  X(create, "cublasLtCreate", (Handle*))                                                                          \
  X(desc_create, "cublasLtMatmulDescCreate", (Descriptor*, int, int))                                             \
  X(desc_set, "cublasLtMatmulDescSetAttribute", (Descriptor, int, const void*, size_t))                           \
  X(layout_create, "cublasLtMatrixLayoutCreate", (Descriptor*, int, uint64_t, uint64_t, int64_t))                 \
  X(layout_set, "cublasLtMatrixLayoutSetAttribute", (Descriptor, int, const void*, size_t))                       \
  X(preference_create, "cublasLtMatmulPreferenceCreate", (Descriptor*))                                           \
  X(preference_set, "cublasLtMatmulPreferenceSetAttribute", (Descriptor, int, const void*, size_t))               \
  X(preference_destroy, "cublasLtMatmulPreferenceDestroy", (Descriptor))                                          \
  X(heuristic, "cublasLtMatmulAlgoGetHeuristic",                                                                  \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, Descriptor, Descriptor, int, Heuristic*, int*))      \
  X(matmul, "cublasLtMatmul",                                                                                     \
    (Handle, Descriptor, const void*, const void*, Descriptor, const void*, Descriptor, const void*, const void*, \
     Descriptor, void*, Descriptor, const Algorithm*, void*, size_t, StreamHandle))

struct Library {
#define X(member, symbol, signature) Status(*member) signature = nullptr;
  LUTRA_CUBLASLT_FUNCTIONS(X)
#undef X
  bool good = false;
};

Library open_cublaslt() {
  Library lib;
  std::string why;
  const Symbols find{open_library({"libcublasLt.so.13", "libcublasLt.so.12"}, why), why};
#define X(member, symbol, signature) lib.member = reinterpret_cast<decltype(lib.member)>(find(symbol));
  LUTRA_CUBLASLT_FUNCTIONS(X)
#undef X
  lib.good = why.empty();
  if (!lib.good) {
    std::fprintf(stderr, "lutra: cuBLASLt cannot be used: %s; matrix products run on simple kernels\n", why.c_str());
  }
  return lib;
}

const Library& library() {
  static const Library lib = open_cublaslt();
  return lib;
}

void check_status(Status status, const char* what) {
  if (status == 0) return;
  if (status == 3) throw Error(ErrorKind::kMemory, str("matmul: cuBLASLt is out of memory (", what, ")"));
  fail_internal("cuBLASLt: ", what, " failed with status ", status);
}
#define LT(call) check_status(library().call, #call)

using Key = std::array<int64_t, 16>;
struct KeyHash {
  size_t operator()(const Key& k) const {
    uint64_t h = 0;
    for (int64_t v : k) h = (h ^ uint64_t(v)) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
    return size_t(h);
  }
};
struct Plan {
  Descriptor operation = nullptr, a = nullptr, b = nullptr, d = nullptr;
  Algorithm algorithm;
  size_t workspace_bytes = 0;
  bool found = false;
};

std::mutex mutex;

// Returns the handle of a GPU, which is never destroyed.
Handle handle_of(Launcher& l) {
  static auto* handles = new std::unordered_map<int, Handle>;  // never destroyed: the driver may shut down first
  Handle& handle = (*handles)[l.context().index];
  if (!handle) LT(create(&handle));
  return handle;
}

int data_type(DType t) {
  switch (t) {
    case DType::kFloat32: return kR32F;
    case DType::kFloat64: return kR64F;
    case DType::kFloat16: return kR16F;
    default: return kR16BF;
  }
}

Descriptor layout(int type, int64_t rows, int64_t cols, int64_t ld, int64_t batch, int64_t stride) {
  Descriptor d = nullptr;
  LT(layout_create(&d, type, uint64_t(rows), uint64_t(cols), ld));
  if (batch > 1) {
    const auto count = int32_t(batch);
    LT(layout_set(d, kBatchCount, &count, sizeof count));
    LT(layout_set(d, kBatchStride, &stride, sizeof stride));
  }
  return d;
}

uint32_t alignment(const void* p) {
  const auto at = reinterpret_cast<uintptr_t>(p) | 16;
  return uint32_t(at & -at);
}

Plan make_plan(Handle handle, const LtProduct& p) {
  Plan plan;
  const int type = data_type(p.dtype);
  const bool wide = p.dtype == DType::kFloat64;
  LT(desc_create(&plan.operation,
                 wide     ? kCompute64F
                 : p.tf32 ? kCompute32FFastTf32
                          : kCompute32F,
                 wide ? kR64F : kR32F));
  const int32_t ta = p.transpose_a, tb = p.transpose_b;
  LT(desc_set(plan.operation, kTransposeA, &ta, sizeof ta));
  LT(desc_set(plan.operation, kTransposeB, &tb, sizeof tb));
  plan.a = layout(type, ta ? p.depth : p.rows, ta ? p.rows : p.depth, p.lda, p.batch, p.stride_a);
  plan.b = layout(type, tb ? p.cols : p.depth, tb ? p.depth : p.cols, p.ldb, p.batch, p.stride_b);
  plan.d = layout(data_type(p.result), p.rows, p.cols, p.ldd, p.batch, p.stride_d);
  Descriptor preference = nullptr;
  LT(preference_create(&preference));
  LT(preference_set(preference, kWorkspaceBytes, &kMaxWorkspace, sizeof kMaxWorkspace));
  LT(preference_set(preference, kReductionSchemes, &kReductionsInCompute, sizeof kReductionsInCompute));
  const void* pointers[] = {p.a, p.b, p.d, p.d};
  for (int i = 0; i < 4; i++) {
    const uint32_t bytes = alignment(pointers[i]);
    LT(preference_set(preference, kAlignmentA + i, &bytes, sizeof bytes));
  }
  Heuristic ranked[kLtWays] = {};
  int count = 0;
  const Status status = library().heuristic(handle, plan.operation, plan.a, plan.b, plan.d, plan.d, preference,
                                            p.way + 1, ranked, &count);
  const Heuristic& best = ranked[std::clamp(count - 1, 0, p.way)];
  plan.found = status == 0 && count > 0 && best.state == 0;
  plan.algorithm = best.algorithm, plan.workspace_bytes = best.workspace_bytes;
  LT(preference_destroy(preference));
  return plan;
}

}  // namespace

bool cublaslt_available() { return !emulated() && library().good; }

bool cublaslt_multiply(Launcher& l, const LtProduct& p) {
  static std::unordered_map<Key, Plan, KeyHash> plans;
  const std::lock_guard lock(mutex);
  const Handle handle = handle_of(l);
  const int64_t flags = int64_t(p.way) << 48 | int64_t(p.dtype) << 32 | int64_t(p.result) << 16 |
                        int64_t(p.accumulate) << 3 | int64_t(p.tf32) << 2 | int64_t(p.transpose_a) << 1 |
                        int64_t(p.transpose_b);
  const int64_t where = int64_t(l.context().index) << 32 | alignment(p.a) << 16 | alignment(p.b) << 8 | alignment(p.d);
  const Key key = {flags, where, p.rows,  p.cols,     p.depth,    p.lda,
                   p.ldb, p.ldd, p.batch, p.stride_a, p.stride_b, p.stride_d};
  auto at = plans.find(key);
  if (at == plans.end()) at = plans.emplace(key, make_plan(handle, p)).first;
  const Plan& plan = at->second;
  if (!plan.found) return false;
  if (preparing()) return true;
  const double one = 1, kept = p.accumulate;
  const float one_float = 1, kept_float = p.accumulate;
  const bool wide = p.dtype == DType::kFloat64;
  const void* alpha = wide ? static_cast<const void*>(&one) : &one_float;
  const void* beta = wide ? static_cast<const void*>(&kept) : &kept_float;
  void* workspace = plan.workspace_bytes ? l.scratch_bytes(plan.workspace_bytes) : nullptr;
  LT(matmul(handle, plan.operation, alpha, p.a, plan.a, p.b, plan.b, beta, p.d, plan.d, p.d, plan.d, &plan.algorithm,
            workspace, plan.workspace_bytes, l.stream()));
  l.launched();
  return true;
}

}  // namespace lutra::cuda
