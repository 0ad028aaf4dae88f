// Turns convolutions into calls of cuDNN. Descriptors and algorithms are found once for each problem and kept. The
// library's types and codes are declared here and follow its binary interface (version 9).
#include "ops/extern/cuda/cudnn.h"

#include <cstdio>
#include <map>
#include <mutex>
#include <vector>

#include "ops/cuda/library.h"

namespace lutra::cuda {
namespace {

using Status = int;
using Handle = struct cudnnContext*;
using Descriptor = void*;  // a tensor, a filter or a convolution

struct Performance {
  int algorithm;
  Status status;
  float time;
  size_t memory;
  int deterministic, math;
  int reserved[3];
};

enum { kFloat = 0, kDouble = 1, kHalf = 2, kBFloat16 = 9 };
enum { kNchw = 0, kNhwc = 1 };
enum { kDefaultMath = 0, kTensorMath = 1, kFmaMath = 3 };
enum { kCrossCorrelation = 1 };
constexpr size_t kMaxWorkspace = size_t(1) << 30;

// X(member, symbol, signature)
// clang-format off
#define LUTRA_CUDNN_FUNCTIONS(X)                                                                                      \
  X(create, "cudnnCreate", (Handle*))                                                                                 \
  X(set_stream, "cudnnSetStream", (Handle, StreamHandle))                                                             \
  X(tensor_create, "cudnnCreateTensorDescriptor", (Descriptor*))                                                      \
  X(tensor_set, "cudnnSetTensorNdDescriptor", (Descriptor, int, int, const int*, const int*))                         \
  X(filter_create, "cudnnCreateFilterDescriptor", (Descriptor*))                                                      \
  X(filter_set, "cudnnSetFilterNdDescriptor", (Descriptor, int, int, int, const int*))                                \
  X(conv_create, "cudnnCreateConvolutionDescriptor", (Descriptor*))                                                   \
  X(conv_set, "cudnnSetConvolutionNdDescriptor",                                                                      \
    (Descriptor, int, const int*, const int*, const int*, int, int))                                                  \
  X(conv_math, "cudnnSetConvolutionMathType", (Descriptor, int))                                                      \
  X(conv_groups, "cudnnSetConvolutionGroupCount", (Descriptor, int))                                                  \
  X(find_forward, "cudnnGetConvolutionForwardAlgorithm_v7",                                                           \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Performance*))                                \
  X(find_input, "cudnnGetConvolutionBackwardDataAlgorithm_v7",                                                        \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Performance*))                                \
  X(find_weight, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",                                                     \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, int*, Performance*))                                \
  X(bytes_forward, "cudnnGetConvolutionForwardWorkspaceSize",                                                         \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, size_t*))                                           \
  X(bytes_input, "cudnnGetConvolutionBackwardDataWorkspaceSize",                                                      \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, size_t*))                                           \
  X(bytes_weight, "cudnnGetConvolutionBackwardFilterWorkspaceSize",                                                   \
    (Handle, Descriptor, Descriptor, Descriptor, Descriptor, int, size_t*))                                           \
  X(forward, "cudnnConvolutionForward",                                                                               \
    (Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int, void*, size_t,           \
     const void*, Descriptor, void*))                                                                                 \
  X(input, "cudnnConvolutionBackwardData",                                                                            \
    (Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int, void*, size_t,           \
     const void*, Descriptor, void*))                                                                                 \
  X(weight, "cudnnConvolutionBackwardFilter",                                                                         \
    (Handle, const void*, Descriptor, const void*, Descriptor, const void*, Descriptor, int, void*, size_t,           \
     const void*, Descriptor, void*))
// clang-format on

struct Library {
#define X(member, symbol, signature) Status(*member) signature = nullptr;
  LUTRA_CUDNN_FUNCTIONS(X)
#undef X
  bool good = false;
};

Library open_cudnn() {
  Library lib;
  std::string why;
  const Symbols find{open_library({"libcudnn.so.9"}, why), why};
#define X(member, symbol, signature) lib.member = reinterpret_cast<decltype(lib.member)>(find(symbol));
  LUTRA_CUDNN_FUNCTIONS(X)
#undef X
  lib.good = why.empty();
  if (!lib.good) {
    std::fprintf(stderr, "lutra: cuDNN cannot be used: %s; convolutions run on simple kernels\n", why.c_str());
  }
  return lib;
}

const Library& library() {
  static const Library lib = open_cudnn();
  return lib;
}

void check_status(Status status, const char* what) {
  if (status != 0) fail_internal("cuDNN: ", what, " failed with status ", status);
}
#define DNN(call) check_status(library().call, #call)

struct Plan {
  Descriptor x = nullptr, y = nullptr, w = nullptr, convolution = nullptr;
  int algorithm = 0;
  size_t workspace_bytes = 0;
  bool found = false;
};

int data_type(DType t) {
  switch (t) {
    case DType::kFloat32: return kFloat;
    case DType::kFloat64: return kDouble;
    case DType::kFloat16: return kHalf;
    default: return kBFloat16;
  }
}

Descriptor tensor(const ExternView& v, bool channels_last) {
  Descriptor d = nullptr;
  int sizes[4], strides[4];
  for (int i = 0; i < 4; i++) sizes[i] = int(v.sizes[i]);
  // Strides of dims of size 1 mean nothing to us, but the library reads them.
  int stride = 1;
  for (int i : kCudnnOrder[channels_last]) strides[i] = stride, stride *= sizes[i];
  DNN(tensor_create(&d));
  DNN(tensor_set(d, data_type(v.dtype), 4, sizes, strides));
  return d;
}

Plan make_plan(Handle handle, const CudnnConvolution& c) {
  Plan plan;
  const Library& lib = library();
  const int type = data_type(c.x.dtype);
  plan.x = tensor(c.x, c.channels_last), plan.y = tensor(c.y, c.channels_last);
  int filter[4];
  for (int i = 0; i < 4; i++) filter[i] = int(c.w.sizes[i]);
  DNN(filter_create(&plan.w));
  DNN(filter_set(plan.w, type, c.channels_last ? kNhwc : kNchw, 4, filter));
  DNN(conv_create(&plan.convolution));
  DNN(conv_set(plan.convolution, 2, c.padding, c.stride, c.dilation, kCrossCorrelation,
               type == kDouble ? kDouble : kFloat));
  DNN(conv_groups(plan.convolution, c.groups));
  const int math = type == kHalf || type == kBFloat16 ? kTensorMath : c.tf32 ? kDefaultMath : kFmaMath;
  DNN(conv_math(plan.convolution, math));
  Performance all[12];
  int count = 0;
  const bool forward = c.pass == CudnnPass::kForward, input = c.pass == CudnnPass::kInput;
  const Status status = forward ? lib.find_forward(handle, plan.x, plan.w, plan.convolution, plan.y, 12, &count, all)
                        : input ? lib.find_input(handle, plan.w, plan.y, plan.convolution, plan.x, 12, &count, all)
                                : lib.find_weight(handle, plan.x, plan.y, plan.convolution, plan.w, 12, &count, all);
  for (int i = 0; status == 0 && i < count && !plan.found; i++) {
    const Performance& p = all[i];
    if (p.status != 0 || !p.deterministic) continue;
    if (math == kFmaMath && p.math != kFmaMath && p.math != kDefaultMath) continue;
    DNN(conv_math(plan.convolution, math == kFmaMath ? kFmaMath : p.math));
    size_t bytes = 0;
    const Status sized =
        forward ? lib.bytes_forward(handle, plan.x, plan.w, plan.convolution, plan.y, p.algorithm, &bytes)
        : input ? lib.bytes_input(handle, plan.w, plan.y, plan.convolution, plan.x, p.algorithm, &bytes)
                : lib.bytes_weight(handle, plan.x, plan.y, plan.convolution, plan.w, p.algorithm, &bytes);
    if (sized != 0 || bytes > kMaxWorkspace) continue;
    plan.algorithm = p.algorithm, plan.workspace_bytes = bytes, plan.found = true;
  }
  return plan;
}

std::vector<int64_t> key_of(const CudnnConvolution& c, int device) {
  std::vector<int64_t> key = {device, int(c.pass), int(c.x.dtype), c.channels_last, c.tf32, c.groups};
  for (const ExternView* v : {&c.x, &c.w, &c.y}) key.insert(key.end(), v->sizes, v->sizes + 4);
  for (int i = 0; i < 2; i++) key.insert(key.end(), {c.padding[i], c.stride[i], c.dilation[i]});
  return key;
}

std::mutex mutex;  // guards the library's handles and the plans

// Returns the plan of a convolution, and the handle with the call's stream set.
const Plan& plan_of(Launcher& l, const CudnnConvolution& c, Handle& handle) {
  static auto* handles = new std::map<int, Handle>;  // never destroyed: the driver may shut down first
  static std::map<std::vector<int64_t>, Plan> plans;
  Handle& kept = (*handles)[l.context().index];
  if (!kept) DNN(create(&kept));
  DNN(set_stream(kept, l.stream()));
  handle = kept;
  const std::vector<int64_t> key = key_of(c, l.context().index);
  auto at = plans.find(key);
  if (at == plans.end()) at = plans.emplace(key, make_plan(handle, c)).first;
  return at->second;
}

}  // namespace

