// Elements of real tensors as Scalars: for printing, item, totable, lt.tensor, results whose size is in the elements.
// Not a fast path.
#pragma once
#include <functional>

#include "ops/core/value.h"
#include "ops/defs/to_device.h"

namespace lutra {

Scalar load_element(const void* at, DType dtype);
// For ops that read elements: throws NeedsData for FakeTensors.
void need_data(const char* fn, const Tensor& t);
// Rounds to dtype; integers take the whole part, as PyTorch's casts do.
void store_element(void* at, DType dtype, const Scalar& value);

// The elements of t by their index in row-major order, whatever the strides.
class Elements {
 public:
  // Copied to the host where they are not there, and unpacked: strides are this object's to tell.
  explicit Elements(const Tensor& t) : t_(readable(t)), base_(static_cast<const char*>(t_->data())) {}
  // At offset elements from the first one (multiply indices with strides).
  Scalar at(int64_t offset) const { return load_element(base_ + offset * int64_t(size_of(t_->dtype)), t_->dtype); }
  int64_t size(size_t dim) const { return t_->sizes[dim].hint; }
  int64_t stride(size_t dim) const { return t_->strides[dim].hint; }
  // In row-major order.
  void each(const std::function<void(const Scalar&)>& visit) const;

 private:
  static Tensor readable(const Tensor& t);
  void walk(size_t dim, int64_t offset, const std::function<void(const Scalar&)>& visit) const;
  Tensor t_;
  const char* base_;
};

}  // namespace lutra
