// Eager ops against plain loops: dtypes, broadcasting, layouts, empty and zero-dimensional tensors, writes in place.
#include <cmath>
#include <functional>

#include <catch2/catch.hpp>

#include "jit/eager/eager.h"
#include "jit/runtime/executable.h"
#include "ops/core/settings.h"
#include "tests/eager/values.h"

namespace lutra {
namespace {

// The linear position in t of the element that broadcasts to position `linear` of sizes.
int64_t broadcast_position(const Tensor& t, const Sizes& sizes, int64_t linear) {
  int64_t result = 0, step = 1;
  const size_t missing = sizes.size() - t->sizes.size();
  for (size_t d = sizes.size(); d-- > 0;) {
    const int64_t i = linear % sizes[d].hint;
    linear /= sizes[d].hint;
    if (d < missing || t->sizes[d - missing].hint == 1) continue;
    result += i * step;
    step *= t->sizes[d - missing].hint;
  }
  return result;
}

using Binary = std::function<double(double, double)>;

void check_binary(OpId op, const Tensor& a, const Tensor& b, const Binary& reference) {
  INFO(name(op) << " " << describe(a) << to_string(a->strides) << " " << describe(b) << to_string(b->strides));
  const Tensor y = op1(op, {a, b});
  int64_t wrong = 0;
  for (int64_t i = 0; i < count(y); i++) {
    const double x = get(a, broadcast_position(a, y->sizes, i)), z = get(b, broadcast_position(b, y->sizes, i));
    wrong += get(y, i) != reference(x, z);
  }
  CHECK(wrong == 0);
}

Tensor view(OpId op, Args args) { return op1(op, std::move(args)); }

// Tensors of sizes {6, 8} in many layouts, and such that broadcast to it.
std::vector<Tensor> layouts(DType t) {
  std::vector<Tensor> all;
  all.push_back(tensor_of({6, 8}, t, 1));
  all.push_back(view(OpId::transpose, {tensor_of({8, 6}, t, 2), integer(0), integer(1)}));
  all.push_back(view(OpId::slice, {tensor_of({6, 17}, t, 3), integer(1), integer(1), Value(), integer(2)}));
  all.push_back(view(OpId::slice, {tensor_of({11, 8}, t, 4), integer(0), Value(), Value(), integer(2)}));
  all.push_back(view(OpId::expand, {tensor_of({6, 1}, t, 5), Sizes{6, 8}}));
  all.push_back(view(OpId::select, {tensor_of({6, 3, 8}, t, 6), integer(1), integer(1)}));
  all.push_back(tensor_of({8}, t, 7));
  all.push_back(tensor_of({6, 1}, t, 8));
  all.push_back(tensor_of({1, 8}, t, 9));
  all.push_back(tensor_of({}, t, 10));
  return all;
}

}  // namespace

TEST_CASE("eager binary ops over dtypes and layouts", "[eager]") {
  for (const DType t : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kInt32}) {
    const auto all = layouts(t);
    for (const Tensor& a : all) {
      for (const Tensor& b : all) {
        check_binary(OpId::add, a, b, [](double x, double y) { return x + y; });
        check_binary(OpId::mul, a, b, [](double x, double y) { return x * y; });
        check_binary(OpId::lt, a, b, [](double x, double y) { return double(x < y); });
      }
    }
    check_binary(OpId::sub, all[1], all[6], [](double x, double y) { return x - y; });
    check_binary(OpId::minimum, all[1], all[3], [](double x, double y) { return std::min(x, y); });
    check_binary(OpId::maximum, all[0], all[4], [](double x, double y) { return std::max(x, y); });
  }
}

