// Meta rules of views and of ops that only move data.
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"

namespace lutra {

ResultSpecs meta_view(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  Sizes sizes = infer_size(op, args[1].as<Sizes>(), t->sizes), strides;
  if (!view_strides(t, sizes, strides)) {
    fail("view: shape ", to_string(sizes), " is not compatible with sizes ", to_string(t->sizes), " and strides ",
         to_string(t->strides), "; use reshape");
  }
  return {view_spec(t, sizes, strides, t->offset)};
}

// call_op decomposes reshape, flatten and contiguous. These rules only describe their results.
ResultSpecs meta_reshape(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  Sizes sizes = infer_size(op, args[1].as<Sizes>(), t->sizes), strides;
  if (view_strides(t, sizes, strides)) return {view_spec(t, sizes, strides, t->offset)};
  return {contiguous_spec(sizes, t->dtype)};
}

ResultSpecs meta_flatten(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  size_t ndim = t->sizes.size();
  int64_t first = wrap_dim(op, args[1].sym_int().guard(), ndim), last = wrap_dim(op, args[2].sym_int().guard(), ndim);
  if (first > last) fail("flatten: start_dim ", first, " comes after end_dim ", last);
  Sizes shape;
  for (int64_t d = 0; d < int64_t(ndim); d++) {
    if (d > first && d <= last) {
      shape.back() = shape.back() * t->sizes[d];
    } else {
      shape.push_back(t->sizes[d]);
    }
  }
  if (ndim == 0) shape.push_back(1);
  return meta_reshape(op, {args[0], shape});
}

ResultSpecs meta_contiguous(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const std::string& format = args[1].as<std::string>();
  if (is_contiguous_as(t, format)) return {view_spec(t, t->sizes, t->strides, t->offset)};
  return {format == "channels_last" ? image_spec(t->sizes, true, t->dtype) : contiguous_spec(t->sizes, t->dtype)};
}

ResultSpecs meta_detach(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  return {view_spec(t, t->sizes, t->strides, t->offset)};
}

// Views complex elements as their parts, in a last dimension.
ResultSpecs meta_view_as_real(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (!is_complex(t->dtype)) fail(name(op), ": only defined for complex tensors, got ", name(t->dtype));
  ResultSpec spec = view_spec(t, t->sizes, {}, t->offset * 2);
  for (SymInt s : t->strides) spec.strides.push_back(s * 2);
  spec.sizes.push_back(2), spec.strides.push_back(1);
  spec.dtype = info(t->dtype).carrier;
  return {spec};
}

ResultSpecs meta_view_as_complex(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (info(to_complex(t->dtype)).carrier != t->dtype) {
    fail(name(op), ": only defined for float32 and float64 tensors, got ", name(t->dtype));
  }
  if (t->sizes.empty() || t->sizes.back() != 2) {
    fail(name(op), ": the last dimension must have size 2, got shape ", to_string(t->sizes));
  }
  if (t->strides.back() != 1) fail(name(op), ": the last dimension must have stride 1, got ", t->strides.back().hint);
  const auto half = [&](SymInt v, const char* what) {
    const SymInt h = floor_div(v, 2);
    if (h * 2 != v) fail(name(op), ": ", what, " must be divisible by 2, got ", v.hint);
    return h;
  };
  ResultSpec spec = view_spec(t, {}, {}, half(t->offset, "the storage offset"));
  for (size_t d = 0; d + 1 < t->sizes.size(); d++) {
    spec.sizes.push_back(t->sizes[d]);
    spec.strides.push_back(half(t->strides[d], "each stride but the last"));
  }
  spec.dtype = to_complex(t->dtype);
  return {spec};
}

// Views the same bytes as elements of another dtype. If the elements' sizes differ, the last dimension's size changes.
ResultSpecs meta_view_dtype(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const DType to = args[1].as<DType>();
  const auto refuse = [&](const auto&... why) {
    fail("view: ", why..., " to view ", name(t->dtype), " as ", name(to), ", whose elements have another size");
  };
  if (is_packed(t->dtype) || is_packed(to)) fail("view: not defined from ", name(t->dtype), " to ", name(to));
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset);
  spec.dtype = to;
  const auto from_bytes = int64_t(size_of(t->dtype)), to_bytes = int64_t(size_of(to));
  if (from_bytes == to_bytes) return {spec};
  if (t->sizes.empty()) refuse("a dimension is needed");
  if (t->strides.back() != 1) refuse("the last dimension must have stride 1, not ", t->strides.back().hint, ",");
  if (from_bytes > to_bytes) {
    const int64_t parts = from_bytes / to_bytes;
    spec.offset = t->offset * parts, spec.sizes.back() = t->sizes.back() * parts;
    for (size_t d = 0; d + 1 < spec.strides.size(); d++) spec.strides[d] = t->strides[d] * parts;
    return {spec};
  }
  const int64_t parts = to_bytes / from_bytes;
  const auto part = [&](SymInt v, const auto&... what) {
    const SymInt n = floor_div(v, parts);
    if (n * parts != v) refuse(what..., " must be divisible by ", parts, ", not ", v.hint, ",");
    return n;
  };
  spec.sizes.back() = part(t->sizes.back(), "the last size");
  spec.offset = part(t->offset, "the storage offset");
  for (size_t d = 0; d + 1 < spec.strides.size(); d++) spec.strides[d] = part(t->strides[d], "the stride of dim ", d);
  return {spec};
}

