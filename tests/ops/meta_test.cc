// Meta rules: dtypes and layouts against recorded PyTorch answers, symbolic sizes and their guards, error messages.
#include <cmath>

#include <catch2/catch.hpp>

#include "ops/defs/call.h"
#include "ops/meta/rules.h"
#include "tests/golden.h"
#include "tests/message.h"

namespace lutra {
namespace {

Tensor fake(const Sizes& sizes, DType dtype = DType::kFloat32) {
  return make_fake(sizes, contiguous_strides(sizes), dtype);
}

ResultSpecs meta(OpId op, Args args) {
  complete_args(info(op), args);
  return info(op).meta(op, args);
}

std::string dtype_or_error(OpId op, Args args) {
  try {
    return name(meta(op, std::move(args))[0].dtype);
  } catch (const Error&) {
    return "error";
  }
}

Value operand(const std::string& text) {
  size_t colon = text.find(':');
  if (text == "True") return Scalar::of_bool(true);
  if (colon == std::string::npos) return Scalar(std::stod(text));
  DType type = dtype_from_name(text.substr(0, colon));
  return fake(text.back() == '1' ? Sizes{2} : Sizes{}, type);
}

std::istringstream lines(const std::string& file) { return std::istringstream(read_text("tests/ops/" + file)); }

// "[2,3]"
Sizes list_of(std::string_view text) {
  Sizes out;
  std::istringstream in(std::string(text.substr(1, text.size() - 2)));
  for (std::string item; std::getline(in, item, ',');) out.push_back(std::stoll(item));
  return out;
}

std::string show(const Sizes& s) {
  std::string out = "[";
  for (size_t i = 0; i < s.size(); i++) out += (i ? "," : "") + std::to_string(s[i].hint);
  return out + "]";
}

std::string show(const ResultSpec& r) { return show(r.sizes) + "/" + show(r.strides); }

Tensor strided(const std::string& text) {
  size_t slash = text.find('/');
  return make_fake(list_of(text.substr(0, slash)), list_of(text.substr(slash + 1)), DType::kFloat32);
}

}  // namespace

TEST_CASE("promotion is PyTorch's", "[ops]") {
  int rows = 0;
  auto in = lines("promotion.txt");
  for (std::string a, b, add, div, eq, pow; in >> a >> b >> add >> div >> eq >> pow; rows++) {
    INFO(a << " with " << b);
    CHECK(dtype_or_error(OpId::add, {operand(a), operand(b)}) == add);
    CHECK(dtype_or_error(OpId::div, {operand(a), operand(b)}) == div);
    CHECK(dtype_or_error(OpId::eq, {operand(a), operand(b)}) == eq);
    // PyTorch takes a power of True for a copy; ours is not defined on bool.
    if (b != "True" || a.substr(0, 4) != "bool") CHECK(dtype_or_error(OpId::pow, {operand(a), operand(b)}) == pow);
  }
  CHECK(rows == 460);
}

TEST_CASE("dtypes of unary ops and reductions are PyTorch's", "[ops]") {
  auto in = lines("unary_dtypes.txt");
  std::string line;
  REQUIRE(std::getline(in, line));
  std::istringstream head(line.substr(1));
  std::vector<OpId> ops;
  for (std::string op; head >> op;) ops.push_back(find_op(op));
  int rows = 0;
  for (; std::getline(in, line); rows++) {
    std::istringstream row(line);
    std::string dtype, expected;
    row >> dtype;
    for (OpId op : ops) {
      row >> expected;
      INFO(name(op) << " of " << dtype);
      CHECK(dtype_or_error(op, {fake({2}, dtype_from_name(dtype))}) == expected);
    }
  }
  CHECK(rows == 10);
}

TEST_CASE("layouts are PyTorch's", "[ops]") {
  auto in = lines("layout.txt");
  int rows = 0;
  for (std::string kind, a, b, c, d; in >> kind >> a; rows++) {
    INFO(kind << " " << a);
    if (kind == "unary") {
      in >> b >> c >> d;
      CHECK(show(meta(OpId::neg, {strided(a)})[0]) == b);
      CHECK(show(meta(OpId::clone, {strided(a)})[0]) == c);
      CHECK(show(meta(OpId::to_dtype, {strided(a), DType::kFloat64})[0]) == d);
    } else if (kind == "binary") {
      in >> b >> c;
      INFO("with " << b);
      CHECK(show(meta(OpId::add, {strided(a), strided(b)})[0]) == c);
    } else {
      in >> b >> c;
      INFO("as " << b);
      std::string got = "error";
      try {
        got = show(meta(OpId::view, {strided(a), list_of(b)})[0]);
      } catch (const Error&) {
      }
      CHECK(got == c);
    }
  }
  CHECK(rows > 30);
}

TEST_CASE("numbers next to tensors", "[ops]") {
  Tensor ids = fake({2}, DType::kInt64), mask = fake({2}, DType::kBool), half = fake({2}, DType::kFloat16);
  CHECK(dtype_or_error(OpId::mul, {ids, Scalar(2.0)}) == "int64");
  CHECK(dtype_or_error(OpId::mul, {ids, Scalar(0.5)}) == "float32");
  CHECK(dtype_or_error(OpId::mul, {ids, Scalar(INFINITY)}) == "float32");
  CHECK(dtype_or_error(OpId::add, {mask, Scalar(1.0)}) == "int64");
  CHECK(dtype_or_error(OpId::add, {mask, Scalar(0.5)}) == "float32");
  CHECK(dtype_or_error(OpId::add, {half, Scalar(0.5)}) == "float16");
  CHECK(dtype_or_error(OpId::where, {mask, Scalar(1.0), Scalar(0.0)}) == "float32");
  CHECK(dtype_or_error(OpId::full, {Sizes{2}, Scalar(3.0)}) == "float32");
  CHECK(dtype_or_error(OpId::full, {Sizes{2}, Scalar::of_bool(true)}) == "bool");
  CHECK(dtype_or_error(OpId::arange, {Scalar(5.0)}) == "int64");
  CHECK(dtype_or_error(OpId::arange, {Scalar(0.0), Scalar(1.0), Scalar(0.25)}) == "float32");
}

TEST_CASE("symbolic sizes", "[ops]") {
  SymEnv env;
  SymScope scope(&env);
  SymInt b = SymInt::of_expr(env, env.leaf(SymOp::kSize, 0, 0, 128));
  SymInt c = SymInt::of_expr(env, env.leaf(SymOp::kSize, 1, 0, 128));
  auto print = [&](SymInt s) { return env.print(s.to_expr()); };

  SECTION("of one tensor ask nothing") {
    Tensor x = fake({b, 784}), w = fake({256, 784}), bias = fake({256});
    ResultSpec y = meta(OpId::linear, {x, w, bias})[0];
    CHECK(print(y.sizes[0]) == "size(0, 0)");
    CHECK(y.strides[0].hint == 256);
    Tensor h = fake(y.sizes);
    meta(OpId::relu, {h}), meta(OpId::log_softmax, {h, Scalar::of_int(1)}), meta(OpId::sum, {h});
    meta(OpId::add, {h, bias}), meta(OpId::transpose, {h, Scalar::of_int(0), Scalar::of_int(1)});
    CHECK(print(meta(OpId::view, {h, Sizes{-1}})[0].sizes[0]) == "mul(size(0, 0), 256)");
    CHECK(print(meta(OpId::view, {fake({b * 256}), Sizes{-1, 256}})[0].sizes[0]) == "size(0, 0)");
    CHECK(meta(OpId::add, {h, fake({b, 1})})[0].sizes[1].hint == 256);
    CHECK(env.guards().empty());
  }
  SECTION("of two tensors ask whether they are equal, once") {
    meta(OpId::add, {fake({b, 3}), fake({c, 3})});
    meta(OpId::add, {fake({b, 3}), fake({c, 3})});
    REQUIRE(env.guards().size() == 1);
    CHECK(env.guards()[0].cmp == SymCmp::kEq);
    CHECK(env.guards()[0].outcome);
  }
  SECTION("equal products are equal expressions") {
    SymInt n = (b * 4) * c, m = c * (b * 4);
    CHECK(n.expr == m.expr);
    CHECK(floor_div(b * 6, 6).expr == b.expr);
    CHECK(floor_mod(b * 6, 6).is_constant());
    CHECK((b - b).is_constant());
    CHECK((b + 0).expr == b.expr);
    CHECK((b + c).expr == (c + b).expr);
    CHECK_FALSE(b < 0);
    CHECK(env.guards().empty());
  }
  SECTION("a slice asks where its end lies") {
    ResultSpec s = meta(OpId::slice, {fake({b}), Scalar::of_int(0), Scalar::of_int(0), Scalar::of_int(100)})[0];
    CHECK(s.sizes[0].hint == 100);
    CHECK(env.guards().size() == 1);
  }
  SECTION("a symbolic number's wholeness is asked next to integers only") {
    Scalar lr(0.5);
    lr.expr = env.leaf(SymOp::kScalarInput, 0, 0, 0, 0.5);
    meta(OpId::mul, {fake({b}), lr});
    CHECK(env.guards().empty());
    CHECK(meta(OpId::mul, {fake({b}, DType::kInt64), lr})[0].dtype == DType::kFloat32);
    REQUIRE(env.guards().size() == 1);
    CHECK(env.guards()[0].cmp == SymCmp::kWhole);
    CHECK_FALSE(env.guards()[0].outcome);
  }
}

TEST_CASE("messages of meta rules", "[ops]") {
  std::string text;
  auto add = [&](OpId op, Args args) { text += message([&] { meta(op, std::move(args)); }) + "\n"; };
  auto i = [](int64_t v) { return Scalar::of_int(v); };
  Tensor x = fake({2, 3}), y = fake({4, 5}), ids = fake({2}, DType::kInt64), mask = fake({2}, DType::kBool);
  add(OpId::matmul, {x, y});
  add(OpId::mm, {x, fake({3})});
  add(OpId::mm, {x, fake({3, 2}, DType::kFloat64)});
  add(OpId::bmm, {fake({2, 3, 4}), fake({3, 4, 5})});
  add(OpId::linear, {x, y});
  add(OpId::linear, {x, fake({4, 3}), fake({5})});
  add(OpId::add, {x, y});
  add(OpId::add, {fake({5, 3}), fake({2, 4, 3})});
  add(OpId::add, {ids, ids, Scalar(0.5)});
  add(OpId::add, {Scalar(1.0), Scalar(2.0)});
  add(OpId::add, {x, std::string("y")});
  add(OpId::add, {x});
  add(OpId::add, {x, x, Scalar(1.0), x});
  add(OpId::relu, {Scalar(1.0)});
  add(OpId::sub, {mask, mask});
  add(OpId::neg, {mask});
  add(OpId::pow, {ids, Scalar(-1.0)});
  add(OpId::sum, {x, i(3)});
  add(OpId::sum, {x, Sizes{0, -2}});
  add(OpId::sum, {x, Scalar(0.5)});
  add(OpId::mean, {ids});
  add(OpId::amax, {fake({2, 0}), i(1)});
  add(OpId::softmax, {ids, i(0)});
  add(OpId::view, {x, Sizes{4}});
  add(OpId::view, {x, Sizes{-1, -1}});
  add(OpId::view, {x, Sizes{-2, 3}});
  add(OpId::view, {fake({2, 0}), Sizes{-1, 0}});
  add(OpId::view, {make_fake({2, 3}, {1, 2}, DType::kFloat32), Sizes{6}});
  add(OpId::permute, {x, Sizes{0}});
  add(OpId::as_strided_scatter, {x, fake({2, 3, 1}), Sizes{2, 3}, Sizes{3, 1}, i(0)});
  add(OpId::as_strided_scatter, {x, fake({2, 2}), Sizes{2, 3}, Sizes{3, 1}, i(0)});
  add(OpId::as_strided_scatter, {x, x, Sizes{2, 3}, Sizes{3}, i(0)});
  add(OpId::as_strided_scatter, {x, x, Sizes{2, 3}, Sizes{3, 1}, i(1)});
  add(OpId::as_strided_scatter, {x, x, Sizes{2, 3}, Sizes{3, -1}, i(4)});
  add(OpId::permute, {x, Sizes{0, 0}});
  add(OpId::expand, {x, Sizes{4, 3}});
  add(OpId::expand, {x, Sizes{3}});
  add(OpId::expand, {x, Sizes{-1, 2, 3}});
  add(OpId::select, {x, i(0), i(2)});
  add(OpId::select, {x, i(0), i(-3)});
  add(OpId::slice, {x, i(0), Value(), Value(), i(0)});
  add(OpId::gather, {x, i(0), x});
  add(OpId::gather, {x, i(0), fake({2, 4}, DType::kInt64)});
  add(OpId::gather, {x, i(0), ids});
  add(OpId::scatter_add, {x, i(0), fake({2, 3}, DType::kInt64), fake({1, 3})});
  add(OpId::index_select, {x, i(0), fake({1, 1}, DType::kInt64)});
  add(OpId::index_add, {x, i(0), ids, fake({1, 3})});
  add(OpId::cross_entropy, {x, fake({3}, DType::kInt64)});
  add(OpId::cross_entropy, {x, fake({2}, DType::kInt32)});
  add(OpId::cross_entropy, {x, ids, Value(), i(-100), std::string("avg")});
  add(OpId::nll_loss, {x, ids, fake({2})});
  add(OpId::where, {x, x, x});
  add(OpId::masked_fill, {fake({2}), ids, Scalar(1.0)});
  add(OpId::full, {Sizes{-1}, Scalar(0.0)});
  add(OpId::full, {Sizes{int64_t(1) << 40, int64_t(1) << 40}, Scalar(0.0)});
  add(OpId::arange, {Scalar(0.0), Scalar(5.0), Scalar(0.0)});
  add(OpId::arange, {Scalar(5.0), Scalar(0.0)});
  add(OpId::randint, {i(5), i(5), Sizes{2}});
  add(OpId::clamp, {x});
  add(OpId::lerp, {x, fake({2, 3}, DType::kFloat64), Scalar(0.5)});
  check_golden("ops/messages.txt", text);
}

}  // namespace lutra
