// Sizes, strides and dtypes of results. See rules.h.
#include "ops/meta/rules.h"

#include "ops/core/overlap.h"

namespace lutra {

int64_t wrap_dim(OpId op, int64_t dim, size_t ndim) {
  int64_t n = std::max<int64_t>(int64_t(ndim), 1);
  if (dim < -n || dim >= n) {
    fail(name(op), ": dim ", dim, " is out of range for a tensor of ", ndim, " dimensions (expected ", -n, " to ",
         n - 1, ")");
  }
  return dim < 0 ? dim + n : dim;
}

Dims reduced_dims(OpId op, const Value& dims, size_t ndim, bool empty_is_none) {
  Dims out;
  bool all = dims.is_none() || (empty_is_none && dims.is<Sizes>() && dims.as<Sizes>().empty());
  if (all) {
    for (size_t d = 0; d < ndim; d++) out.push_back(int64_t(d));
    return out;
  }
  Sizes list = dims.is<Sizes>() ? dims.as<Sizes>() : Sizes{dims.sym_int()};
  for (SymInt s : list) {
    int64_t d = wrap_dim(op, s.guard(), ndim);
    if (std::find(out.begin(), out.end(), d) != out.end()) {
      fail(name(op), ": dim ", d, " appears multiple times in the list of dims");
    }
    out.push_back(d);
  }
  if (ndim == 0) out.clear();  // a number accepts dims -1 and 0 too, but has nothing to reduce
  std::sort(out.begin(), out.end());
  return out;
}

SymInt elements_per_channel(const Sizes& sizes, size_t first) {
  SymInt n = 1;
  for (size_t d = first; d < sizes.size(); d++) {
    if (d != 1) n = n * sizes[d];
  }
  return n;
}

Sizes reduced_sizes(const Sizes& sizes, const Dims& dims, bool keepdim) {
  Sizes out;
  for (size_t d = 0; d < sizes.size(); d++) {
    bool reduced = std::find(dims.begin(), dims.end(), int64_t(d)) != dims.end();
    if (!reduced) out.push_back(sizes[d]);
    if (reduced && keepdim) out.push_back(1);
  }
  return out;
}

namespace {

bool is_one(SymInt s) { return s.is_constant() && s.hint == 1; }

// Broadcasts one dimension. The hints choose the questions, so that only guards that the result needs are recorded.
bool broadcast_dim(SymInt a, SymInt b, SymInt& out) {
  if (is_one(a) || is_one(b)) return out = is_one(a) ? b : a, true;
  if (a.hint == b.hint && a == b) return out = a.is_constant() ? a : b, true;
  if (a.hint == 1 && a == 1) return out = b, true;
  if (b.hint == 1 && b == 1) return out = a, true;
  return a == b;  // false, and records the guard that the error depends on
}

}  // namespace

Sizes broadcast(OpId op, const Sizes& a, const Sizes& b) {
  const Sizes& longer = a.size() >= b.size() ? a : b;
  const Sizes& shorter = a.size() >= b.size() ? b : a;
  Sizes out = longer;
  size_t skip = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); d++) {
    if (!broadcast_dim(longer[skip + d], shorter[d], out[skip + d])) {
      fail(name(op), ": shapes ", to_string(a), " and ", to_string(b), " cannot be broadcast (",
           a[a.size() - shorter.size() + d].hint, " != ", b[b.size() - shorter.size() + d].hint, " at dim ", skip + d,
           ")");
    }
  }
  return out;
}

void check_internal(OpId op, bool holds, const char* what) {
  if (!holds) fail(name(op), ": ", what);
}

std::optional<int64_t> count_elements(const Sizes& sizes) {
  int64_t count = 1;
  bool empty = false, overflow = false;
  for (const SymInt& n : sizes) {
    empty = empty || n.hint == 0;
    overflow = __builtin_mul_overflow(count, n.hint, &count) || overflow;
  }
  if (empty) return 0;
  return overflow ? std::nullopt : std::optional(count);
}

bool same_sizes(const Sizes& a, const Sizes& b) {
  if (a.size() != b.size()) return false;
  for (size_t d = 0; d < a.size(); d++) {
    if (a[d] != b[d]) return false;
  }
  return true;
}

