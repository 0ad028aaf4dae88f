// Runs any extern call of a GPU by the CPU's candidate on copies of the views' memory, and copies the results back.
//
// Invariants:
// 1. A view's memory is copied as one range, including gaps, and the whole range is copied back. Bytes between its
//    elements keep their values, because the copies wait for the GPU and nothing else runs meanwhile.
// 2. A result that is the first operand (an in-place form) shares its copy.
// 3. Half types without a CPU candidate are float32 in the copies, and are rounded on the way back.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "ops/core/half.h"
#include "ops/core/storage.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

// Returns the bytes from a view's first element to its last.
size_t extent(const ExternView& v) {
  int64_t last = 0;
  for (int32_t d = 0; d < v.dim; d++) {
    if (v.sizes[d] == 0) return 0;
    last += (v.sizes[d] - 1) * v.strides[d];
  }
  return size_t(last + 1) * size_of(v.dtype);
}

struct HostCopy {
  ExternView view;
  DType dtype;  // the dtype on the GPU
  size_t elements = 0;
  std::unique_ptr<std::byte[]> bytes;
  std::unique_ptr<float[]> floats;

  HostCopy(const ExternView& v, Device device, bool read, bool widens) : view(v), dtype(v.dtype) {
    if (!v.data) return;
    const size_t n = extent(v);
    elements = n / size_of(dtype);
    bytes.reset(new std::byte[n + 1]);
    view.data = bytes.get();
    if (read && n) copy_bytes(bytes.get(), Device(), v.data, device, n);
    if (!widens || !is_half(dtype)) return;
    floats.reset(new float[elements + 1]);
    view.data = floats.get(), view.dtype = DType::kFloat32;
    if (!read) return;
    convert([&](uint16_t& half, float& wide) {
      wide = dtype == DType::kFloat16 ? half_to_float(half) : bfloat16_to_float(half);
    });
  }
  // Returns the bytes as the GPU stores them.
  const std::byte* data() {
    if (!floats) return bytes.get();
    convert([&](uint16_t& half, float& wide) {
      half = dtype == DType::kFloat16 ? float_to_half(wide) : float_to_bfloat16(wide);
    });
    return bytes.get();
  }

 private:
  template <class F>
  void convert(F f) {
    for (size_t i = 0; i < elements; i++) {
      uint16_t half;
      std::memcpy(&half, bytes.get() + 2 * i, 2);
      f(half, floats[i]);
      std::memcpy(bytes.get() + 2 * i, &half, 2);
    }
  }
};

}  // namespace

void run_on_host(const ExternCall& call) {
  if (preparing()) return;
  const auto lacks = [&](const ExternView& v) {
    return is_half(v.dtype) && !extern_supports(call.op, v.dtype, DeviceType::kCPU);
  };
  const bool widens = std::any_of(call.in.begin(), call.in.end(), lacks);
  std::vector<HostCopy> in, out;
  std::vector<ExternView> in_views, out_views;
  std::vector<HostCopy*> results;
  in.reserve(call.in.size()), out.reserve(call.out.size());
  for (const ExternView& v : call.in) in_views.push_back(in.emplace_back(v, call.device, true, widens).view);
  for (const ExternView& v : call.out) {
    const bool inplace = !in.empty() && v.data && v.data == call.in[0].data;
    if (inplace) {
      results.push_back(&in[0]);
      out_views.push_back(in_views[0]);
      out_views.back().dim = v.dim;
      std::copy(v.sizes, v.sizes + kExternDims, out_views.back().sizes);
      std::copy(v.strides, v.strides + kExternDims, out_views.back().strides);
      continue;
    }
    const bool gaps = extent(v) != size_t(v.numel()) * size_of(v.dtype);
    results.push_back(&out.emplace_back(v, call.device, gaps, widens));
    out_views.push_back(results.back()->view);
  }
  ExternCall host = call;
  host.in = in_views, host.out = out_views;
  host.device = Device(), host.stream = nullptr;
  run_extern(host);
  for (size_t i = 0; i < call.out.size(); i++) {
    if (const size_t n = extent(call.out[i]))
      copy_bytes(call.out[i].data, call.device, results[i]->data(), Device(), n);
  }
}

}  // namespace lutra::cuda
