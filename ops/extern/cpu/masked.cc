// masked_scatter and its gradient: the places where a mask is true take the source's elements in order, or return
// theirs.
#include <algorithm>
#include <cstring>
#include <memory>

#include "ops/extern/cpu/elements.h"
#include "ops/extern/cpu/kernels.h"
#include "ops/extern/cpu/strided.h"

namespace lutra {

void run_masked_scatter(const ExternCall& call) {
  const ExternView &out = call.out[0], &source = call.in[2];
  const ExternView mask = broadcast_view(call.in[1], out);
  const auto* m = static_cast<const uint8_t*>(mask.data);
  int64_t count = 0;
  each_element(mask, [&](int64_t at) { count += m[at] != 0; });
  const int64_t have = source.numel();
  if (call.op == OpId::masked_assign && count != have) {
    throw Error(ErrorKind::kData, str("index: ", have, " values for ", count, " places where the mask is true"));
  }
  if (count > have) {
    throw Error(ErrorKind::kData, str("masked_scatter: the mask has ", count, " true elements, source has ", have));
  }
  if (out.data != call.in[0].data) copy_elements(broadcast_view(call.in[0], out), out, call.parallel);
  with_element_type(out.dtype, [&]<class T>() {
    std::unique_ptr<T[]> packed(new T[size_t(std::max<int64_t>(count, 1))]);
    int64_t n = 0;
    const T* from = static_cast<const T*>(source.data);
    each_element(source, [&](int64_t at) {
      if (n < count) packed[size_t(n++)] = from[at];
    });
    n = 0;
    T* to = static_cast<T*>(out.data);
    each_pair(out, mask, [&](int64_t at, int64_t at_mask) {
      if (m[at_mask]) to[at] = packed[size_t(n++)];
    });
  });
}

void run_masked_gather(const ExternCall& call) {
  const ExternView &in = call.in[0], &out = call.out[0];
  const ExternView mask = broadcast_view(call.in[1], in);
  const auto* m = static_cast<const uint8_t*>(mask.data);
  with_element_type(out.dtype, [&]<class T>() {
    T* to = static_cast<T*>(out.data);
    const T* from = static_cast<const T*>(in.data);
    const int64_t size = out.numel();
    int64_t n = 0;
    each_pair(in, mask, [&](int64_t at, int64_t at_mask) {
      if (m[at_mask] && n < size) to[n++] = from[at];
    });
    std::memset(static_cast<void*>(to + n), 0, size_t(size - n) * sizeof(T));
  });
}

}  // namespace lutra
