// What views by name, moves between devices and fills mean.
#include "ops/core/current_device.h"
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {

// -- views

Results decompose_t(const Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dim() > 2) fail("t: expects a tensor of at most 2 dimensions, got ", t->dim());
  return {t->dim() < 2 ? t : transpose(t, vdim(0), vdim(1))};
}

Results decompose_adjoint(const Args& a) { return {transpose(a[0], vdim(-2), vdim(-1))}; }
Results decompose_ravel(const Args& a) { return {op1(OpId::reshape, {a[0], Sizes{SymInt(-1)}})}; }
Results decompose_view_as(const Args& a) { return {view(a[0], a[1].tensor()->sizes)}; }
Results decompose_reshape_as(const Args& a) { return {op1(OpId::reshape, {a[0], a[1].tensor()->sizes})}; }
Results decompose_expand_as(const Args& a) { return {expand(a[0], a[1].tensor()->sizes)}; }
Results decompose_broadcast_to(const Args& a) { return {expand(a[0], a[1])}; }

// (input, dim, start, length)
Results decompose_narrow(const Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dim() == 0) fail("narrow: a tensor of no dimensions cannot be narrowed");
  const int64_t dim = wrap_dim(OpId::narrow, a[1].sym_int().guard(), t->sizes.size());
  const SymInt size = t->sizes[size_t(dim)], length = a[3].sym_int();
  SymInt start = a[2].sym_int();
  if (start < 0) start = start + size;
  if (start < 0 || length < 0 || start + length > size) {
    fail("narrow: start ", a[2].sym_int().hint, " and length ", length.hint, " are out of range for dimension ", dim,
         " of size ", size.hint);
  }
  return {op1(OpId::slice, {t, vdim(dim), vint(start), vint(start + length), vdim(1)})};
}

// -- other dtypes and devices: the tensor itself where it is so already

// (input, device, dtype, non_blocking, copy). The cast runs where fewer bytes move.
Results decompose_to(const Args& a) {
  const Tensor from = a[0].tensor();
  const Device device = a[1].is_none() ? from->device() : a[1].as<Device>();
  const DType dtype = a[2].is_none() ? from->dtype : a[2].as<DType>();
  const bool first = size_of(dtype) < size_of(from->dtype);
  const Tensor t = first ? on_device(to_dtype(from, dtype), device) : to_dtype(on_device(from, device), dtype);
  return {a[4].as<bool>() && t.same(from) ? op1(OpId::clone, {t}) : t};
}

Results decompose_type_as(const Args& a) {
  const Tensor other = a[1].tensor();
  return {to_dtype(on_device(a[0].tensor(), other->device()), other->dtype)};
}

Results decompose_cpu(const Args& a) { return {on_device(a[0].tensor(), Device{})}; }

Results decompose_cuda(const Args& a) {
  const Device device = a[1].is_none() ? Device{DeviceType::kCUDA, int8_t(current_cuda_index())} : a[1].as<Device>();
  if (device.type != DeviceType::kCUDA) fail("cuda: device '", to_string(device), "' is not a GPU");
  check_device(device);
  return {on_device(a[0].tensor(), device)};
}

// -- fills

Results decompose_fill_(const Args& a) {
  const Tensor t = a[0].tensor();
  if (!a[1].is<Tensor>()) {
    return {call_inplace(OpId::copy_, {t, full({}, a[1].as<Scalar>(), t->dtype, t->device())})};
  }
  if (a[1].tensor()->dim() != 0) {
    fail("fill_: value must be a number or a tensor of no dimensions, got shape ", to_string(a[1].tensor()->sizes));
  }
  return {call_inplace(OpId::copy_, {t, a[1]})};
}
Results decompose_fill(const Args& a) { return {op1(OpId::fill_, {op1(OpId::clone, {a[0]}), a[1]})}; }
Results decompose_zero_(const Args& a) { return {op1(OpId::fill_, {a[0], vnum(0)})}; }

}  // namespace lutra
