// Meta rules of matrix products.
#include "ops/core/half.h"
#include "ops/meta/rules.h"

namespace lutra {
namespace {

void check_types(OpId op, const Tensor& a, const Tensor& b) {
  if (a->dtype != b->dtype) {
    fail(name(op), ": expected both tensors of one dtype, got ", name(a->dtype), " and ", name(b->dtype));
  }
  if (is_bool(a->dtype)) fail(name(op), ": not defined for bool tensors");
}

void check_inner(OpId op, const Tensor& a, const Tensor& b, SymInt k, SymInt l) {
  if (k != l) {
    fail(name(op), ": shapes ", to_string(a->sizes), " and ", to_string(b->sizes), " cannot be multiplied (", k.hint,
         " != ", l.hint, ")");
  }
}

void check_dims(OpId op, const OpInfo& row, size_t arg, const Tensor& t, size_t ndim) {
  if (t->sizes.size() != ndim) {
    fail(name(op), ": '", row.args[arg].name, "' must have ", ndim, " dimensions, got shape ", to_string(t->sizes));
  }
}

void check_weight_types(OpId op, const Tensor& x, const Tensor& w, DType weight, const Tensor& scales) {
  if (!is_float(x->dtype) || is_stored(x->dtype) || size_of(x->dtype) > 4) {
    fail(name(op), ": the input must be of float32, float16 or bfloat16, got ", name(x->dtype));
  }
  if (w->dtype != weight) fail(name(op), ": 'mat2' must be of ", name(weight), ", got ", name(w->dtype));
  if (scales->dtype != x->dtype && scales->dtype != opmath_type(x->dtype)) {
    fail(name(op), ": the scales must be of the input's dtype ", name(x->dtype), " or float32, got ",
         name(scales->dtype));
  }
}

}  // namespace

ResultSpecs meta_mm(OpId op, const Args& args) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  check_dims(op, info(op), 0, a, 2), check_dims(op, info(op), 1, b, 2);
  check_types(op, a, b);
  check_inner(op, a, b, a->sizes[1], b->sizes[0]);
  return {contiguous_spec({a->sizes[0], b->sizes[1]}, a->dtype)};
}

ResultSpecs meta_bmm(OpId op, const Args& args) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  check_dims(op, info(op), 0, a, 3), check_dims(op, info(op), 1, b, 3);
  check_types(op, a, b);
  if (a->sizes[0] != b->sizes[0]) {
    fail("bmm: batches of ", to_string(a->sizes), " and ", to_string(b->sizes), " differ (", a->sizes[0].hint,
         " != ", b->sizes[0].hint, ")");
  }
  check_inner(op, a, b, a->sizes[2], b->sizes[1]);
  return {contiguous_spec({a->sizes[0], a->sizes[1], b->sizes[2]}, a->dtype)};
}

void check_dot(OpId op, const Tensor& a, const Tensor& b) {
  const OpInfo& row = info(op);
  for (size_t i : {0, 1}) {
    const Tensor& t = i ? b : a;
    if (t->sizes.size() == 1) continue;
    fail(row.name, ": '", row.args[i].name, "' must have 1 dimension, got shape ", to_string(t->sizes));
  }
  check_types(op, a, b);
  check_inner(op, a, b, a->sizes[0], b->sizes[0]);
}

ResultSpecs meta_dot(OpId op, const Args& args) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  check_dot(op, a, b);
  return {contiguous_spec({}, a->dtype)};
}

ResultSpecs meta_matmul(OpId op, const Args& args) {
  const Tensor &a = args[0].as<Tensor>(), &b = args[1].as<Tensor>();
  size_t n = a->sizes.size(), m = b->sizes.size();
  if (n == 0 || m == 0) {
    fail("matmul: both tensors must have at least 1 dimension, got shapes ", to_string(a->sizes), " and ",
         to_string(b->sizes));
  }
  check_types(op, a, b);
  check_inner(op, a, b, a->sizes[n - 1], b->sizes[m == 1 ? 0 : m - 2]);
  Sizes batch_a, batch_b;
  for (size_t d = 0; d + 2 < n; d++) batch_a.push_back(a->sizes[d]);
  for (size_t d = 0; d + 2 < m; d++) batch_b.push_back(b->sizes[d]);
  Sizes out = broadcast(op, batch_a, batch_b);
  if (n > 1) out.push_back(a->sizes[n - 2]);
  if (m > 1) out.push_back(b->sizes[m - 1]);
  return {contiguous_spec(out, a->dtype)};
}