TEST_CASE("eager promotes dtypes as PyTorch does", "[eager]") {
  const Tensor f = tensor_of({3}, DType::kFloat32, 1), i = tensor_of({3}, DType::kInt64, 2);
  const Tensor b = tensor_of({3}, DType::kBool, 3), d = tensor_of({}, DType::kFloat64, 4);
  CHECK(op1(OpId::add, {f, i})->dtype == DType::kFloat32);
  CHECK(op1(OpId::add, {i, b})->dtype == DType::kInt64);
  CHECK(op1(OpId::add, {f, d})->dtype == DType::kFloat32);  // a zero-dimensional tensor does not widen
  CHECK(op1(OpId::add, {i, d})->dtype == DType::kFloat64);
  CHECK(op1(OpId::add, {i, Scalar(2.0)})->dtype == DType::kInt64);
  CHECK(op1(OpId::add, {i, Scalar(2.5)})->dtype == DType::kFloat32);
  CHECK(values(op1(OpId::add, {i, Scalar(2.0)}))[1] == get(i, 1) + 2);
  CHECK(values(op1(OpId::mul, {i, Scalar(2.5)}))[2] == get(i, 2) * 2.5);
  const int64_t large = (int64_t(1) << 60) + 1;  // no double holds it
  const Tensor sum = op1(OpId::add, {op1(OpId::mul, {i, integer(0)}), integer(large)});
  CHECK(*sum->data_as<int64_t>() == large);
}

TEST_CASE("eager on empty and zero-dimensional tensors", "[eager]") {
  const Tensor e = make_tensor({0, 4}, DType::kFloat32), row = tensor_of({4}, DType::kFloat32, 1);
  CHECK(count(op1(OpId::add, {e, row})) == 0);
  CHECK(values(op1(OpId::sum, {e})) == std::vector<double>{0});
  CHECK(values(op1(OpId::sum, {e, Sizes{0}})) == std::vector<double>{0, 0, 0, 0});
  const Tensor a = tensor_of({}, DType::kFloat32, 1), b = tensor_of({}, DType::kFloat32, 2);
  const Tensor y = op1(OpId::add, {a, b});
  CHECK(y->dim() == 0);
  CHECK(get(y, 0) == get(a, 0) + get(b, 0));
  CHECK(get(op1(OpId::sum, {a}), 0) == get(a, 0));
}

TEST_CASE("eager walks more dims than code has loops for", "[eager]") {
  const Tensor a = tensor_of({2, 3, 2, 3, 2, 3, 2}, DType::kFloat32, 1);
  const Tensor p = view(OpId::permute, {a, Sizes{6, 4, 2, 0, 1, 3, 5}});
  const Tensor b = tensor_of({2, 2, 2, 2, 3, 3, 3}, DType::kFloat32, 2);
  check_binary(OpId::add, b, p, [](double x, double y) { return x + y; });
  check_binary(OpId::add, p, b, [](double x, double y) { return x + y; });
}

TEST_CASE("eager code serves all sizes", "[eager]") {
  for (const int64_t n : {5, 1}) op1(OpId::mul, {tensor_of({n, 3}, DType::kFloat32, 1), Scalar(0.5)});
  const size_t before = eager_entries();
  for (const int64_t n : {1, 2, 3, 100, 0, 77}) {
    for (const double s : {0.25, -1.5, 3e10 + 0.5}) {
      const Tensor x = tensor_of({n, 3}, DType::kFloat32, 1), y = op1(OpId::mul, {x, Scalar(s)});
      for (int64_t i = 0; i < count(y); i++) CHECK(float(get(y, i)) == float(get(x, i)) * float(s));
    }
  }
  CHECK(eager_entries() == before);
}

TEST_CASE("eager code of two instruction sets is kept side by side", "[eager]") {
  const Tensor x = tensor_of({5, 3}, DType::kFloat32, 1);
  settings().isa = "interp";
  clear_eager();  // of cases that ran before
  settings().isa = "";
  op1(OpId::mul, {x, Scalar(0.5)});
  const size_t before = eager_entries();
  REQUIRE(before > 0);
  for (int i = 0; i < 2; i++) {
    settings().isa = "interp";
    op1(OpId::mul, {x, Scalar(0.5)});
    CHECK(eager_entries() == 1);
    settings().isa = "";
    CHECK(eager_entries() == before);
  }
}

