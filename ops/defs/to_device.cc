// Copies elements to another device. A tensor that is not dense is made dense on its own device, then its bytes are
// copied.
#include "ops/defs/to_device.h"

#include <algorithm>

#include "ops/defs/call.h"

namespace lutra {
namespace {

// Returns whether the elements occupy numel consecutive places in memory, in any order of dimensions.
bool is_dense(const Tensor& t) {
  std::vector<std::pair<int64_t, int64_t>> dims;
  for (size_t d = 0; d < t->sizes.size(); d++) {
    if (t->sizes[d].hint > 1) dims.emplace_back(t->strides[d].hint, t->sizes[d].hint);
  }
  std::sort(dims.begin(), dims.end());
  int64_t expected = 1;
  for (auto [stride, size] : dims) {
    if (stride != expected) return false;
    expected *= size;
  }
  return true;
}

size_t bytes_of(const Tensor& t) { return size_t(bytes_of(t->dtype, t->numel().hint)); }

void copy_elements(const Tensor& to, const Tensor& from) {
  copy_bytes(to->data(), to->device(), from->data(), from->device(), bytes_of(from));
}

}  // namespace

Tensor copy_to(const Tensor& t, Device device) {
  if (t->device() == device) return t;
  GradModeScope off(false);
  const Tensor dense = is_dense(t) ? t : op1(OpId::clone, {t});
  Tensor out = make_tensor(dense->sizes, dense->strides, dense->dtype, device);
  copy_elements(out, dense);
  return out;
}

void copy_without_history(const Tensor& to, const Tensor& from) {
  GradModeScope off(false);
  call_inplace(OpId::copy_, {to, from});
}

bool copy_bytes_into(const Tensor& self, const Tensor& src) {
  bool same = self->dtype == src->dtype && self->sizes.size() == src->sizes.size();
  for (size_t d = 0; same && d < self->sizes.size(); d++) same = self->sizes[d].hint == src->sizes[d].hint;
  if (!same || !self->is_contiguous()) return false;
  GradModeScope off(false);
  copy_elements(self, src->is_contiguous() ? src : op1(OpId::contiguous, {src}));
  return true;
}

}  // namespace lutra
