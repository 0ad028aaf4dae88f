// Numbers as tensors. See numbers.h.
#include "ops/decompose/numbers.h"

#include "ops/decompose/emit.h"

namespace lutra {

Tensor number_of_element(const Tensor& t) {
  const GradModeScope without_history(false);
  const Tensor one = reshape(t, {}), number = to_dtype(one, DType::kFloat64);
  return number.same(one) ? op1(OpId::clone, {one}) : number;
}

void tell_number(const Tensor& element, const Scalar& number) {
  const GradModeScope without_history(false);
  op1(OpId::tell_number, {element, number});
}

Tensor truth_of_element(const Tensor& t) {
  const GradModeScope without_history(false);
  return op1(OpId::clone, {reshape(t, {})});
}

Tensor not_of(const Tensor& truth) {
  const GradModeScope without_history(false);
  return op1(OpId::logical_not, {truth});
}

Tensor number_remainder(const Tensor& a, const Tensor& b) { return sub(a, mul(op1(OpId::floor, {div(a, b)}), b)); }

bool counts_elements(OpId op, const Args& args) {
  if (op == OpId::argmax || op == OpId::argmin || op == OpId::count_nonzero) return true;
  return op == OpId::sum && size_of(args[0].tensor()->dtype) == 1;
}

}  // namespace lutra
