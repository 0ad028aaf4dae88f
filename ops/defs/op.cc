// Builds the table of OpInfos from the rows of ops.def. A row that names a missing rule does not link.
#include "ops/defs/op.h"

#include <algorithm>

namespace lutra {

#define OP(name, schema, results, meta, vjp, ...)     \
  ResultSpecs meta_##meta(OpId op, const Args& args); \
  void vjp_##vjp(VjpContext& ctx);                    \
  extern const char* const saves_##vjp;               \
  Results decompose_##name(const Args& args);         \
  Results dynamic_##name(const Args& args, ParallelFor parallel);
#include "ops/defs/ops.def"
#undef OP

Tensor alias(OpId op, const Tensor& t, const ResultSpec& spec) {
  if (!whole_bytes(spec.dtype, spec.sizes, spec.strides, spec.offset)) fail_packed(name(op), spec.dtype, spec.sizes);
  const Tensor view = alias(t, spec.sizes, spec.strides, spec.offset);
  view->dtype = spec.dtype;
  return view;
}

namespace {

constexpr bool equal(std::string_view a, std::string_view b) { return a == b; }
constexpr bool is_rule(std::string_view vjp) { return vjp != "none" && vjp != "decompose"; }

// A discarded branch does not use its names, so vjp_none and decompose_add need no definition.
#define PICK(cond, value) \
  [] {                    \
    if constexpr (cond)   \
      return value;       \
    else                  \
      return nullptr;     \
  }()

std::vector<OpInfo> build() {
  std::vector<OpInfo> rows;
  rows.reserve(size_t(OpId::kCount));
#define OP(name, schema, results, meta, vjp, lower, flags, cpu, cuda, about) \
  rows.push_back({OpId::name,                                                \
                  #name,                                                     \
                  parse_schema(schema),                                      \
                  results,                                                   \
                  meta_##meta,                                               \
                  PICK(is_rule(#vjp), &vjp_##vjp),                           \
                  PICK(is_rule(#vjp), saves_##vjp),                          \
                  equal(#vjp, "decompose"),                                  \
                  PICK(equal(#lower, "decompose"), &decompose_##name),       \
                  PICK(equal(#lower, "dynamic"), &dynamic_##name),           \
                  flags,                                                     \
                  #lower,                                                    \
                  {AutocastPolicy::cpu, AutocastPolicy::cuda},               \
                  about});
#include "ops/defs/ops.def"
#undef OP
  for (OpInfo& row : rows) {
    for (size_t a = 0; a < row.args.size(); a++) {
      if (row.args[a].converts) row.converted.push_back(uint8_t(a));
    }
  }
  rows.push_back(
      {OpId::input, "input", {}, 1, nullptr, nullptr, nullptr, false, nullptr, nullptr, kInternal, "", {}, ""});
  return rows;
}

}  // namespace

void check_converts(OpId op, size_t argument, const Value& v, DType dtype) {
  if (!v.is<Scalar>() || converts(v.as<Scalar>(), dtype)) return;
  fail(name(op), ": ", info(op).args[argument].name, " ", to_string(v.as<Scalar>()), " cannot be converted to ",
       name(dtype), " without overflow");
}

const OpInfo& info(OpId id) {
  static const std::vector<OpInfo> rows = build();
  return rows[size_t(id)];
}

OpId find_op(std::string_view name) {
  static const std::vector<OpId> sorted = [] {
    std::vector<OpId> ids;
    for (size_t i = 0; i < size_t(OpId::kCount); i++) ids.push_back(OpId(i));
    std::sort(ids.begin(), ids.end(),
              [](OpId a, OpId b) { return std::string_view(info(a).name) < std::string_view(info(b).name); });
    return ids;
  }();
  auto it = std::lower_bound(sorted.begin(), sorted.end(), name,
                             [](OpId id, std::string_view n) { return std::string_view(info(id).name) < n; });
  return it != sorted.end() && info(*it).name == name ? *it : OpId::kCount;
}

}  // namespace lutra
