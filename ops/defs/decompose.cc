// A composite and its arguments in, the results of its decomposition out.
#include "ops/core/half.h"
#include "ops/defs/call.h"

namespace lutra {
namespace {

// Whether something was of a half type.
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
  }
  return results;
}

}  // namespace lutra
