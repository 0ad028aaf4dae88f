// One element of any dtype in, a Scalar out, and back.
#include "ops/defs/element.h"

#include <cmath>
#include <cstring>

#include "ops/core/half.h"

namespace lutra {
namespace {

template <class T>
T load(const void* at) {
  T v;
  std::memcpy(&v, at, sizeof v);
  return v;
}

template <class T>
void store(void* at, T v) {
  std::memcpy(at, &v, sizeof v);
}

// Out of int64's range or NaN: the smallest, as x64's conversion gives.
int64_t whole_part(const Scalar& s) {
  if (s.kind != Scalar::kNumber) return s.i;
  return s.d > -9.3e18 && s.d < 9.223372036854775807e18 ? int64_t(s.d) : INT64_MIN;
}

}  // namespace

void need_data(const char* fn, const Tensor& t) {
  if (t->is_fake()) throw NeedsData(str(fn, ": reads the elements of a tensor"));
}

Scalar load_element(const void* at, DType dtype) {
  switch (dtype) {
    case DType::kBool: return Scalar::of_bool(load<uint8_t>(at) != 0);
    case DType::kUInt8: return Scalar::of_int(load<uint8_t>(at));
    case DType::kInt8: return Scalar::of_int(load<int8_t>(at));
    case DType::kInt16: return Scalar::of_int(load<int16_t>(at));
    case DType::kInt32: return Scalar::of_int(load<int32_t>(at));
    case DType::kInt64: return Scalar::of_int(load<int64_t>(at));
    case DType::kFloat16: return double(half_to_float(load<uint16_t>(at)));
    case DType::kBFloat16: return double(bfloat16_to_float(load<uint16_t>(at)));
    case DType::kFloat32: return double(load<float>(at));
    case DType::kFloat64: return load<double>(at);
    case DType::kNone: break;
  }
  fail_internal("element of no dtype");
}

void store_element(void* at, DType dtype, const Scalar& value) {
  switch (dtype) {
    case DType::kBool: return store<uint8_t>(at, value.to_double() != 0);
    case DType::kUInt8: return store(at, uint8_t(whole_part(value)));
    case DType::kInt8: return store(at, int8_t(whole_part(value)));
    case DType::kInt16: return store(at, int16_t(whole_part(value)));
    case DType::kInt32: return store(at, int32_t(whole_part(value)));
    case DType::kInt64: return store(at, whole_part(value));
    case DType::kFloat16: return store(at, float_to_half(float(value.to_double())));
    case DType::kBFloat16: return store(at, float_to_bfloat16(float(value.to_double())));
    case DType::kFloat32: return store(at, float(value.to_double()));
    case DType::kFloat64: return store(at, value.to_double());
    case DType::kNone: break;
  }
  fail_internal("element of no dtype");
}

void Elements::each(const std::function<void(const Scalar&)>& visit) const {
  if (t_->numel().hint > 0) walk(0, 0, visit);
}

void Elements::walk(size_t dim, int64_t offset, const std::function<void(const Scalar&)>& visit) const {
  if (dim == t_->sizes.size()) return visit(at(offset));
  for (int64_t i = 0; i < size(dim); ++i) walk(dim + 1, offset + i * stride(dim), visit);
}

}  // namespace lutra
