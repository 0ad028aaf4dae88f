// Converts one element of any dtype to a Scalar and back.
#include "ops/defs/element.h"

#include <cmath>
#include <cstring>

#include "ops/core/element_types.h"
#include "ops/defs/call.h"

namespace lutra {
namespace {

// Truncates. Returns INT64_MIN for NaN and for numbers out of int64's range, as x64's conversion does.
int64_t whole_part(const Scalar& s) {
  if (s.kind != Scalar::kNumber) return s.i;
  return s.d > -9.3e18 && s.d < 9.223372036854775807e18 ? int64_t(s.d) : INT64_MIN;
}

}  // namespace

void need_data(const char* fn, const Tensor& t) {
  if (t->is_fake()) throw NeedsData(str(fn, ": reads the elements of a tensor"));
}

Scalar load_element(const void* at, DType dtype) {
  const auto number = []<class T>(T v) {
    if constexpr (std::is_same_v<T, double>)
      return v;
    else
      return double(float(v));
  };
  return with_stored_type(dtype, [&]<class T>() -> Scalar {
    T v;
    std::memcpy(&v, at, sizeof v);
    if constexpr (std::is_same_v<T, Bool8>) {
      return Scalar::of_bool(v.v != 0);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      return Scalar::of_uint(v);
    } else if constexpr (std::is_integral_v<T>) {
      return Scalar::of_int(v);
    } else if constexpr (std::is_same_v<T, Int4>) {
      fail_internal("one element of a packed dtype");
    } else if constexpr (kIsComplex<T>) {
      return Scalar::of_complex(number(v.re), number(v.im));
    } else {
      return number(v);
    }
  });
}

void store_element(void* at, DType dtype, const Scalar& value) {
  with_stored_type(dtype, [&]<class T>() {
    const auto store = [at](T v) { std::memcpy(at, &v, sizeof v); };
    if constexpr (std::is_same_v<T, Bool8>) {
      store({uint8_t(value.to_double() != 0 || value.im != 0)});
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      const bool high = value.kind == Scalar::kNumber && value.d >= 0x1p63;
      store(high ? uint64_t(value.d) : uint64_t(whole_part(value)));
    } else if constexpr (std::is_integral_v<T>) {
      store(T(whole_part(value)));
    } else if constexpr (std::is_same_v<T, double>) {
      store(value.to_double());
    } else if constexpr (std::is_same_v<T, Int4>) {
      fail_internal("one element of a packed dtype");
    } else if constexpr (kIsComplex<T>) {
      using Part = decltype(T::re);
      store({Part(value.to_double()), Part(value.im)});
    } else {
      store(T(float(value.to_double())));
    }
  });
}

Tensor Elements::readable(const Tensor& t) {
  GradModeScope off(false);
  return on_host(is_packed(t->dtype) ? op1(OpId::to_dtype, {t, single(t->dtype)}) : t);
}

void Elements::each(const std::function<void(const Scalar&)>& visit) const {
  if (t_->numel().hint > 0) walk(0, 0, visit);
}

void Elements::walk(size_t dim, int64_t offset, const std::function<void(const Scalar&)>& visit) const {
  if (dim == t_->sizes.size()) return visit(at(offset));
  for (int64_t i = 0; i < size(dim); ++i) walk(dim + 1, offset + i * stride(dim), visit);
}

}  // namespace lutra