ResultSpecs meta_view_as_bytes(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  ResultSpec spec = view_spec(t, t->sizes, t->strides, floor_div(t->offset, 2));
  for (SymInt& s : spec.strides) s = floor_div(s, 2);
  spec.sizes.back() = floor_div(t->sizes.back(), 2), spec.strides.back() = 1;
  spec.dtype = info(t->dtype).carrier;
  return {spec};
}

ResultSpecs meta_view_as_packed(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset * 2);
  for (SymInt& s : spec.strides) s = s * 2;
  spec.sizes.back() = t->sizes.back() * 2, spec.strides.back() = 1;
  spec.dtype = args[1].as<DType>();
  return {spec};
}

ResultSpecs meta_transpose(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  size_t ndim = t->sizes.size();
  int64_t a = wrap_dim(op, args[1].sym_int().guard(), ndim), b = wrap_dim(op, args[2].sym_int().guard(), ndim);
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset);
  if (ndim > 0) {
    std::swap(spec.sizes[a], spec.sizes[b]);
    std::swap(spec.strides[a], spec.strides[b]);
  }
  return {spec};
}

ResultSpecs meta_permute(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const Sizes& dims = args[1].as<Sizes>();
  size_t ndim = t->sizes.size();
  if (dims.size() != ndim) {
    fail("permute: expected ", ndim, " dims for a tensor of shape ", to_string(t->sizes), ", got ", to_string(dims));
  }
  ResultSpec spec = view_spec(t, {}, {}, t->offset);
  SmallVec<bool, 8> seen(ndim, false);
  for (SymInt s : dims) {
    int64_t d = wrap_dim(op, s.guard(), ndim);
    if (seen[d]) fail("permute: dim ", d, " appears twice in ", to_string(dims));
    seen[d] = true;
    spec.sizes.push_back(t->sizes[d]);
    spec.strides.push_back(t->strides[d]);
  }
  return {spec};
}

namespace {

[[noreturn]] void fail_expand(const Tensor& t, const Sizes& sizes, const std::string& why) {
  fail("expand: shape ", to_string(t->sizes), " cannot be expanded to ", to_string(sizes), " (", why, ")");
}

}  // namespace

