// Decomposes composite gathering, sorting and searching ops.
#include <limits>

#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

// Converts positions counted from the end to positions counted from the start.
Tensor wrapped(const Tensor& index, SymInt size) {
  return where(lt(index, int_arg(0)), add(index, Scalar::of_sym(size)), index);
}

// Returns an operand as a tensor of dtype.
Tensor tensor_of(const Value& v, DType type, Device device) {
  return v.is<Tensor>() ? to_dtype(v.as<Tensor>(), type) : full({}, v.as<Scalar>(), type, device);
}

}  // namespace

Results decompose_take(const Args& args) {
  return {
      op1(OpId::index, {flat(args[0].tensor()), std::vector<Tensor>{args[1].tensor()}, Sizes{0}, std::string("take")})};
}

Results decompose_put(const Args& args) {
  Tensor x = args[0].tensor();
  std::vector<Tensor> index{flat(args[1].tensor())};
  Tensor r = op1(OpId::index_put, {flat(x), index, Sizes{0}, flat(args[2].tensor()), args[3], std::string("put")});
  return {conform(OpId::put, args, reshape(r, x->sizes))};
}

Results decompose_take_along_dim(const Args& args) {
  Tensor x = args[0].tensor(), index = args[1].tensor();
  if (args[2].is_none()) return {gather(flat(x), int_arg(0), wrapped(flat(index), x->numel()))};
  if (x->sizes.empty()) return {gather(x, int_arg(0), wrapped(index, 1))};
  const auto d = size_t(wrap_dim(OpId::take_along_dim, args[2].sym_int().guard(), x->sizes.size()));
  Sizes sizes = info(OpId::take_along_dim).meta(OpId::take_along_dim, args)[0].sizes, wide = sizes;
  wide[d] = x->sizes[d];
  if (!same_sizes(wide, x->sizes)) x = expand(x, wide);
  if (!same_sizes(sizes, index->sizes)) index = expand(index, sizes);
  return {gather(x, int_arg(int64_t(d)), wrapped(index, x->sizes[d]))};
}

Results decompose_argsort(const Args& args) { return {call_op(OpId::sort, args)[1]}; }
Results decompose_msort(const Args& args) { return {call_op(OpId::sort, {args[0], int_arg(0)})[0]}; }

namespace {
// Returns the element at position k of each sorted row. k has the rows' shape with keepdim.
Results pick_of_sorted(const Results& sorted, const Value& dim, const Tensor& k, bool keepdim) {
  Results out{gather(sorted[0], dim, k), gather(sorted[1], dim, k)};
  if (keepdim) return out;
  for (Tensor& t : out) t = op1(OpId::squeeze, {t, Sizes{dim.sym_int()}});
  return out;
}

Results pick_of_rows(const Tensor& x, const Value& dim, const Tensor& k, bool keepdim) {
  return pick_of_sorted(call_op(OpId::sort, {x, dim}), dim, k, keepdim);
}

// Returns the position of a row's median in the sorted row: that of its first NaN, if it has one. ignore_nan takes the
// median of the other elements.
Tensor median_place(const Tensor& x, int64_t d, bool ignore_nan) {
  const Scalar n = Scalar::of_sym(x->sizes[size_t(d)]);
  Tensor numbers = sum(to_dtype(op1(OpId::logical_not, {op1(OpId::isnan, {x})}), DType::kInt64), {d}, true);
  Tensor middle = floor_divide(sub(numbers, int_arg(1)), int_arg(2));
  if (ignore_nan) return where(lt(middle, int_arg(0)), int_arg(0), middle);
  return where(eq(numbers, n), middle, numbers);
}
}  // namespace

Results decompose_kthvalue(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->sizes.empty()) return {op1(OpId::clone, {x}), full({}, 0.0, DType::kInt64, x->device())};
  const int64_t d = wrap_dim(OpId::kthvalue, args[2].sym_int().guard(), x->sizes.size());
  const Results first_k = call_op(OpId::topk, {x, args[1], int_arg(d), false, true});
  const Value place = Scalar::of_sym(args[1].sym_int() - 1);
  Results out;
  for (const Tensor& t : first_k) {
    Tensor one = op1(OpId::select, {t, int_arg(d), place});
    if (args[3].as<bool>()) one = unsqueeze(one, int_arg(d));
    out.push_back(op1(OpId::clone, {one, std::string("contiguous_format")}));
  }
  return out;
}

// Finds the longest run of equal elements in the sorted row, the first of several. Its end comes last in the row.
Results decompose_mode(const Args& args) {
  Tensor x = args[0].tensor();
  const int64_t d = wrap_dim(OpId::mode, args[1].sym_int().guard(), x->sizes.size());
  if (x->sizes.empty()) return {op1(OpId::clone, {x}), full({}, 0.0, DType::kInt64, x->device())};
  const Value dim = int_arg(d);
  const SymInt n = x->sizes[size_t(d)];
  if (n == 0) fail("mode: dim ", d, " of shape ", to_string(x->sizes), " has no elements");
  const Results sorted = call_op(OpId::sort, {x, dim, false, true});
  const auto part = [&](const Value& from, const Value& to) {
    return op1(OpId::slice, {op1(OpId::detach, {sorted[0]}), dim, from, to, int_arg(1)});
  };
  const Tensor first = part(int_arg(0), int_arg(1)), head = part(int_arg(0), vint(n - 1)),
               rest = part(int_arg(1), vint(n));
  const Tensor begins =
      op1(OpId::cat, {std::vector<Tensor>{full(first->sizes, 1.0, DType::kBool, x->device()), ne(rest, head)}, dim});
  Sizes line(x->sizes.size(), SymInt(1));
  line[size_t(d)] = n;
  const Tensor place = reshape(counting(n, x), line);
  const Tensor begin = call_op(OpId::cummax, {where(begins, place, int_arg(0)), dim})[0];
  return pick_of_sorted(sorted, dim, op1(OpId::argmax, {sub(place, begin), dim, true}), args[2].as<bool>());
}

