// A dynamic op's arguments and the size that its elements decide in; specs out.
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

}  // namespace

SymInt most_elements(OpId op, const Args& args) {
  const Tensor& x = args[0].as<Tensor>();
  if (op == OpId::bincount) return kMostElements;
  if (op == OpId::masked_select) return numel(broadcast(op, x->sizes, args[1].as<Tensor>()->sizes));
  return op == OpId::nonzero || (is_unique(op) && args.back().is_none()) ? x->numel() : SymInt(-1);
}

ResultSpecs specs_of_size(OpId op, const Args& args, SymInt n) {
  const Tensor& x = args[0].as<Tensor>();
  if (op == OpId::bincount) return {dense(args[1].is_none() ? DType::kInt64 : sums_of_weights(args[1].tensor()), {n})};
  if (op == OpId::nonzero) {
    ResultSpec s = dense(DType::kInt64, {n, x->dim()});
    s.strides = {1, n};
    return {s};
  }
  if (!is_unique(op)) return {dense(x->dtype, {n})};
  const size_t last = args.size() - 1;
  const bool inverse = args[last - 2].as<bool>(), counts = args[last - 1].as<bool>();
  return {dense(x->dtype, {n}), dense(DType::kInt64, inverse ? x->sizes : Sizes{0}),
          dense(DType::kInt64, {counts ? n : SymInt(0)})};
}

DType sums_of_weights(const Tensor& weights) {
  return weights->dtype == DType::kFloat32 ? weights->dtype : DType::kFloat64;
}

}  // namespace lutra