bool cudnn_available() { return !emulated() && library().good; }

bool cudnn_finds(Launcher& l, const CudnnConvolution& c) {
  const std::lock_guard lock(mutex);
  Handle handle;
  return plan_of(l, c, handle).found;
}

void cudnn_convolve(Launcher& l, const CudnnConvolution& c) {
  if (preparing()) return;
  const std::lock_guard lock(mutex);
  Handle handle;
  const Plan& p = plan_of(l, c, handle);
  const double one_double = 1, zero_double = 0;
  const float one_float = 1, zero_float = 0;
  const bool wide = c.x.dtype == DType::kFloat64;
  const void* one = wide ? static_cast<const void*>(&one_double) : &one_float;
  const void* zero = wide ? static_cast<const void*>(&zero_double) : &zero_float;
  void* memory = p.workspace_bytes ? l.scratch_bytes(p.workspace_bytes) : nullptr;
  switch (c.pass) {
    case CudnnPass::kForward:
      DNN(forward(handle, one, p.x, c.x.data, p.w, c.w.data, p.convolution, p.algorithm, memory, p.workspace_bytes,
                  zero, p.y, c.y.data));
      break;
    case CudnnPass::kInput:
      DNN(input(handle, one, p.w, c.w.data, p.y, c.y.data, p.convolution, p.algorithm, memory, p.workspace_bytes, zero,
                p.x, c.x.data));
      break;
    case CudnnPass::kWeight:
      DNN(weight(handle, one, p.x, c.x.data, p.y, c.y.data, p.convolution, p.algorithm, memory, p.workspace_bytes, zero,
                 p.w, c.w.data));
      break;
  }
  l.launched();
}

}  // namespace lutra::cuda