ResultSpecs meta_expand(OpId, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  const Sizes& sizes = args[1].as<Sizes>();
  if (sizes.size() < t->sizes.size()) fail_expand(t, sizes, "fewer dimensions");
  size_t skip = sizes.size() - t->sizes.size();
  ResultSpec spec = view_spec(t, sizes, {}, t->offset);
  for (size_t d = 0; d < sizes.size(); d++) {
    bool keep = sizes[d].is_constant() && sizes[d].hint == -1;
    if (d < skip) {
      if (keep || sizes[d] < 0) fail_expand(t, sizes, str("size ", sizes[d].hint, " at the new dim ", d));
      spec.strides.push_back(0);
      continue;
    }
    SymInt own = t->sizes[d - skip], stride = t->strides[d - skip];
    if (keep) spec.sizes[d] = own;
    bool same = keep || (own.hint == sizes[d].hint && own == sizes[d]);
    if (!same && (own != 1 || sizes[d] < 0)) fail_expand(t, sizes, str(own.hint, " != ", sizes[d].hint, " at dim ", d));
    spec.strides.push_back(same ? stride : SymInt(0));
  }
  if (!count_elements(spec.sizes)) fail_expand(t, sizes, "64 bits cannot count its elements");
  return {spec};
}

ResultSpecs meta_select(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (t->sizes.empty()) fail("select: cannot be applied to a 0-dim tensor");
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  SymInt index = args[2].sym_int(), size = t->sizes[d];
  if (index < SymInt(0) - size || index >= size) {
    fail("select: index ", index.hint, " is out of range for dim ", d, " of shape ", to_string(t->sizes));
  }
  if (index < 0) index = index + size;
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset + index * t->strides[d]);
  spec.sizes.erase(d);
  spec.strides.erase(d);
  return {spec};
}

namespace {
// Returns a slice's bound. A negative one counts from the end. The result is clamped to [least, size].
SymInt clamp_bound(const Value& bound, SymInt otherwise, SymInt least, SymInt size) {
  if (bound.is_none()) return otherwise;
  SymInt b = bound.sym_int();
  if (b < 0) b = b + size;
  if (b < least) return least;
  return b > size ? size : b;
}
}  // namespace

ResultSpecs meta_slice(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  if (t->sizes.empty()) fail("slice: cannot be applied to a 0-dim tensor");
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size());
  SymInt size = t->sizes[d], step = args[4].sym_int();
  if (step <= 0) fail("slice: step must be greater than zero, got ", step.hint);
  SymInt start = clamp_bound(args[2], 0, 0, size);
  SymInt end = clamp_bound(args[3], size, start, size);
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset + start * t->strides[d]);
  bool unit = step.is_constant() && step.hint == 1;
  spec.sizes[d] = unit ? end - start : floor_div(end - start + step - 1, step);
  if (!unit) spec.strides[d] = t->strides[d] * step;
  return {spec};
}

ResultSpecs meta_unsqueeze(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  int64_t d = wrap_dim(op, args[1].sym_int().guard(), t->sizes.size() + 1);
  ResultSpec spec = view_spec(t, t->sizes, t->strides, t->offset);
  SymInt stride = size_t(d) < t->sizes.size() ? t->sizes[d] * t->strides[d] : SymInt(1);
  spec.sizes.insert(d, 1);
  spec.strides.insert(d, stride);
  return {spec};
}

ResultSpecs meta_squeeze(OpId op, const Args& args) {
  const Tensor& t = args[0].as<Tensor>();
  Dims dims = reduced_dims(op, args[1], t->sizes.size(), false);
  ResultSpec spec = view_spec(t, {}, {}, t->offset);
  for (size_t d = 0; d < t->sizes.size(); d++) {
    bool named = std::find(dims.begin(), dims.end(), int64_t(d)) != dims.end();
    if (named && t->sizes[d] == 1) continue;
    spec.sizes.push_back(t->sizes[d]);
    spec.strides.push_back(t->strides[d]);
  }
  return {spec};
}

}  // namespace lutra
