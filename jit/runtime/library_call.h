// Makes the call for a library's launch in a plan.
#pragma once
#include <string_view>
#include <vector>

#include "jit/schedule/plan.h"
#include "ops/core/small_vec.h"
#include "ops/extern/extern.h"

namespace lutra {

// Storage for the operands that a call points to.
struct CallOperands {
  SmallVec<ExternView, 4> in, out;
  SmallVec<int64_t, 16> ints;
  SmallVec<double, 4> scalars;
  std::vector<std::string_view> strings;
};

// int_of and number_of return the value of an expression, data_of the memory of a view. `o` owns what the call points
// to.
template <class Int, class Number, class Data>
ExternCall call_of(const ExternLaunch& launch, CallOperands& o, const Int& int_of, const Number& number_of,
                   const Data& data_of) {
  const auto view_of = [&](const BufferView& v) {
    ExternView e;
    if (v.buffer < 0) return e;
    e.dtype = info(v.dtype).carrier;
    e.dim = int32_t(v.sizes.size());
    if (e.dim > kExternDims) fail_dims(name(launch.op), size_t(e.dim));
    for (int32_t d = 0; d < e.dim; d++) {
      e.sizes[d] = int_of(v.sizes[size_t(d)]);
      e.strides[d] = int_of(v.strides[size_t(d)]);
    }
    e.data = data_of(v);
    return e;
  };
  for (const BufferView& v : launch.in) o.in.push_back(view_of(v));
  for (const BufferView& v : launch.out) o.out.push_back(view_of(v));
  for (ExprId e : launch.ints) o.ints.push_back(int_of(e));
  for (ExprId e : launch.scalars) o.scalars.push_back(number_of(e));
  o.strings.assign(launch.strings.begin(), launch.strings.end());
  ExternCall call;
  call.op = launch.op, call.in = {o.in.begin(), o.in.size()}, call.out = {o.out.begin(), o.out.size()};
  call.ints = {o.ints.begin(), o.ints.size()}, call.scalars = {o.scalars.begin(), o.scalars.size()};
  call.strings = o.strings;
  return call;
}

}  // namespace lutra
