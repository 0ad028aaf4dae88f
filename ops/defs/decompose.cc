// Runs the decomposition of a composite.
#include "ops/core/half.h"
#include "ops/defs/call.h"
#include "ops/defs/order.h"

namespace lutra {
namespace {

// Converts half types to float32. Returns whether v had one.
bool to_opmath(Value& v) {
  if (v.is<DType>() && is_half(v.as<DType>())) {
    v = DType::kFloat32;
    return true;
  }
  if (v.is<Tensor>() && v.as<Tensor>() && is_half(v.as<Tensor>()->dtype)) {
    v = op1(OpId::to_dtype, {v, DType::kFloat32});
    return true;
  }
  if (!v.is<std::vector<Tensor>>()) return false;
  bool half = false;
  std::vector<Tensor> list = v.as<std::vector<Tensor>>();
  for (Tensor& t : list) {
    if (!is_half(t->dtype)) continue;
    t = op1(OpId::to_dtype, {t, DType::kFloat32});
    half = true;
  }
  v = list;
  return half;
}

}  // namespace

Tensor laid_out(const Tensor& r, const ResultSpec& spec) {
  bool same = true;
  for (size_t d = 0; d < spec.sizes.size(); d++) {
    bool equal = r->strides[d].hint == spec.strides[d].hint && r->strides[d].expr == spec.strides[d].expr;
    same = same && (equal || r->sizes[d] == 1 || r->strides[d] == spec.strides[d]);
  }
  if (same) return r;
  const Sizes order = falling(spec.strides);
  const Tensor dense = op1(OpId::clone, {op1(OpId::permute, {r, order}), std::string("contiguous_format")});
  return op1(OpId::permute, {dense, inverse(order)});
}

Results decompose(const OpInfo& op, const Args& args) {
  if (!op.has(kOpmath)) return op.decompose(args);
  Args wide = args;
  bool half = false;
  for (Value& v : wide) half |= to_opmath(v);
  if (!half) return op.decompose(args);
  const ResultSpecs specs = op.meta(op.id, args);
  Results results = op.decompose(wide);
  for (size_t i = 0; i < results.size(); i++) {
    if (results[i]->dtype != specs[i].dtype) results[i] = op1(OpId::to_dtype, {results[i], specs[i].dtype});
    // A cast of overlapping operands has a dense layout of its own.
    if (!op.has(kAtCall)) results[i] = laid_out(results[i], specs[i]);
  }
  return results;
}

}  // namespace lutra
