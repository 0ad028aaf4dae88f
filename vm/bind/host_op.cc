// Turns calls of a host's ops into calls of the op host_op. Sizes and attributes are constants of a graph; floats may
// be symbolic.
#include "vm/bind/host_op.h"

#include <algorithm>
#include <cctype>

#include <lua.hpp>

#include "vm/bind/functions.h"
#include "vm/bind/userdata.h"

namespace lutra {
namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

bool is_name(std::string_view s) {
  const auto letter = [](char c) { return std::isalpha(uint8_t(c)) || c == '_'; };
  return !s.empty() && letter(s[0]) &&
         std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || std::isdigit(uint8_t(c)); });
}

// Counts the results in "Tensor" or "(Tensor, Tensor)"; 0 if the text is malformed.
size_t count_results(std::string_view text) {
  if (text.starts_with('(') && text.ends_with(')')) text = text.substr(1, text.size() - 2);
  size_t count = 0;
  for (bool more = true; more; count++) {
    const size_t comma = std::min(text.find(','), text.size());
    if (trimmed(text.substr(0, comma)) != "Tensor") return 0;
    more = comma < text.size();
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return count;
}

bool is_taken(ArgType type) {
  switch (type) {
    case ArgType::kTensor:
    case ArgType::kTensorList:
    case ArgType::kInt:
    case ArgType::kIntList:
    case ArgType::kFloat:
    case ArgType::kBool:
    case ArgType::kStr: return true;
    default: return false;
  }
}

void check_arguments(const HostOp& op) {
  size_t numbers = 0;
  bool tensor = false;
  for (size_t i = 0; i < op.args.size(); i++) {
    const ArgInfo& arg = op.args[i];
    if (!is_name(arg.name)) fail(op.title, ": '", arg.name, "' is no name of an argument");
    if (!is_taken(arg.type) || arg.converts) {
      fail(op.title, ": argument '", arg.name, "': types are Tensor, Tensor?, Tensor[], int, int[], float, bool, str");
    }
    for (size_t k = 0; k < i; k++) {
      if (op.args[k].name == arg.name) fail(op.title, ": two arguments are called '", arg.name, "'");
    }
    numbers += arg.type == ArgType::kFloat;
    tensor |= !arg.optional && (arg.type == ArgType::kTensor || arg.type == ArgType::kTensorList);
  }
  if (!tensor) fail(op.title, ": an op takes at least one Tensor");
  if (numbers > kMaxHostNumbers) fail(op.title, ": at most ", kMaxHostNumbers, " floats are possible");
}

// The parts of a call.
struct Collected {
  HostForm form;
  std::vector<Tensor> tensors;
  std::vector<Scalar> numbers;

  void add(const HostOp& op, const ArgInfo& arg, const Value& v) {
    HostArgument a;
    if (!v.is_none()) fill(op, arg, v, a);
    form.arguments.push_back(std::move(a));
  }

 private:
  void add_tensor(const HostOp& op, const ArgInfo& arg, const Tensor& t) {
    if (!(t->device() == Device{})) {
      fail(op.title, ": argument '", arg.name, "' is on ", to_string(t->device()), ": ops of the host run on the CPU");
    }
    if (is_stored(t->dtype)) {
      fail(op.title, ": argument '", arg.name, "': not defined for ", name(t->dtype),
           ", which tensors can only be stored in; convert by x:to(dtype)");
    }
    tensors.push_back(t);
  }

  void fill(const HostOp& op, const ArgInfo& arg, const Value& v, HostArgument& a) {
    switch (arg.type) {
      case ArgType::kTensor: return a.kind = HostArgument::kTensor, add_tensor(op, arg, v.as<Tensor>());
      case ArgType::kTensorList:
        a.kind = HostArgument::kTensors, a.n = int64_t(v.as<std::vector<Tensor>>().size());
        for (const Tensor& t : v.as<std::vector<Tensor>>()) add_tensor(op, arg, t);
        return;
      case ArgType::kFloat: {
        const Scalar& s = v.as<Scalar>();
        a.kind = HostArgument::kNumber;
        return numbers.push_back(s.expr ? as_number(s) : Scalar(s.to_double()));
      }
      case ArgType::kInt: return a.kind = HostArgument::kInt, a.n = v.sym_int().guard(), void();
      case ArgType::kIntList:
        a.kind = HostArgument::kInts;
        for (const SymInt& i : v.as<Sizes>()) a.ints.push_back(i.guard());
        return;
      case ArgType::kBool: return a.kind = HostArgument::kBool, a.n = v.as<bool>(), void();
      default: return a.kind = HostArgument::kText, a.text = v.as<std::string>(), void();
    }
  }
};

HostResult type_of(const Tensor& t) {
  HostResult type{t->dtype, {}};
  for (const SymInt& size : t->sizes) type.sizes.push_back(size.guard());
  return type;
}

LuaResults call(const Binding& self, ArgReader& in) {
  const auto& op = static_cast<const HostOp&>(self);
  const Args given = bind_schema(op.title, op.args, in, {});
  Collected c;
  c.form.has_gradient = op.has_gradient;
  for (size_t i = 0; i < given.size(); i++) c.add(op, op.args[i], given[i]);
  if (c.tensors.empty()) fail(op.title, ": at least one argument must be a Tensor");
  std::vector<HostResult> types;
  for (const Tensor& t : c.tensors) types.push_back(type_of(t));
  const std::vector<HostResult> gives = op.shape(c.form, types);
  Args args = {c.tensors, op.text, write_form(c.form), write_results(gives)};
  c.numbers.resize(kMaxHostNumbers, Scalar(0.0));
  args.insert(args.end(), c.numbers.begin(), c.numbers.end());
  const Results results = call_op(OpId::host_op, std::move(args));
  return LuaResults(results.begin(), results.end());
}

}  // namespace

