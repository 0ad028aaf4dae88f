// Tests that indices out of range are errors when the op runs, for all ranks, and that elements that are not written
// keep their values.
#include <catch2/catch.hpp>

#include "ops/decompose/emit.h"
#include "tests/ops/naive_executor.h"

namespace lutra {
namespace {

Tensor ints(const Sizes& sizes, const std::vector<double>& v) { return tensor_of(sizes, v, DType::kInt64); }

ErrorKind kind_of(OpId op, Args args) {
  try {
    call_op(op, std::move(args));
  } catch (const Error& e) {
    return e.kind;
  }
  return ErrorKind::kInternal;
}

}  // namespace

TEST_CASE("bad indices", "[ops][eager]") {
  Tensor x = tensor_of({2, 3}, {0, 1, 2, 3, 4, 5}), zero = tensor_of({}, {7});
  for (double bad : {3.0, -1.0, 1e15}) {
    CHECK(kind_of(OpId::gather, {x, int_arg(1), ints({2, 1}, {0, bad})}) == ErrorKind::kData);
    CHECK(kind_of(OpId::index_select, {x, int_arg(1), ints({2}, {0, bad})}) == ErrorKind::kData);
    CHECK(kind_of(OpId::index_select, {x, int_arg(1), ints({}, {bad})}) == ErrorKind::kData);
    CHECK(kind_of(OpId::scatter_add, {x, int_arg(1), ints({1, 1}, {bad}), x}) == ErrorKind::kData);
    CHECK(kind_of(OpId::scatter_add, {x, int_arg(1), ints({2, 3}, {0, 0, 0, 0, 0, bad}), x}) == ErrorKind::kData);
    CHECK(kind_of(OpId::index_add, {x, int_arg(1), ints({3}, {0, 1, bad}), x}) == ErrorKind::kData);
    CHECK(kind_of(OpId::gather, {zero, int_arg(0), ints({}, {bad})}) == ErrorKind::kData);
    CHECK(kind_of(OpId::index_select, {zero, int_arg(0), ints({1}, {bad})}) == ErrorKind::kData);
    CHECK(kind_of(OpId::scatter_add, {zero, int_arg(0), ints({}, {bad}), zero}) == ErrorKind::kData);
    CHECK(kind_of(OpId::nll_loss, {x, ints({2}, {0, bad})}) == ErrorKind::kData);
    CHECK(kind_of(OpId::cross_entropy, {x, ints({2}, {bad, 0})}) == ErrorKind::kData);
  }
  CHECK(values(x) == std::vector<double>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("scatters into parts", "[ops][eager]") {
  Tensor x = tensor_of({2, 3}, {0, 1, 2, 3, 4, 5}), src = tensor_of({2, 2}, {10, 20, 30, 40});
  using List = std::vector<double>;
  CHECK(values(scatter_add(x, int_arg(1), ints({2, 2}, {2, 2, 0, 1}), src)) == List{0, 1, 32, 33, 44, 5});
  CHECK(values(scatter_add(x, int_arg(0), ints({1, 2}, {1, 0}), src)) == List{0, 21, 2, 13, 4, 5});
  CHECK(values(index_add(x, int_arg(1), ints({2}, {1, 1}), src)) == List{0, 31, 2, 3, 74, 5});
  CHECK(values(scatter_add(tensor_of({}, {1}), int_arg(0), ints({3}, {0, 0, 0}), tensor_of({3}, {1, 2, 3}))) ==
        List{7});
  CHECK(values(index_add(tensor_of({}, {1}), int_arg(0), ints({1}, {0}), tensor_of({}, {2}))) == List{3});
}

}  // namespace lutra