TEST_CASE("arithmetic on tensors alike takes the short way", "[eager]") {
  const Tensor a = tensor_of({6, 8}, DType::kFloat32, 1), b = tensor_of({6, 8}, DType::kFloat32, 2);
  for (OpId op : {OpId::add, OpId::sub, OpId::mul, OpId::div}) {
    INFO(name(op));
    Tensor out;
    REQUIRE(call_same(op, a, b, out));
    CHECK(same_bits(out, op1(op, {a, b})));
  }
}

TEST_CASE("eager writes in place", "[eager]") {
  Tensor x = tensor_of({4, 6}, DType::kFloat32, 1);
  const auto was = values(x);
  const uint32_t version = x->storage->version;
  CHECK(call_inplace(OpId::add, {x, Scalar(1.0)}).same(x));
  CHECK(x->storage->version == version + 1);
  for (size_t i = 0; i < was.size(); i++) CHECK(get(x, int64_t(i)) == was[i] + 1);
  // Through a view, with a broadcast operand and with itself.
  const Tensor column = view(OpId::select, {x, integer(1), integer(2)});
  call_inplace(OpId::mul, {column, tensor_of({}, DType::kFloat32, 7)});
  CHECK(get(x, 2) == (was[2] + 1) * get(tensor_of({}, DType::kFloat32, 7), 0));
  CHECK(get(x, 3) == was[3] + 1);
  const double three = get(x, 3);
  call_inplace(OpId::add, {x, x});
  CHECK(get(x, 3) == 2 * three);
  // Elements of one memory in another order.
  Tensor square = tensor_of({5, 5}, DType::kFloat32, 3);
  CHECK_THROWS_WITH(call_inplace(OpId::add, {square, view(OpId::transpose, {square, integer(0), integer(1)})}),
                    Catch::Contains("share some memory"));
  // Every second element takes the next such: read before any is written.
  Tensor line = tensor_of({12}, DType::kFloat32, 4);
  const auto old = values(line);
  const auto every_second = [&](int64_t from, int64_t to) {
    return view(OpId::slice, {line, integer(0), integer(from), integer(to), integer(2)});
  };
  call_inplace(OpId::add, {every_second(2, 12), every_second(0, 10)});
  for (size_t i = 2; i < 12; i += 2) CHECK(get(line, int64_t(i)) == old[i] + old[i - 2]);
}

TEST_CASE("copy_ converts and broadcasts", "[eager]") {
  const Tensor f = tensor_of({3, 4}, DType::kFloat32, 1);
  for (const DType t : {DType::kFloat64, DType::kInt64, DType::kInt32, DType::kBool}) {
    const Tensor y = make_tensor({3, 4}, t);
    call_op(OpId::copy_, {y, f});
    for (int64_t i = 0; i < 12; i++) {
      CHECK(get(y, i) == (t == DType::kBool ? double(get(f, i) != 0)
                          : is_float(t)     ? get(f, i)
                                            : std::trunc(get(f, i))));
    }
    const Tensor back = op1(OpId::to_dtype, {y, DType::kFloat32});
    CHECK(get(back, 5) == get(y, 5));
  }
  const Tensor y = make_tensor({3, 4}, DType::kFloat32), row = tensor_of({4}, DType::kFloat32, 2);
  call_op(OpId::copy_, {y, row});
  CHECK(get(y, 9) == get(row, 1));
}

