// Decomposes composite ops into simpler ones, by call_op.

#include "ops/core/overlap.h"
#include "ops/decompose/emit.h"
#include "ops/meta/rules.h"
#include "ops/meta/spatial.h"

namespace lutra {
namespace {

SymInt dim_arg(OpId op, const Value& dim, const Tensor& t) {
  return wrap_dim(op, dim.sym_int().guard(), t->sizes.size());
}

Tensor reduce_loss(const Tensor& loss, const std::string& reduction) {
  if (reduction == "none") return loss;
  return reduction == "sum" ? sum_all(loss) : op1(OpId::mean, {loss});
}

}  // namespace

Tensor conform(OpId op, const Args& args, const Tensor& r) { return laid_out(r, info(op).meta(op, args)[0]); }

// -- elementwise
Results decompose_square(const Args& args) {
  Tensor x = args[0].tensor();
  if (is_bool(x->dtype)) x = to_dtype(x, DType::kInt64);
  return {mul(x, x)};
}

namespace {
// Returns x where it respects the bound, else the bound. The result is NaN where either is NaN.
Tensor bounded(const Tensor& x, OpId keeps, const Value& bound) {
  if (bound.is_none()) return x;
  Tensor inside = op1(keeps, {x, bound});
  return where(inside, x, is_float(x->dtype) ? Value(where(op1(OpId::isnan, {x}), x, bound)) : bound);
}
}  // namespace

Results decompose_clamp(const Args& args) {
  Tensor x = bounded(args[0].tensor(), OpId::ge, args[1]);
  return {conform(OpId::clamp, args, bounded(x, OpId::le, args[2]))};
}

Results decompose_addcmul(const Args& args) {
  // The product and the number have the result's dtype: beside integers a fraction is truncated.
  const DType type = result_type(args, {0, 1, 2});
  Scalar value = args[3].as<Scalar>();
  if (!is_float(type) && !value.is_whole()) value = Scalar::of_int(int64_t(pin(value).to_double()));
  const Tensor first = to_dtype(args[1].tensor(), type);
  return {conform(OpId::addcmul, args, add(args[0], mul(scaled(first, value), args[2])))};
}

Results decompose_addcdiv(const Args& args) {
  const Tensor first = to_dtype(args[1].tensor(), result_type(args, {0, 1, 2}));
  return {conform(OpId::addcdiv, args, add(args[0], div(scaled(first, args[3].as<Scalar>()), args[2])))};
}

// Interpolates from the nearer end, as in PyTorch: exact at weight 1.
namespace {
Tensor lerp(const Args& args) {
  Tensor x = args[0].tensor(), end = args[1].tensor(), diff = sub(end, x);
  if (args[2].is<Scalar>()) {
    const Scalar& w = args[2].as<Scalar>();
    bool near = scalar_ask(SymCmp::kLt, w, Scalar(0.5)) && scalar_ask(SymCmp::kLt, Scalar(-0.5), w);
    if (near) return add(x, mul(diff, w));
    return sub(end, mul(diff, scalar_binary(SymOp::kNSub, Scalar(1.0), w)));
  }
  Tensor w = to_dtype(args[2].tensor(), x->dtype);
  Tensor from_start = add(x, mul(w, diff)), from_end = sub(end, mul(diff, sub(Scalar(1.0), w)));
  return where(lt(abs(w), Scalar(0.5)), from_start, from_end);
}
}  // namespace

Results decompose_lerp(const Args& args) { return {conform(OpId::lerp, args, lerp(args))}; }

Results decompose_masked_fill(const Args& args) {
  Tensor x = args[0].tensor();
  const Value value = args[2].is<Tensor>() ? Value(to_dtype(args[2].as<Tensor>(), x->dtype)) : args[2];
  return {conform(OpId::masked_fill, args, to_dtype(where(args[1], value, x), x->dtype))};
}

// -- data movement
Results decompose_reshape(const Args& args) {
  Tensor x = args[0].tensor();
  Sizes sizes = infer_size(OpId::reshape, args[1].as<Sizes>(), x->sizes), strides;
  if (view_strides(x, sizes, strides)) return {view(x, sizes)};
  return {view(contiguous(x), sizes)};
}

Results decompose_flatten(const Args& args) {
  Tensor x = args[0].tensor();
  ResultSpec spec = info(OpId::flatten).meta(OpId::flatten, args)[0];
  return {same_sizes(spec.sizes, x->sizes) ? x : reshape(x, spec.sizes)};
}

Results decompose_contiguous(const Args& args) {
  Tensor x = args[0].tensor();
  const std::string& format = args[1].as<std::string>();
  if (format == "preserve_format") fail("contiguous: memory_format 'preserve_format' is not supported");
  return {is_contiguous_as(x, format) ? x : op1(OpId::clone, {x, format})};
}

namespace {
// Returns input with src written to its view by view_op. The view's strides must be the result's. If input is not
// dense, a clone has another layout, so it is cloned first.
Tensor scatter_view(const Tensor& input, const Tensor& src, OpId view_op, Args view_args) {
  bool dense = input->is_contiguous() || is_dense(input->sizes, input->strides);
  Tensor base = dense ? input : op1(OpId::clone, {input});
  view_args[0] = base;
  ResultSpec spec = info(view_op).meta(view_op, view_args)[0];
  Scalar offset = Scalar::of_sym(spec.offset - base->offset);
  return op1(OpId::as_strided_scatter, {base, to_dtype(src, input->dtype), spec.sizes, spec.strides, offset});
}
}  // namespace

Results decompose_slice_scatter(const Args& args) {
  return {scatter_view(args[0].tensor(), args[1].tensor(), OpId::slice, {args[0], args[2], args[3], args[4], args[5]})};
}

// -- reductions
Results decompose_mean(const Args& args) {
  Tensor x = args[0].tensor();
  SymInt n = 1;
  for (int64_t d : reduced_dims(OpId::mean, args[1], x->sizes.size())) n = n * x->sizes[d];
  return {div(op1(OpId::sum, {x, args[1], args[2], args[3].is_none() ? Value(x->dtype) : args[3]}), Scalar::of_sym(n))};
}

namespace {
Results max_min_dim(OpId arg_op, const Args& args) {
  Tensor x = args[0].tensor();
  int64_t dim = dim_arg(arg_op, args[1], x).hint;
  if (x->sizes.empty()) return {op1(OpId::clone, {x}), full({}, 0.0, DType::kInt64, x->device())};
  // A bool's maximum is found among its bytes.
  Tensor keys = is_bool(x->dtype) ? to_dtype(x, DType::kUInt8) : x;
  Tensor index = op1(arg_op, {keys, int_arg(dim), true});
  Tensor values = gather(x, int_arg(dim), index);
  if (args[2].as<bool>()) return {values, index};
  Sizes sizes = reduced_sizes(x->sizes, {dim}, false);
  return {view(values, sizes), view(index, sizes)};
}
}  // namespace

Results decompose_max_dim(const Args& args) { return max_min_dim(OpId::argmax, args); }
Results decompose_min_dim(const Args& args) { return max_min_dim(OpId::argmin, args); }

// -- softmax and losses
namespace {
// Returns x - max(x) in the requested dtype, and sets dims to the dim as a list.
Tensor shifted(OpId op, const Args& args, Sizes& dims) {
  Tensor x = args[0].tensor();
  if (!args[2].is_none()) x = to_dtype(x, args[2].as<DType>());
  dims = {dim_arg(op, args[1], x)};
  return sub(x, op1(OpId::amax, {x, dims, true}));
}
bool is_empty(const Tensor& t, const Value& dim, OpId op) {
  return !t->sizes.empty() && t->sizes[size_t(dim_arg(op, dim, t).hint)] == 0;
}
Tensor converted_clone(const Args& args) {
  Tensor x = args[0].tensor();
  return op1(OpId::clone, {args[2].is_none() ? x : to_dtype(x, args[2].as<DType>()), std::string("contiguous_format")});
}
}  // namespace

Results decompose_softmax(const Args& args) {
  if (is_empty(args[0].tensor(), args[1], OpId::softmax)) return {converted_clone(args)};
  Sizes dims;
  Tensor e = exp(shifted(OpId::softmax, args, dims));
  Tensor total = sum(e, dims, true);
  // Divides once a row where an extra rounding does not matter.
  bool half = size_of(e->dtype) == 2;
  return {contiguous(half ? div(e, total) : mul(e, op1(OpId::reciprocal, {total})))};
}

Results decompose_log_softmax(const Args& args) {
  if (is_empty(args[0].tensor(), args[1], OpId::log_softmax)) return {converted_clone(args)};
  Sizes dims;
  Tensor s = shifted(OpId::log_softmax, args, dims);
  return {contiguous(sub(s, log(sum(exp(s), dims, true))))};
}

// Ignored targets read class 0 and have no weight. Any other bad target is gather's error.
Results decompose_nll_loss(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  const std::string& reduction = args[4].as<std::string>();
  int64_t dim = x->sizes.size() == 1 ? 0 : 1;
  if (target->dtype != DType::kInt64) target = to_dtype(target, DType::kInt64);
  Tensor counted = ne(target, args[3]), safe = where(counted, target, Scalar::of_int(0));
  Tensor picked = gather(x, int_arg(dim), unsqueeze(safe, int_arg(dim)));
  Tensor loss = neg(view(contiguous(picked), target->sizes));
  Tensor weight;
  if (!args[2].is_none()) {
    Tensor flat = reshape(safe, Sizes{numel(target->sizes)});
    weight = where(counted, view(index_select(args[2], int_arg(0), flat), target->sizes), Scalar(0.0));
    loss = mul(loss, weight);
  }
  loss = where(counted, loss, Scalar(0.0));
  if (reduction != "mean") return {conform(OpId::nll_loss, args, reduce_loss(loss, reduction))};
  Tensor total = weight ? sum_all(weight) : sum_all(to_dtype(counted, x->dtype));
  return {div(sum_all(loss), total)};
}

namespace {
// The loss for a target that holds a probability for each class.
Tensor soft_cross_entropy(const Tensor& log_p, const Tensor& target, const Value& weight, const std::string& reduction,
                          int64_t dim) {
  Tensor terms = mul(log_p, to_dtype(target, log_p->dtype));
  if (!weight.is_none()) {
    Sizes shape(log_p->sizes.size(), SymInt(1));
    shape[size_t(dim)] = log_p->sizes[size_t(dim)];
    terms = mul(terms, view(contiguous(weight), shape));
  }
  Tensor loss = neg(sum(terms, {dim}, false));
  if (reduction != "mean") return reduce_loss(loss, reduction);
  return div(sum_all(loss), Scalar::of_sym(numel(loss->sizes)));
}
}  // namespace

namespace {
// Returns the part of label smoothing: the mean of all classes' losses, weighted as the targets are.
Tensor smoothing(const Tensor& log_p, const Args& args, int64_t dim) {
  const std::string& reduction = args[4].as<std::string>();
  Tensor target = args[1].tensor(), terms = log_p, weight;
  if (!args[2].is_none()) {
    Sizes shape(log_p->sizes.size(), SymInt(1));
    shape[size_t(dim)] = log_p->sizes[size_t(dim)];
    weight = view(contiguous(args[2]), shape);
    terms = mul(terms, weight);
  }
  Tensor counted = ne(target, args[3]);
  Tensor loss = where(counted, neg(sum(terms, {dim}, false)), Scalar(0.0));
  if (reduction != "mean") return reduce_loss(loss, reduction);
  Tensor total;
  if (weight) {
    Tensor safe = where(counted, target, Scalar::of_int(0));
    Tensor of_target = index_select(args[2], int_arg(0), reshape(safe, Sizes{numel(safe->sizes)}));
    total = sum_all(where(counted, view(of_target, target->sizes), Scalar(0.0)));
  } else {
    total = sum_all(to_dtype(counted, log_p->dtype));
  }
  return div(sum_all(loss), total);
}
}  // namespace

Results decompose_cross_entropy(const Args& args) {
  Tensor x = args[0].tensor(), target = args[1].tensor();
  int64_t dim = x->sizes.size() == 1 ? 0 : 1;
  Tensor log_p = op1(OpId::log_softmax, {x, int_arg(dim)});
  const Scalar& smooth = args[5].as<Scalar>();
  const bool smoothed = !scalar_ask(SymCmp::kEq, smooth, Scalar(0.0));
  const Scalar rest = scalar_binary(SymOp::kNSub, Scalar(1.0), smooth);
  const Scalar share =
      smoothed ? scalar_binary(SymOp::kNDiv, smooth, Scalar(double(x->sizes[size_t(dim)].guard()))) : Scalar(0.0);
  if (is_float(target->dtype)) {
    if (smoothed) target = add(mul(target, rest), share);
    Tensor loss = soft_cross_entropy(log_p, target, args[2], args[4].as<std::string>(), dim);
    return {conform(OpId::cross_entropy, args, loss)};
  }
  Tensor loss = op1(OpId::nll_loss, {log_p, args[1], args[2], args[3], args[4]});
  if (!smoothed) return {loss};
  return {conform(OpId::cross_entropy, args, add(mul(loss, rest), mul(smoothing(log_p, args, dim), share)))};
}

Results decompose_mse_loss(const Args& args) {
  Tensor d = sub(args[0], args[1]);
  return {conform(OpId::mse_loss, args, reduce_loss(mul(d, d), args[2].as<std::string>()))};
}

// -- matrix products
Results decompose_linear(const Args& args) {
  Tensor x = args[0].tensor(), w = args[1].tensor();
  if (w->dim() == 1) {
    const Tensor y = op1(OpId::squeeze, {op1(OpId::linear, {x, unsqueeze(w, int_arg(0))}), Sizes{-1}});
    return {args[2].is_none() ? y : add(y, args[2])};
  }
  Sizes out = x->sizes;
  out.back() = w->sizes[0];
  SymInt rows = 1;
  for (size_t d = 0; d + 1 < x->sizes.size(); d++) rows = rows * x->sizes[d];
  Tensor y = mm(reshape(x, Sizes{rows, w->sizes[1]}), transpose(w, int_arg(0), int_arg(1)));
  if (x->sizes.size() != 2) y = view(y, out);
  // Added in the result's dimensions, so that the addition forms one loop with the next op.
  return {args[2].is_none() ? y : add(y, args[2])};
}

namespace {
// Expands t's leading dims to batch and joins them into one.
Tensor batched(const Tensor& t, const Sizes& batch) {
  Sizes sizes = batch, joined = {numel(batch)};
  for (size_t d = t->sizes.size() - 2; d < t->sizes.size(); d++) {
    sizes.push_back(t->sizes[d]);
    joined.push_back(t->sizes[d]);
  }
  return reshape(same_sizes(sizes, t->sizes) ? t : expand(t, sizes), joined);
}
}  // namespace

Results decompose_matmul(const Args& args) {
  Tensor a = args[0].tensor(), b = args[1].tensor();
  Sizes out = info(OpId::matmul).meta(OpId::matmul, args)[0].sizes;
  if (a->sizes.size() == 1) a = unsqueeze(a, int_arg(0));
  if (b->sizes.size() == 1) b = unsqueeze(b, int_arg(1));
  size_t n = a->sizes.size(), m = b->sizes.size();
  if (n == 2 && m == 2) {
    Tensor y = mm(a, b);
    return {out.size() == 2 ? y : view(y, out)};
  }
  if (m == 2) {
    // One large product instead of many.
    SymInt rows = 1;
    for (size_t d = 0; d + 1 < n; d++) rows = rows * a->sizes[d];
    return {view(mm(reshape(a, Sizes{rows, a->sizes[n - 1]}), b), out)};
  }
  Sizes batch;
  for (size_t d = 0; d + 2 < n; d++) batch.push_back(a->sizes[d]);
  Sizes other;
  for (size_t d = 0; d + 2 < m; d++) other.push_back(b->sizes[d]);
  batch = broadcast(OpId::matmul, batch, other);
  return {view(bmm(batched(a, batch), batched(b, batch)), out)};
}

}  // namespace lutra
