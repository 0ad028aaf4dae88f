// Comparisons that return one Lua boolean.
#include "vm/bind/compare.h"
#include "ops/defs/element.h"
#include "vm/bind/functions.h"

namespace lutra {

namespace {

Tensor binary(OpId op, const Value& a, const Value& b) { return call_op(op, {a, b})[0]; }

bool truth(const char* fn, const Tensor& t) {
  need_data(fn, t);
  return Elements(t).at(0).to_double() != 0;
}

bool same_sizes(const Tensor& a, const Tensor& b) {
  if (a->dim() != b->dim()) return false;
  for (int64_t d = 0; d < a->dim(); ++d) {
    if (a->sizes[d] != b->sizes[d]) return false;
  }
  return true;
}

Tensor all_of(const Tensor& t) { return op1(OpId::all, {t}); }

Tensor asked_equal(const Args& a) {
  const Tensor x = a[0].tensor(), y = a[1].tensor();
  if (x->dtype != y->dtype && (is_stored(x->dtype) || is_stored(y->dtype))) {
    fail("equal: dtypes ", name(x->dtype), " and ", name(y->dtype), " differ");
  }
  if (!same_sizes(x, y)) return {};
  GradModeScope off(false);
  return all_of(binary(OpId::eq, x, y));
}

Tensor asked_allclose(const Args& a) {
  if (a[0].tensor()->dtype != a[1].tensor()->dtype) {
    fail("allclose: dtypes ", name(a[0].tensor()->dtype), " and ", name(a[1].tensor()->dtype), " differ");
  }
  GradModeScope off(false);
  return all_of(op1(OpId::isclose, a));
}

LuaResults equal(Args& a) {
  need_data("equal", a[0].tensor()), need_data("equal", a[1].tensor());
  const Tensor answer = asked_equal(a);
  return {answer && truth("equal", answer)};
}

LuaResults allclose(Args& a) {
  need_data("allclose", a[0].tensor()), need_data("allclose", a[1].tensor());
  return {truth("allclose", asked_allclose(a))};
}

// Compares two one-element tensors by < or <=.
template <OpId kOp>
LuaResults compare_one(Args& a) {
  const Tensor x = a[0].tensor(), y = a[1].tensor();
  if (x->numel() != 1 || y->numel() != 1) {
    const std::string method = str(":", name(kOp), "()");
    fail(kOp == OpId::lt ? "<" : "<=", ": compares two tensors of one element, got shapes ", to_string(x->sizes),
         " and ", to_string(y->sizes), "; ", method, " compares element by element");
  }
  GradModeScope off(false);
  return {truth(name(kOp), binary(kOp, x, y))};
}

const HostFunction kCompareRows[] = {
    {"is_same_size", "Tensor input, Tensor other", kBoth,
     [](Args& a) -> LuaResults { return {same_sizes(a[0].tensor(), a[1].tensor())}; }},
    {"equal", "Tensor input, Tensor other", kBoth | kNeedsData, equal},
    {"allclose", "Tensor input, Tensor other, Scalar rtol=1e-05, Scalar atol=1e-08, bool equal_nan=False",
     kBoth | kNeedsData, allclose},
    {"__lt", "Tensor input, Tensor other", kNeedsData, compare_one<OpId::lt>},
    {"__le", "Tensor input, Tensor other", kNeedsData, compare_one<OpId::le>},
};

}  // namespace

Tensor answer_of(const std::string& name, ArgReader& in) {
  const Args a = bind_schema(name, *find_method(name)->schemas[0], in, {});
  return name == "equal" ? asked_equal(a) : asked_allclose(a);
}

std::span<const HostFunction> compare_rows() { return kCompareRows; }

}  // namespace lutra
