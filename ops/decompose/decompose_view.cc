// Decomposes named views, moves between devices, and fills.
#include "ops/core/current_device.h"
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"

namespace lutra {

// -- views

Results decompose_t(const Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dim() > 2) fail("t: expects a tensor of at most 2 dimensions, got ", t->dim());
  return {t->dim() < 2 ? t : transpose(t, vdim(0), vdim(1))};
}

Results decompose_adjoint(const Args& a) {
  const Tensor t = a[0].tensor()->dim() == 0 ? op1(OpId::alias, {a[0]}) : transpose(a[0], vdim(-2), vdim(-1));
  return {op1(OpId::conj, {t})};
}
// Returns a view only if the input is contiguous, unlike reshape.
Results decompose_ravel(const Args& a) { return {op1(OpId::reshape, {contiguous(a[0]), Sizes{SymInt(-1)}})}; }
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

// -- conversions to other dtypes and devices, which return the tensor itself if nothing changes

namespace {

// Casts on the side where fewer bytes are moved.
Tensor moved(const Tensor& from, Device device, DType dtype, bool copy, const Value& format) {
  const bool first = size_of(dtype) < size_of(from->dtype);
  const Tensor t = first ? on_device(to_dtype(from, dtype), device) : to_dtype(on_device(from, device), dtype);
  const std::string wanted = format.is_none() ? "preserve_format" : format.as<std::string>();
  // Any layout but channels last counts as PyTorch's contiguous_format here.
  const bool lies =
      wanted == "preserve_format" || wanted == (is_channels_last(t) ? "channels_last" : "contiguous_format");
  return lies && !(copy && t.same(from)) ? t : op1(OpId::clone, {t, wanted});
}

}  // namespace

// (input, device, dtype, non_blocking, copy, memory_format)
Results decompose_to(const Args& a) {
  const Tensor from = a[0].tensor();
  const Device device = a[1].is_none() ? from->device() : a[1].as<Device>();
  return {moved(from, device, a[2].is_none() ? from->dtype : a[2].as<DType>(), a[4].as<bool>(), a[5])};
}

// (input, other, non_blocking, copy, memory_format)
Results decompose_to_other(const Args& a) {
  const Tensor other = a[1].tensor();
  return {moved(a[0].tensor(), other->device(), other->dtype, a[3].as<bool>(), a[4])};
}

Results decompose_type_as(const Args& a) {
  const Tensor other = a[1].tensor();
  return {to_dtype(on_device(a[0].tensor(), other->device()), other->dtype)};
}

Results decompose_cpu(const Args& a) {
  const Tensor t = a[0].tensor();
  return {moved(t, Device{}, t->dtype, false, a[1])};
}

Results decompose_cuda(const Args& a) {
  const Device device = a[1].is_none() ? Device{DeviceType::kCUDA, int8_t(current_cuda_index())} : a[1].as<Device>();
  if (device.type != DeviceType::kCUDA) fail("cuda: device '", to_string(device), "' is not a GPU");
  check_device(device);
  const Tensor t = a[0].tensor();
  return {moved(t, device, t->dtype, false, a[3])};
}

// -- fills

namespace {

// Returns a view of t that has each element of its memory once: an expanded dimension is cut to one element.
Tensor once(Tensor t) {
  for (int64_t d = 0; d < t->dim(); d++) {
    const bool repeated = !t->strides[size_t(d)].expr && t->strides[size_t(d)].hint == 0 && t->sizes[size_t(d)] > 1;
    if (repeated) t = op1(OpId::slice, {t, vdim(d), vdim(0), vdim(1), vdim(1)});
  }
  return t;
}

}  // namespace

Results decompose_fill_(const Args& a) {
  const Tensor t = a[0].tensor();
  if (!a[1].is<Tensor>()) {
    const Tensor to = once(t);
    const Tensor filled = call_inplace(OpId::copy_, {to, full({}, a[1].as<Scalar>(), single(t->dtype), t->device())});
    return {to.same(t) ? filled : t};
  }
  if (a[1].tensor()->dim() != 0) {
    fail("fill_: value must be a number or a tensor of no dimensions, got shape ", to_string(a[1].tensor()->sizes));
  }
  return {call_inplace(OpId::copy_, {t, a[1]})};
}
Results decompose_fill(const Args& a) { return {op1(OpId::fill_, {op1(OpId::clone, {a[0]}), a[1]})}; }
// (input, fill_value, wrap). Fills where all coordinates are equal. With wrap, the diagonal of a tall matrix begins
// again below its square.
Results decompose_fill_diagonal_(const Args& a) {
  const Tensor t = a[0].tensor();
  if (t->dim() < 2) fail("fill_diagonal_: expects a tensor of 2 dimensions or more, got shape ", to_string(t->sizes));
  for (int64_t d = 1; t->dim() > 2 && d < t->dim(); d++) {
    if (t->sizes[size_t(d)] == t->sizes[0]) continue;
    fail("fill_diagonal_: all dimensions of input must be of one length, got shape ", to_string(t->sizes));
  }
  const auto along = [&](int64_t d) {
    Sizes shape(t->sizes.size(), SymInt(1));
    shape[size_t(d)] = t->sizes[size_t(d)];
    const Args positions = {vdim(0), vint(t->sizes[size_t(d)]), vdim(1), DType::kInt64, t->device()};
    return reshape(op1(OpId::arange, positions), shape);
  };
  Tensor first = along(0), inside;
  if (a[2].as<bool>() && t->dim() == 2) first = op1(OpId::remainder, {first, vint(t->sizes[1] + 1)});
  for (int64_t d = 1; d < t->dim(); d++) {
    const Tensor same = eq(first, along(d));
    inside = inside ? logical_and(inside, same) : same;
  }
  return {call_inplace(OpId::masked_fill, {t, inside, a[1]})};
}
Results decompose_zero_(const Args& a) { return {op1(OpId::fill_, {a[0], vnum(0)})}; }

}  // namespace lutra
