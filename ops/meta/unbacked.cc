// Specs of a dynamic op's results from its arguments and the size that its elements decide.
#include "ops/meta/unbacked.h"

#include "ops/meta/rules.h"

namespace lutra {
namespace {

ResultSpec dense(DType dtype, const Sizes& sizes) {
  ResultSpec s;
  s.dtype = dtype, s.sizes = sizes, s.strides = contiguous_strides(sizes);
  return s;
}

bool is_unique(OpId op) { return op == OpId::unique || op == OpId::unique_consecutive; }

// Returns whether unique works on slices along the first dim. The first size then counts them.
bool of_slices(const Args& args) {
  return !args.back().is_none() && args.back().sym_int().hint == 0 && args[0].as<Tensor>()->dim() > 0;
}

}  // namespace

bool tells_number(OpId op) { return op == OpId::tell_number; }

SymInt most_elements(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (op == OpId::bincount) return kMaxElements;
  if (op == OpId::masked_select) return numel(broadcast(op, x->sizes, args[1].as<Tensor>()->sizes));
  if (is_unique(op) && of_slices(args)) return x->sizes[0];
  return op == OpId::nonzero || (is_unique(op) && args.back().is_none()) ? x->numel() : SymInt(-1);
}

ResultSpecs specs_of_size(OpId op, const Args& args, SymInt n) {
  const Tensor& x = args[0].as<Tensor>();
  if (op == OpId::bincount) return {dense(args[1].is_none() ? DType::kInt64 : sums_of_weights(args[1].tensor()), {n})};
  if (op == OpId::tell_number) return {dense(DType::kFloat64, {})};
  if (op == OpId::nonzero) {
    ResultSpec s = dense(DType::kInt64, {n, x->dim()});
    s.strides = {1, n};
    return {s};
  }
  if (!is_unique(op)) return {dense(x->dtype, {n})};
  const size_t last = args.size() - 1;
  const bool inverse = args[last - 2].as<bool>(), counts = args[last - 1].as<bool>();
  Sizes values{n}, places = x->sizes;
  if (of_slices(args)) values = x->sizes, values[0] = n, places = {x->sizes[0]};
  return {dense(x->dtype, values), dense(DType::kInt64, inverse ? places : Sizes{0}),
          dense(DType::kInt64, {counts ? n : SymInt(0)})};
}

DType sums_of_weights(const Tensor& weights) {
  return weights->dtype == DType::kFloat32 ? weights->dtype : DType::kFloat64;
}

}  // namespace lutra
