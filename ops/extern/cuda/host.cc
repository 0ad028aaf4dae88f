// Any extern call on a GPU's views in; the CPU's candidate run on copies of their memory, its results copied back.
//
// Invariants:
// 1. A view's memory is copied as one range, gaps included, and goes back as it came: what lies between its elements
//    keeps its bytes, since the copies wait for the GPU and nothing runs beside them.
// 2. A result that is the first operand (an in-place form) shares its copy.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "ops/core/storage.h"
#include "ops/extern/cuda/kernels.h"
#include "ops/extern/cuda/launch.h"

namespace lutra::cuda {
namespace {

// The bytes from a view's first element to its last.
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
  std::unique_ptr<std::byte[]> bytes;

  HostCopy(const ExternView& v, Device device, bool read) : view(v) {
    if (!v.data) return;
    const size_t n = extent(v);
    bytes.reset(new std::byte[n + 1]);
    view.data = bytes.get();
    if (read && n) copy_bytes(bytes.get(), Device(), v.data, device, n);
  }
};

}  // namespace

void run_on_host(const ExternCall& call) {
  if (preparing()) return;
  std::vector<HostCopy> in, out;
  std::vector<ExternView> in_views, out_views;
  for (const ExternView& v : call.in) in_views.push_back(in.emplace_back(v, call.device, true).view);
  for (const ExternView& v : call.out) {
    const bool inplace = !in.empty() && v.data && v.data == call.in[0].data;
    if (inplace) {
      out_views.push_back(in_views[0]);
      out_views.back().dim = v.dim;
      std::copy(v.sizes, v.sizes + kExternDims, out_views.back().sizes);
      std::copy(v.strides, v.strides + kExternDims, out_views.back().strides);
      continue;
    }
    const bool gaps = extent(v) != size_t(v.numel()) * size_of(v.dtype);
    out_views.push_back(out.emplace_back(v, call.device, gaps).view);
  }
  ExternCall host = call;
  host.in = in_views, host.out = out_views;
  host.device = Device(), host.stream = nullptr;
  run_extern(host);
  for (size_t i = 0; i < call.out.size(); i++) {
    if (const size_t n = extent(call.out[i])) copy_bytes(call.out[i].data, call.device, out_views[i].data, Device(), n);
  }
}

}  // namespace lutra::cuda