Promotion& Promotion::add(const Value& operand) {
  if (operand.is_none()) return *this;
  if (operand.is<Tensor>()) {
    const Tensor& t = operand.as<Tensor>();
    DType& to = t->sizes.empty() ? zero_ : dims_;
    to = promote_types(to, t->dtype);
    return *this;
  }
  const Scalar& s = operand.as<Scalar>();
  if (s.kind == Scalar::kBool) boolean_ = DType::kBool;
  if (s.kind != Scalar::kBool) numbers_.push_back(s);
  return *this;
}

namespace {
DType combine(DType higher, DType lower) {
  if (higher == DType::kNone || lower == DType::kNone) return higher == DType::kNone ? lower : higher;
  if (is_float(higher)) return is_complex(lower) ? to_complex(higher) : higher;
  if (is_bool(higher) || is_float(lower)) return promote_types(higher, lower);
  return higher;
}
}  // namespace

DType Promotion::type() const {
  DType tensors = combine(dims_, zero_);
  if (tensors != DType::kNone && is_float(tensors)) return tensors;
  // Asks whether a number is whole only if that decides the type.
  DType number = boolean_;
  for (const Scalar& s : numbers_) {
    bool integer = tensors == DType::kNone ? s.kind == Scalar::kInt : s.is_whole();
    number = promote_types(number, integer ? DType::kInt64 : DType::kFloat32);
  }
  return combine(tensors, number);
}

DType result_type(const Args& args, std::initializer_list<size_t> operands) {
  Promotion p;
  for (size_t i : operands) p.add(args[i]);
  return p.type();
}

