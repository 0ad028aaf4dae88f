// Parses the rows of forms.def.
#include "ops/defs/forms.h"

namespace lutra {
namespace {

int find(const std::vector<ArgInfo>& args, std::string_view name) {
  for (size_t i = 0; i < args.size(); i++) {
    if (args[i].name == name) return int(i);
  }
  return -1;
}

// Applies one part of a row's arguments: "p=q", "p:5".
void apply(Form& form, const std::vector<ArgInfo>& of_op, std::string_view part) {
  const size_t mark = part.find_first_of("=:");
  LUTRA_CHECK(mark != part.npos, "forms.def: malformed arguments");
  const int to = find(of_op, part.substr(0, mark));
  LUTRA_CHECK(to >= 0, "forms.def: unknown argument of " + std::string(name(form.op)));
  const std::string_view text = part.substr(mark + 1);
  if (part[mark] == ':') {
    form.constants[to] = parse_constant(of_op[to], text);
    return;
  }
  form.from[to] = find(form.args, text);
  LUTRA_CHECK(form.from[to] >= 0, "forms.def: unknown argument of a form of " + std::string(name(form.op)));
}

Form make_form(OpId op, const char* schema, std::string_view arguments, uint32_t flags) {
  Form form{op, schema, parse_schema(schema), flags, {}, {}};
  const std::vector<ArgInfo>& of_op = info(op).args;
  if (find(of_op, "inplace") < 0) form.inplace = find(form.args, "inplace");
  for (const ArgInfo& arg : of_op) {
    form.from.push_back(find(form.args, arg.name));
    form.constants.push_back(arg.def);
  }
  while (!arguments.empty()) {
    const size_t comma = std::min(arguments.find(", "), arguments.size());
    apply(form, of_op, arguments.substr(0, comma));
    arguments.remove_prefix(std::min(comma + 2, arguments.size()));
  }
  for (size_t i = 0; i < of_op.size(); i++) {
    if (form.from[i] >= 0) form.args[size_t(form.from[i])].specialises |= of_op[i].specialises;
  }
  return form;
}

}  // namespace

Args Form::op_args(const Args& given) const {
  Args out = constants;
  for (size_t i = 0; i < out.size(); i++) {
    if (from[i] < 0) continue;
    const Value& v = given[from[i]];
    if (!v.is_none() || info(op).args[i].optional) out[i] = v;
    if (out[i].is<bool>() && info(op).args[i].type == ArgType::kScalar) out[i] = Scalar(double(out[i].as<bool>()));
  }
  return out;
}

const std::map<std::string, std::vector<Form>, std::less<>>& forms() {
  static const auto table = [] {
    std::map<std::string, std::vector<Form>, std::less<>> rows;
#define FORM(name, op, schema, arguments, flags) rows[#name].push_back(make_form(OpId::op, schema, arguments, flags));
#define ALIAS(name, other)
#define COPY(name, other)
#include "ops/defs/forms.def"
#undef FORM
#undef ALIAS
#undef COPY
    return rows;
  }();
  return table;
}

std::span<const OtherName> other_names() {
  static const OtherName rows[] = {
#define FORM(name, op, schema, arguments, flags)
#define ALIAS(name, other) {#name, #other, false},
#define COPY(name, other) {#name, #other, true},
#include "ops/defs/forms.def"
#undef FORM
#undef ALIAS
#undef COPY
  };
  return rows;
}

}  // namespace lutra