TEST_CASE("eager reductions over layouts", "[eager]") {
  for (const Tensor& x : layouts(DType::kFloat64)) {
    if (x->dim() != 2 || x->sizes[0].hint != 6 || x->sizes[1].hint != 8) continue;
    double total = 0;
    for (double v : values(x)) total += v;
    CHECK(get(op1(OpId::sum, {x}), 0) == total);  // quarters: exact in any order
    const Tensor rows = op1(OpId::sum, {x, Sizes{1}}), columns = op1(OpId::amax, {x, Sizes{0}, true});
    CHECK(columns->sizes.size() == 2);
    for (int64_t r = 0; r < 6; r++) {
      double sum = 0;
      for (int64_t c = 0; c < 8; c++) sum += get(x, r * 8 + c);
      CHECK(get(rows, r) == sum);
    }
    for (int64_t c = 0; c < 8; c++) {
      double most = -INFINITY;
      for (int64_t r = 0; r < 6; r++) most = std::max(most, get(x, r * 8 + c));
      CHECK(get(columns, c) == most);
    }
    const Tensor at = op1(OpId::argmax, {x, integer(1)});
    for (int64_t r = 0; r < 6; r++) {
      int64_t best = 0;
      for (int64_t c = 1; c < 8; c++) {
        if (get(x, r * 8 + c) > get(x, r * 8 + best)) best = c;
      }
      CHECK(get(at, r) == double(best));
    }
  }
}

TEST_CASE("eager products of float64 and integers are loops", "[eager]") {
  for (const DType t : {DType::kFloat32, DType::kFloat64, DType::kInt64}) {
    const Tensor a = tensor_of({5, 7}, t, 1);
    const Tensor b = view(OpId::transpose, {tensor_of({3, 7}, t, 2), integer(0), integer(1)});
    const Tensor y = op1(OpId::mm, {a, b});
    for (int64_t r = 0; r < 5; r++) {
      for (int64_t c = 0; c < 3; c++) {
        double sum = 0;
        for (int64_t k = 0; k < 7; k++) sum += get(a, r * 7 + k) * get(b, k * 3 + c);
        CHECK(get(y, r * 3 + c) == sum);
      }
    }
  }
}

TEST_CASE("eager errors leave the session as it was", "[eager]") {
  Generator& g = default_generator();
  const uint64_t calls = g.next_call;
  for (const OpId op : {OpId::rand, OpId::empty}) {
    try {
      call_op(op, {Sizes{int64_t(1) << 28, int64_t(1) << 28}});
      FAIL("no error");
    } catch (const Error& e) {
      CHECK(e.kind == ErrorKind::kMemory);
    }
  }
  CHECK(g.next_call == calls);
  const Tensor x = tensor_of({2, 10}, DType::kFloat32, 1);
  Tensor index = make_tensor({2, 2}, DType::kInt64);
  for (int i = 0; i < 4; i++) index->data_as<int64_t>()[i] = i;
  index->data_as<int64_t>()[3] = 12;
  try {
    op1(OpId::gather, {x, integer(1), index});
    FAIL("no error");
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::kData);
    CHECK(std::string(e.what()) == "gather: index 12 is out of bounds for dimension 1 with size 10");
  }
  index->data_as<int64_t>()[3] = 9;
  CHECK(get(op1(OpId::gather, {x, integer(1), index}), 3) == get(x, 19));
}

TEST_CASE("eager random ops take one call index each", "[eager]") {
  Generator& g = default_generator();
  const Generator saved = g;
  g = {1234, 0};
  const Tensor a = op1(OpId::rand, {Sizes{3, 5}}), b = op1(OpId::rand, {Sizes{3, 5}});
  CHECK(g.next_call == 2);
  op1(OpId::randn, {Sizes{0}});
  CHECK(g.next_call == 3);
  g.next_call = 1;
  const Tensor again = op1(OpId::rand, {Sizes{15}});
  CHECK(values(again) == values(b));
  CHECK(values(a) != values(b));
  for (double v : values(a)) CHECK((v >= 0 && v < 1));
  const Tensor dice = op1(OpId::randint, {integer(1), integer(7), Sizes{1000}});
  for (double v : values(dice)) CHECK((v >= 1 && v < 7));
  g = saved;
}

}  // namespace lutra
