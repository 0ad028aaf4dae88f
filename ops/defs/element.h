// Reads and writes elements of real tensors as Scalars: for printing, item, totable, lt.tensor, and results whose size
// depends on elements. It is not a fast path.
#pragma once
#include <functional>

#include "ops/core/value.h"
#include "ops/defs/to_device.h"

namespace lutra {

Scalar load_element(const void* at, DType dtype);
// Checks for an op that reads elements: throws NeedsData for a FakeTensor.
void need_data(const char* fn, const Tensor& t);
// Rounds to dtype. Integers take the whole part, as in PyTorch's casts.
void store_element(void* at, DType dtype, const Scalar& value);

// Access to the elements of t by their offset or in row-major order.
class Elements {
 public:
  // Copies t to the host and unpacks it, if needed. So use this object's strides, not those of t.
  explicit Elements(const Tensor& t) : t_(readable(t)), base_(static_cast<const char*>(t_->data())) {}
  // Returns the element at an offset in elements from the first one (multiply indices with strides).
  Scalar at(int64_t offset) const { return load_element(base_ + offset * int64_t(size_of(t_->dtype)), t_->dtype); }
  int64_t size(size_t dim) const { return t_->sizes[dim].hint; }
  int64_t stride(size_t dim) const { return t_->strides[dim].hint; }
  // Visits the elements in row-major order.
  void each(const std::function<void(const Scalar&)>& visit) const;

 private:
  static Tensor readable(const Tensor& t);
  void walk(size_t dim, int64_t offset, const std::function<void(const Scalar&)>& visit) const;
  Tensor t_;
  const char* base_;
};

}  // namespace lutra
