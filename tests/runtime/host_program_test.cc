// Tests host expressions: evaluated from a run's inputs, converted if required, with guards over them.
#include <cmath>

#include <catch2/catch.hpp>

#include "jit/runtime/host_program.h"
#include "ops/core/tensor.h"

namespace lutra {

TEST_CASE("host programs evaluate what is needed", "[runtime]") {
  SymEnv env;
  const int32_t n = env.leaf(SymOp::kSize, 1, 0, 10), s = env.leaf(SymOp::kStride, 1, 1, 3);
  const int32_t x = env.leaf(SymOp::kScalarInput, 0, 0, 0, 0.5);
  const int32_t product = env.make(SymOp::kAdd, env.make(SymOp::kMul, n, s), env.constant(-1));
  const int32_t half = env.make(SymOp::kFloorDiv, product, env.constant(-2));
  const int32_t rest = env.make(SymOp::kMod, product, env.constant(-4));
  const int32_t number = env.make(SymOp::kNAdd, env.make(SymOp::kToNum, n), env.make(SymOp::kNPow, x, x));
  env.ask(SymCmp::kLt, n, env.constant(11));
  env.ask(SymCmp::kWhole, x, 0);
  HostProgram p;
  // The graph's input 0 is a constant: input 1 is the first of a run.
  const int32_t positions[] = {-1, 0};
  p.begin(env.exprs(), positions);
  const int32_t half_slot = p.int_slot(half), rest_slot = p.int_slot(rest), number_slot = p.number_slot(number);
  const int32_t n_slot = p.number_slot(n), x_slot = p.int_slot(x);
  for (const SymGuard& g : env.guards()) p.add_guard(g);
  REQUIRE(p.guard_count() == 2);
  CHECK(p.input_count() == 1);

  const SymInt sizes[] = {7, 2}, strides[] = {2, 5};
  const InputView input{nullptr, sizes, strides};
  const double scalar = 2.5;
  auto values = p.start_values();
  p.run(values.data(), &input, &scalar);
  CHECK(values[size_t(half_slot)].i == -17);
  CHECK(values[size_t(rest_slot)].i == -2);
  CHECK(values[size_t(number_slot)].d == 7 + std::pow(2.5, 2.5));
  CHECK(values[size_t(n_slot)].d == 7.0);
  CHECK(values[size_t(x_slot)].i == 2);
  CHECK(p.int_value(values.data(), half) == -17);
  CHECK(p.guards_hold(values.data()));

  const double whole = 2;
  p.run(values.data(), &input, &whole);
  CHECK_FALSE(p.guards_hold(values.data()));
  const SymInt large[] = {11, 2};
  const InputView other{nullptr, large, strides};
  p.run(values.data(), &other, &scalar);
  CHECK_FALSE(p.guards_hold(values.data()));
}

TEST_CASE("division by the size of an empty tensor is zero", "[runtime]") {
  SymEnv env;
  const int32_t n = env.leaf(SymOp::kSize, 0, 0, 4);
  const int32_t q = env.make(SymOp::kFloorDiv, env.constant(12), n);
  HostProgram p;
  p.begin(env.exprs(), {});
  p.int_slot(q);
  auto values = p.start_values();
  const SymInt zero = 0;
  const InputView input{nullptr, &zero, &zero};
  p.run(values.data(), &input, nullptr);
  CHECK(p.int_value(values.data(), q) == 0);
}

}  // namespace lutra