Results decompose_median_dim(const Args& args) {
  Tensor x = args[0].tensor();
  if (x->sizes.empty()) return {op1(OpId::clone, {x}), full({}, 0.0, DType::kInt64, x->device())};
  const int64_t d = wrap_dim(OpId::median_dim, args[1].sym_int().guard(), x->sizes.size());
  return pick_of_rows(x, int_arg(d), median_place(x, d, args[3].as<bool>()), args[2].as<bool>());
}

Results decompose_median_all(const Args& args) {
  Tensor x = flat(args[0].tensor());
  if (x->sizes[0] == 0) {
    return {to_dtype(full({}, std::numeric_limits<double>::quiet_NaN(), DType::kFloat64, x->device()), x->dtype)};
  }
  return {pick_of_rows(x, int_arg(0), median_place(x, 0, args[1].as<bool>()), false)[0]};
}

Results decompose_bucketize(const Args& args) {
  return {op1(OpId::searchsorted, {args[1], args[0], args[2], args[3]})};
}

Results decompose_isin(const Args& args) {
  const DType type = result_type(args, {0, 1});
  const Device device = (args[0].is<Tensor>() ? args[0] : args[1]).tensor()->device();
  return {op1(OpId::isin_tensors, {tensor_of(args[0], type, device), flat(tensor_of(args[1], type, device)), args[3]})};
}

// (input, indices, max_norm, norm_type). A row that is named twice is written twice with the same elements.
Results decompose_embedding_renorm_(const Args& args) {
  const Tensor weight = args[0].tensor(), at = args[1].tensor();
  if (weight->dim() != 2) {
    fail("embedding_renorm_: the weight must have 2 dimensions, got shape ", to_string(weight->sizes));
  }
  if (!is_index(at->dtype)) fail("embedding_renorm_: indices must be int64 or int32, got ", name(at->dtype));
  if (grad_enabled() && weight->requires_grad) {
    fail("embedding_renorm_: its derivative is not implemented; call it in lt.no_grad");
  }
  GradModeScope off(false);
  const Tensor index = flat(at), rows = index_select(weight, int_arg(0), index);
  const Tensor norm = op1(OpId::linalg_vector_norm, {rows, args[3], Sizes{1}, true});
  const Tensor down = mul(rows, div(args[2], add(norm, Scalar(1e-7))));
  const Tensor kept = where(gt(norm, args[2]), down, rows);
  return {call_inplace(OpId::index_copy, {weight, int_arg(0), index, kept})};
}

// (input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse)
Results decompose_embedding_capped(const Args& args) {
  op1(OpId::embedding_renorm_, {op1(OpId::detach, {args[1]}), args[0], args[3], args[4]});
  return {op1(OpId::embedding, {args[0], args[1], args[2], args[5], args[6]})};
}

// Converts places in row-major order to indices: floor(place / step) % size for each dimension.
Results decompose_unravel_index(const Args& args) {
  const Tensor at = args[0].tensor();
  const Sizes& shape = args[1].as<Sizes>();
  if (!is_integral(at->dtype) || is_bool(at->dtype)) {
    fail("unravel_index: expected indices of an integer dtype, got ", name(at->dtype));
  }
  for (SymInt n : shape) {
    if (n < 0) fail("unravel_index: the shape must not have negative sizes, got ", to_string(shape));
  }
  if (shape.empty()) return {};
  const Tensor place = to_dtype(at, DType::kInt64);
  std::vector<Tensor> out(shape.size());
  SymInt step = 1;
  for (size_t d = shape.size(); d-- > 0; step = step * shape[d]) {
    out[d] = op1(OpId::remainder, {floor_divide(place, vint(step)), vint(shape[d])});
  }
  return call_op(OpId::unbind, {op1(OpId::stack, {out, int_arg(-1)}), int_arg(-1)});
}

// Returns one vector of positions for each dimension.
Results decompose_nonzero_tuple(const Args& args) {
  const Tensor t = args[0].tensor();
  const Tensor wide = t->dim() ? t : unsqueeze(t, int_arg(0));
  const Tensor positions = op1(OpId::nonzero, {wide});
  Results out;
  for (int64_t d = 0; d < wide->dim(); d++) out.push_back(op1(OpId::select, {positions, int_arg(1), int_arg(d)}));
  return out;
}

Results decompose_argwhere(const Args& args) { return {op1(OpId::nonzero, {args[0]})}; }

}  // namespace lutra
