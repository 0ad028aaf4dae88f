// Recognises the part that a node puts in a place.
#include "ops/grad/parts.h"

#include <algorithm>
#include <cmath>

namespace lutra {

std::optional<int64_t> fixed_size(SymInt s) {
  if (s.is_constant()) return s.hint;
  const SymRange range = SymEnv::current()->range(s.expr);
  if (range.low != range.high) return {};
  return range.low;
}

bool PlacedPart::find(OpId op, const Args& args, const Tensor& result) {
  thin = op == OpId::select_scatter;
  if (!thin && op != OpId::slice_scatter) return false;
  around = args[0].tensor(), value = args[1].tensor();
  dim = args[2].sym_int().hint;
  if (dim < 0) dim += result->dim();
  const auto size = fixed_size(result->sizes[size_t(dim)]);
  const auto start = args[3].is_none() ? 0 : fixed_size(args[3].sym_int());
  if (!size || !start || value->dtype != result->dtype) return false;
  from = std::clamp<int64_t>(*start < 0 ? *start + *size : *start, 0, *size), to = from + 1;
  if (thin) return true;
  const auto length = fixed_size(value->sizes[size_t(dim)]), step = fixed_size(args[5].sym_int());
  if (!length || step != 1) return false;
  to = from + *length;
  return *length > 0;
}

bool gives_zeros(OpId op, const Args& args) {
  if (op != OpId::full) return false;
  const Scalar& v = args[1].as<Scalar>();
  return !v.expr && v.to_double() == 0 && !std::signbit(v.to_double());
}

bool gives_sum(OpId op, const Args& args, const Tensor& result) {
  if (op != OpId::add || !is_float(result->dtype)) return false;
  const auto alike = [&](const Value& v) {
    return v.is<Tensor>() && v.tensor()->dtype == result->dtype && same_exprs(v.tensor()->sizes, result->sizes);
  };
  const Scalar& alpha = args[2].as<Scalar>();
  return alike(args[0]) && alike(args[1]) && !alpha.expr && alpha.to_double() == 1;
}

Tensor join(std::vector<Tensor> pieces, int64_t dim) { return op1(OpId::cat, {std::move(pieces), vdim(dim)}); }

}  // namespace lutra
