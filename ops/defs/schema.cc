// Parses a row's schema text into ArgInfos.
#include <algorithm>
#include <array>
#include <charconv>

#include "ops/defs/op.h"

namespace lutra {
namespace {

struct TypeRow {
  std::string_view text;
  ArgType type;
};
constexpr std::array kTypes = {
    TypeRow{"Tensor", ArgType::kTensor},     TypeRow{"Tensor[]", ArgType::kTensorList},
    TypeRow{"Operand", ArgType::kOperand},   TypeRow{"Scalar", ArgType::kScalar},
    TypeRow{"int", ArgType::kInt},           TypeRow{"int[]", ArgType::kIntList},
    TypeRow{"float", ArgType::kFloat},       TypeRow{"bool", ArgType::kBool},
    TypeRow{"dtype", ArgType::kDType},       TypeRow{"Device", ArgType::kDevice},
    TypeRow{"str", ArgType::kStr},           TypeRow{"Function", ArgType::kFunction},
    TypeRow{"float[]", ArgType::kFloatList},
};

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// Parses "int? end!=None": type, name, marks, default.
ArgInfo parse_arg(std::string_view text) {
  ArgInfo arg;
  size_t space = text.find(' ');
  if (space == std::string_view::npos) fail_internal("schema: '", text, "' has no name");
  std::string_view type = text.substr(0, space), rest = trim(text.substr(space));
  if (type.back() == '?') {
    arg.optional = true;
    type.remove_suffix(1);
  }
  auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return r.text == type; });
  if (row == kTypes.end()) fail_internal("schema: unknown type '", type, "'");
  arg.type = row->type;
  size_t name_end = std::min(rest.find_first_of("!~="), rest.size());
  arg.name = rest.substr(0, name_end);
  rest.remove_prefix(name_end);
  for (; !rest.empty() && (rest.front() == '!' || rest.front() == '~'); rest.remove_prefix(1)) {
    (rest.front() == '!' ? arg.specialises : arg.converts) = true;
  }
  if (!rest.empty() && rest.front() == '=') {
    arg.has_default = true;
    arg.def = parse_constant(arg, rest.substr(1));
  } else if (!rest.empty()) {
    fail_internal("schema: '", text, "' is malformed");
  }
  return arg;
}

}  // namespace

Value parse_constant(const ArgInfo& arg, std::string_view text) {
  if (text == "None" && arg.optional) return {};
  if (arg.type == ArgType::kBool && text == "True") return true;
  if (arg.type == ArgType::kBool && text == "False") return false;
  if (arg.type == ArgType::kStr && text.size() >= 2 && text.front() == '\'' && text.back() == '\'') {
    return std::string(text.substr(1, text.size() - 2));
  }
  if (arg.type == ArgType::kDType) return dtype_from_name(text);
  double number = 0;
  auto end = std::from_chars(text.data(), text.data() + text.size(), number).ptr;
  if (end == text.data() + text.size()) {
    if (arg.type == ArgType::kIntList) return Sizes{int64_t(number)};
    if (arg.type == ArgType::kInt) return Scalar::of_int(int64_t(number));
    if (arg.type == ArgType::kScalar || arg.type == ArgType::kOperand || arg.type == ArgType::kFloat)
      return Scalar(number);
  }
  fail_internal("schema: '", text, "' is no value of '", arg.name, "'");
}

std::vector<ArgInfo> parse_schema(std::string_view schema) {
  std::vector<ArgInfo> args;
  bool keyword_only = false;
  while (!schema.empty()) {
    size_t comma = std::min(schema.find(','), schema.size());
    std::string_view part = trim(schema.substr(0, comma));
    schema.remove_prefix(std::min(comma + 1, schema.size()));
    if (part == "*") {
      keyword_only = true;
      continue;
    }
    args.push_back(parse_arg(part));
    args.back().keyword_only = keyword_only;
  }
  return args;
}

}  // namespace lutra