namespace {

// Returns t's strides in a broadcast to sizes: 0 for a dimension that is broadcast.
Sizes broadcast_strides(const Tensor& t, const Sizes& sizes) {
  Sizes out;
  size_t skip = sizes.size() - t->sizes.size();
  for (size_t d = 0; d < sizes.size(); d++) {
    if (d < skip) {
      out.push_back(0);
      continue;
    }
    SymInt own = t->sizes[d - skip], stride = t->strides[d - skip];
    bool same = own.expr == sizes[d].expr && own.hint == sizes[d].hint;
    out.push_back(!same && own == 1 && sizes[d] != 1 ? SymInt(0) : stride);
  }
  return out;
}

// TensorIterator's comparison of two dimensions: 1 when a should be outside b, -1 inside, 0 ambiguous.
int compare_dims(const std::vector<Sizes>& strides, const Sizes& sizes, size_t a, size_t b) {
  for (const Sizes& s : strides) {
    if (s[a] == 0 || s[b] == 0) continue;
    if (s[a] < s[b]) return -1;
    if (s[a] > s[b]) return 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

bool same_strides(const Tensor& a, const Tensor& b) {
  for (size_t d = 0; d < a->strides.size(); d++) {
    if (a->strides[d] != b->strides[d]) return false;
  }
  return true;
}

// Returns the dimensions, innermost first, by TensorIterator's insertion sort (ambiguous dims keep their order).
SmallVec<uint32_t, 8> dim_order(const std::vector<Sizes>& strides, const Sizes& sizes) {
  SmallVec<uint32_t, 8> perm;
  for (size_t d = sizes.size(); d-- > 0;) perm.push_back(uint32_t(d));
  for (size_t i = 1; i < perm.size(); i++) {
    size_t at = i;
    for (size_t j = i; j-- > 0;) {
      int c = compare_dims(strides, sizes, perm[j], perm[at]);
      if (c < 0) break;
      if (c > 0) std::swap(perm[j], perm[at]), at = j;
    }
  }
  return perm;
}

}  // namespace

Sizes pointwise_strides(const std::vector<Tensor>& operands, const Sizes& sizes) {
  if (operands.empty() || sizes.size() <= 1) return contiguous_strides(sizes);
  bool same_shape = true, contiguous = true, same_stride = true;
  for (const Tensor& t : operands) {
    same_shape = same_shape && same_sizes(t->sizes, sizes);
    contiguous = contiguous && same_shape && t->is_contiguous();
  }
  if (same_shape && contiguous) return contiguous_strides(sizes);
  for (const Tensor& t : operands) same_stride = same_stride && same_shape && same_strides(t, operands[0]);
  if (same_shape && same_stride && is_dense(sizes, operands[0]->strides)) return operands[0]->strides;
  std::vector<Sizes> strides;
  for (const Tensor& t : operands) strides.push_back(broadcast_strides(t, sizes));
  SmallVec<uint32_t, 8> perm = dim_order(strides, sizes);
  bool identity = true;
  for (size_t i = 0; i < perm.size(); i++) identity = identity && perm[i] == perm.size() - 1 - i;
  if (identity) return contiguous_strides(sizes);
  Sizes out;
  out.resize(sizes.size());
  SymInt next = 1;
  for (uint32_t d : perm) {
    out[d] = next;
    next = next * sizes[d];
  }
  return out;
}

ResultSpec pointwise_spec(OpId op, const Args& args, std::initializer_list<size_t> operands, DType dtype) {
  ResultSpec spec;
  std::vector<Tensor> tensors;
  for (size_t i : operands) {
    if (!args[i].is<Tensor>()) continue;
    const Tensor& t = args[i].as<Tensor>();
    spec.sizes = tensors.empty() ? t->sizes : broadcast(op, spec.sizes, t->sizes);
    tensors.push_back(t);
  }
  if (tensors.empty()) fail(name(op), ": expects at least one tensor");
  spec.strides = pointwise_strides(tensors, spec.sizes);
  spec.dtype = dtype;
  return spec;
}

ResultSpec contiguous_spec(const Sizes& sizes, DType dtype) {
  ResultSpec spec;
  spec.sizes = sizes;
  spec.strides = contiguous_strides(sizes);
  spec.dtype = dtype;
  return spec;
}

ResultSpec like_spec(const Tensor& t, DType dtype) {
  ResultSpec spec;
  spec.sizes = t->sizes;
  bool keep = !t->is_contiguous() && is_dense(t->sizes, t->strides);
  spec.strides = keep ? t->strides : pointwise_strides({t}, t->sizes);
  spec.dtype = dtype;
  return spec;
}

ResultSpec view_spec(const Tensor& t, const Sizes& sizes, const Sizes& strides, SymInt offset) {
  ResultSpec spec;
  spec.sizes = sizes;
  spec.strides = strides;
  spec.dtype = t->dtype;
  spec.view = true;
  spec.offset = offset;
  return spec;
}

Sizes infer_size(OpId op, const Sizes& shape, const Sizes& input) {
  Sizes out = shape;
  SymInt known = 1, n = numel(input);
  int64_t inferred = -1;
  for (size_t d = 0; d < shape.size(); d++) {
    if (shape[d].is_constant() && shape[d].hint == -1) {
      if (inferred >= 0) fail(name(op), ": only one dimension can be inferred, got shape ", to_string(shape));
      inferred = int64_t(d);
    } else {
      if (shape[d] < 0) fail(name(op), ": invalid size ", shape[d].hint, " in shape ", to_string(shape));
      known = known * shape[d];
    }
  }
  auto invalid = [&] {
    fail(name(op), ": shape ", to_string(shape), " is invalid for a tensor of ", n.hint, " elements, shape ",
         to_string(input));
  };
  if (inferred < 0) {
    if (known != n) invalid();
    return out;
  }
  if (known == 0) {
    if (n != 0) invalid();
    fail(name(op), ": the size of dim ", inferred, " is ambiguous in shape ", to_string(shape), " for an empty tensor");
  }
  if (floor_mod(n, known) != 0) invalid();
  out[size_t(inferred)] = floor_div(n, known);
  return out;
}

// PyTorch's computeStride: walks the input's dims from the last, joins dense neighbours into chunks, and cuts the new
// sizes out of each chunk.
bool view_strides(const Tensor& t, const Sizes& sizes, Sizes& strides) {
  const Sizes& old = t->sizes;
  if (t->is_contiguous()) return strides = contiguous_strides(sizes), true;
  if (numel(old) == 0) return strides = contiguous_strides(sizes), true;
  strides.clear();
  strides.resize(sizes.size());
  int64_t view_d = int64_t(sizes.size()) - 1;
  SymInt chunk_stride = old.empty() ? SymInt(1) : t->strides.back(), chunk = 1, view_chunk = 1;
  for (int64_t d = int64_t(old.size()) - 1; d >= 0; d--) {
    chunk = chunk * old[d];
    bool ends = d == 0 || (old[d - 1] != 1 && t->strides[d - 1] != chunk * chunk_stride);
    if (!ends) continue;
    while (view_d >= 0 && (view_chunk < chunk || sizes[view_d] == 1)) {
      strides[view_d] = view_chunk * chunk_stride;
      view_chunk = view_chunk * sizes[view_d];
      view_d--;
    }
    if (view_chunk != chunk) return false;
    if (d > 0) {
      chunk_stride = t->strides[d - 1];
      chunk = 1;
      view_chunk = 1;
    }
  }
  return view_d == -1;
}

}  // namespace lutra