ResultSpecs meta_linear(OpId op, const Args& args) {
  const Tensor &x = args[0].as<Tensor>(), &w = args[1].as<Tensor>();
  if (x->sizes.empty()) fail("linear: the input must have at least 1 dimension, got a number");
  const bool vector = w->dim() == 1;  // gives the sum over the features, without their dimension
  if (!vector) check_dims(op, info(op), 1, w, 2);
  check_types(op, x, w);
  if (x->sizes.back() != w->sizes.back()) {
    fail("linear: an input of shape ", to_string(x->sizes), " cannot be multiplied with a weight of shape ",
         to_string(w->sizes), " (", x->sizes.back().hint, " != ", w->sizes.back().hint, ")");
  }
  Sizes out = x->sizes;
  if (vector) {
    out.pop_back();
  } else {
    out.back() = w->sizes[0];
  }
  if (!args[2].is_none()) {
    const Tensor& b = args[2].as<Tensor>();
    check_types(op, x, b);
    // As in PyTorch, a vector may have a bias only if it is a number, and only if the input is no matrix.
    const bool fits =
        vector ? b->sizes.empty() && x->dim() != 2
               : b->sizes.empty() || (b->sizes.size() == 1 && (b->sizes[0] == w->sizes[0] || b->sizes[0] == 1));
    if (!fits) {
      fail("linear: a bias of shape ", to_string(b->sizes), " does not fit a weight of shape ", to_string(w->sizes));
    }
  }
  return {contiguous_spec(out, x->dtype)};
}

// The weight is (n, k), or (n, k / 2) bytes of two elements each.
ResultSpecs meta_weight_int8pack_mm(OpId op, const Args& args) {
  const Tensor &x = args[0].as<Tensor>(), &w = args[1].as<Tensor>(), &scales = args[2].as<Tensor>();
  check_dims(op, info(op), 0, x, 2), check_dims(op, info(op), 1, w, 2), check_dims(op, info(op), 2, scales, 1);
  check_weight_types(op, x, w, DType::kInt8, scales);
  check_inner(op, x, w, x->sizes[1], w->sizes[1]);
  if (scales->sizes[0] != w->sizes[0]) {
    fail(name(op), ": 'scales' must have shape ", to_string(Sizes{w->sizes[0]}), ", got ", to_string(scales->sizes));
  }
  return {contiguous_spec({x->sizes[0], w->sizes[0]}, x->dtype)};
}

ResultSpecs meta_weight_int4pack_mm(OpId op, const Args& args) {
  const Tensor &x = args[0].as<Tensor>(), &w = args[1].as<Tensor>(), &scales = args[3].as<Tensor>();
  check_dims(op, info(op), 0, x, 2), check_dims(op, info(op), 1, w, 2), check_dims(op, info(op), 3, scales, 3);
  check_weight_types(op, x, w, DType::kUInt8, scales);
  const int64_t group = args[2].sym_int().guard();
  if (group != 32 && group != 64 && group != 128 && group != 256) {
    fail(name(op), ": qGroupSize must be 32, 64, 128 or 256, got ", group);
  }
  check_inner(op, x, w, x->sizes[1], w->sizes[1] * 2);
  const SymInt groups = floor_div(x->sizes[1], group);
  if (groups * group != x->sizes[1]) {
    fail(name(op), ": rows of ", x->sizes[1].hint, " elements are no whole groups of ", group);
  }
  const Sizes wanted = {groups, w->sizes[0], 2};
  if (!same_sizes(scales->sizes, wanted)) {
    fail(name(op), ": 'qScaleAndZeros' must have shape ", to_string(wanted), ", got ", to_string(scales->sizes));
  }
  return {contiguous_spec({x->sizes[0], w->sizes[0]}, x->dtype)};
}

}  // namespace lutra
