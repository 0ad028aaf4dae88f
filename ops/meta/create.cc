// Meta rules of ops that make tensors from numbers.
#include <cmath>
#include <cstdlib>

#include "ops/meta/rules.h"

namespace lutra {
namespace {

ResultSpec create_spec(OpId op, const Sizes& sizes, const Value& dtype, DType otherwise) {
  for (SymInt s : sizes) {
    if (s < 0) fail(name(op), ": sizes must not be negative, got ", to_string(sizes));
  }
  const DType type = dtype.is_none() ? otherwise : dtype.as<DType>();
  const std::optional<int64_t> elements = count_elements(sizes);
  if (!elements || *elements > INT64_MAX / 16) {
    fail(name(op), ": sizes ", to_string(sizes), " overflow the address space");
  }
  // Capture allocates nothing. If no machine can address so much, it raises eager's error.
  const int64_t bytes = bytes_of(type, *elements);
  if (bytes >= int64_t(1) << 56) {
    throw Error(ErrorKind::kMemory, str("out of memory: tried to allocate ", bytes, " bytes"));
  }
  return contiguous_spec(sizes, type);
}

}  // namespace

ResultSpecs meta_full(OpId op, const Args& args) {
  const Scalar& value = args[1].as<Scalar>();
  DType type = DType::kFloat32;
  if (value.kind == Scalar::kInt) type = DType::kInt64;
  if (value.kind == Scalar::kBool) type = DType::kBool;
  return {create_spec(op, args[0].as<Sizes>(), args[2], type)};
}

ResultSpecs meta_empty(OpId op, const Args& args) {
  ResultSpec spec = create_spec(op, args[0].as<Sizes>(), args[1], DType::kFloat32);
  if (op != OpId::empty && !is_float(spec.dtype)) fail(name(op), ": not defined for ", name(spec.dtype), " tensors");
  return {spec};
}

ResultSpecs meta_randint(OpId op, const Args& args) {
  SymInt low = args[0].sym_int(), high = args[1].sym_int();
  if (low >= high) fail("randint: expected low < high, got ", low.hint, " and ", high.hint);
  const ResultSpec spec = create_spec(op, args[2].as<Sizes>(), args[3], DType::kInt64);
  const int64_t most = is_bool(spec.dtype) ? 1 : is_float(spec.dtype) ? INT64_MAX : greatest_integer(spec.dtype);
  if (!high.expr && high.hint - 1 > most) {
    fail("randint: high - 1 = ", high.hint - 1, " is out of bounds for ", name(spec.dtype));
  }
  return {spec};
}

namespace {

// Converts a Scalar to a size, if it is whole and that needs no specialisation.
bool as_size(Scalar s, SymInt& out) {
  if (s.expr && s.kind == Scalar::kNumber && !SymEnv::current()->varies(s.expr)) return false;
  if (!to_integer(s)) return false;
  out = SymInt(s.to_int());
  out.expr = s.expr;
  return true;
}

// Returns whether s is an integer, as a double holds it or as a Lua program wrote an int64_t.
bool as_integer(const Scalar& s, int64_t& out) {
  if (s.kind == Scalar::kInt) return out = s.i, true;
  const double d = s.to_double();
  if (s.kind == Scalar::kUInt || std::floor(d) != d || std::fabs(d) > 0x1p53) return false;
  out = int64_t(d);
  return true;
}

bool is_small_step(const Scalar& step) {
  constexpr double kMost = 1 << 30;
  if (step.expr) return true;
  if (step.kind == Scalar::kBool) return false;
  const double d = step.to_double();
  return d != 0 && d == std::floor(d) && std::fabs(d) <= kMost;
}

}  // namespace

namespace {

// Returns the number of elements of a range of numbers that are known to change, without which they would be pinned.
// Returns nothing if they don't change, or if the elements are int64: then the numbers are truncated first.
std::optional<SymInt> changing_count(const Scalar& start, const Scalar& end, const Scalar& step, DType type) {
  const auto varies = [](const Scalar& s) { return s.expr && SymEnv::current()->varies(s.expr); };
  if (!varies(start) && !varies(end) && !varies(step)) return {};
  if (is_index(type) && greatest_integer(type) == INT64_MAX) return {};
  if (start.is_whole() && end.is_whole() && step.is_whole()) return {};
  const Scalar range = scalar_binary(SymOp::kNSub, end, start);
  Scalar count = scalar_binary(SymOp::kNCeil, scalar_binary(SymOp::kNDiv, range, step), {});
  const bool counts = scalar_ask(SymCmp::kLt, Scalar(0.0), count) && scalar_ask(SymCmp::kLt, count, Scalar(0x1p53));
  if (!counts || !to_integer(count)) return {};
  SymInt n(count.to_int());
  n.expr = count.expr;
  return n;
}

}  // namespace

ResultSpecs meta_arange(OpId op, const Args& args) {
  // arange(end) or arange(start, end): a single number is the end. The number of elements specialises on all three.
  Scalar start = args[0].as<Scalar>(), step = args[2].as<Scalar>(), end = start;
  if (args[1].is_none()) start = Scalar(0.0);
  if (!args[1].is_none()) end = args[1].as<Scalar>();
  // If all are whole, the count stays a symbol.
  SymInt from, to, by;
  const bool any = start.expr || end.expr || step.expr;
  if (any && is_small_step(step) && as_size(start, from) && as_size(end, to) && as_size(step, by)) {
    if (by == 0) fail("arange: step must not be zero");
    const bool up = by > 0;
    if (up ? to < from : from < to) {
      fail("arange: from ", from.hint, " to ", to.hint, " does not go with step ", by.hint);
    }
    const SymInt range = up ? to - from : from - to, most = up ? by : SymInt(0) - by;
    return {create_spec(op, {floor_div(range + (most - 1), most)}, args[3], DType::kInt64)};
  }
  const DType asked = args[3].is_none() ? DType::kFloat32 : args[3].as<DType>();
  if (const auto n = changing_count(start, end, step, asked)) return {create_spec(op, {*n}, args[3], asked)};
  double v[3];
  int64_t whole[3];
  bool all_whole = true;
  const Scalar* given[3] = {&start, &end, &step};
  for (int i = 0; i < 3; i++) {
    const Scalar at = pin(*given[i]);
    v[i] = at.to_double();
    if (!std::isfinite(v[i])) fail("arange: unsupported range: ", v[0], " to ", to_string(end));
    all_whole = as_integer(at, whole[i]) && all_whole;
  }
  if (v[2] == 0) fail("arange: step must not be zero");
  const bool against =
      all_whole ? whole[1] != whole[0] && (whole[1] > whole[0]) != (whole[2] > 0) : (v[1] - v[0]) * v[2] < 0;
  if (against) {
    fail("arange: from ", to_string(start), " to ", to_string(end), " does not go with step ", to_string(step));
  }
  // For int64 the bounds and the step are truncated to integers.
  if (!all_whole && is_index(asked) && greatest_integer(asked) == INT64_MAX) {
    for (double& each : v) each = std::trunc(each);
    if (v[2] == 0) fail("arange: step ", to_string(step), " is zero as int64");
  }
  double n = std::ceil((v[1] - v[0]) / v[2]);
  if (all_whole) {  // exactly, where doubles would round
    const __int128 range = __int128(whole[1]) - whole[0], by = whole[2];
    n = double((range + by - (by > 0 ? 1 : -1)) / by);
  }
  if (n > 9e15) fail("arange: too many elements");
  return {create_spec(op, {SymInt(int64_t(n))}, args[3], all_whole ? DType::kInt64 : DType::kFloat32)};
}

}  // namespace lutra