void read_host_schema(const std::string& schema, HostOp& op) {
  const size_t open = schema.find('('), arrow = schema.find("->");
  const size_t close = arrow == schema.npos ? schema.npos : schema.rfind(')', arrow);
  const bool plain = std::none_of(schema.begin(), schema.end(), [](char c) { return uint8_t(c) < ' '; });
  const bool formed = open != schema.npos && close != schema.npos && open < close &&
                      trimmed(std::string_view(schema).substr(close + 1, arrow - close - 1)).empty();
  if (!plain || !formed) {
    fail("'", schema, "' is no schema: \"name(Tensor x, int k=1) -> Tensor\"");
  }
  op.title = trimmed(std::string_view(schema).substr(0, open));
  const size_t colons = std::min(op.title.find("::"), op.title.size());
  const bool spaced = colons < op.title.size();
  if (!is_name(std::string_view(op.title).substr(0, colons)) ||
      (spaced && !is_name(std::string_view(op.title).substr(colons + 2)))) {
    fail("'", op.title, "' is no name of an op: \"name\", or \"library::name\"");
  }
  const std::string_view list = std::string_view(schema).substr(open + 1, close - open - 1);
  if (list.size() > 2000 || std::count(list.begin(), list.end(), ',') >= 32) fail(op.title, ": the schema is too long");
  try {
    op.args = parse_schema(list);
  } catch (const Error& error) {
    fail(op.title, ": ", error.what());
  }
  check_arguments(op);
  op.results = count_results(trimmed(std::string_view(schema).substr(arrow + 2)));
  if (op.results == 0 || op.results > kMaxHostResults) {
    fail(op.title, ": an op gives \"Tensor\", or \"(Tensor, Tensor)\" with up to ", kMaxHostResults, " of them");
  }
  op.text = op.title + schema.substr(open);
  // The prefix makes sure that it does not match a function that capture models by name.
  op.name = "ops." + op.title;
  op.flags = kFunctionOf, op.fn = call, op.schemas = {&op.args};
}

void push_host_op(lua_State* L, const HostOp& op) {
  const Binding* binding = &op;
  lua_pushlightuserdata(L, const_cast<Binding*>(binding));
  lua_pushcclosure(L, binding_entry, 1);
}

}  // namespace lutra
