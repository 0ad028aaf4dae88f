// Information about bindings for the REPL's help and completion and for the reference. describe(function | name)
// returns a table of its forms, one line about it (ops/defs/ops.def, docs.def) and facts of its op's row. names()
// returns the names of methods and attributes, parts(f, ...) the primitives that a call runs.
#include <lua.hpp>
#include <map>

#include "ops/defs/call.h"
#include "ops/defs/category.h"
#include "ops/defs/forms.h"
#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/bind/userdata.h"

namespace lutra {

void set_field(lua_State* L, const char* key, const std::string& text) {
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, key);
}

void set_field(lua_State* L, const char* key, double value) {
  lua_pushnumber(L, value);
  lua_setfield(L, -2, key);
}

void set_flag(lua_State* L, const char* key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}

namespace {

const char* text_of(ArgType type) {
  switch (type) {
    case ArgType::kTensor: return "Tensor";
    case ArgType::kTensorList: return "list of Tensors";
    case ArgType::kOperand: return "Tensor or number";
    case ArgType::kScalar: return "number";
    case ArgType::kInt: return "integer";
    case ArgType::kIntList: return "integers";
    case ArgType::kFloat: return "number";
    case ArgType::kFloatList: return "numbers";
    case ArgType::kBool: return "boolean";
    case ArgType::kDType: return "dtype";
    case ArgType::kDevice: return "device";
    case ArgType::kStr: return "string";
    case ArgType::kFunction: return "function";
  }
  return "?";
}

// Returns a default value in Lua syntax.
std::string default_text(const Value& v) {
  if (v.is_none()) return "nil";
  if (v.is<bool>()) return v.as<bool>() ? "true" : "false";
  if (v.is<Scalar>()) {
    const Scalar& s = v.as<Scalar>();
    return s.kind == Scalar::kBool ? (s.i ? "true" : "false") : to_string(s);
  }
  if (v.is<Sizes>()) return to_string(v.as<Sizes>());
  if (v.is<DType>()) return str('"', name(v.as<DType>()), '"');
  if (v.is<std::string>()) return str('"', v.as<std::string>(), '"');
  return describe(v);
}

// Returns a map from names to descriptions; a second name of a function refers to the first.
const std::map<std::string, std::string>& docs() {
  static const std::map<std::string, std::string> table = {
#define DOC(name, text) {#name, text},
#define SAME(name, other) {#name, "The same as " #other "."},
#include "ops/defs/docs.def"
#undef DOC
#undef SAME
  };
  return table;
}

std::string doc_of(const std::string& name) {
  for (const OtherName& row : other_names()) {
    if (name == row.name) return str(row.copies ? "In memory of its own, the result of " : "The same as ", row.of, ".");
  }
  if (const OpId op = find_op(name); op != OpId::kCount && *info(op).about) return info(op).about;
  if (auto it = docs().find(name); it != docs().end()) return it->second;
  return name.size() > 1 && name.back() == '_' ? doc_of(name.substr(0, name.size() - 1)) : "";
}

void push_form(lua_State* L, const std::vector<ArgInfo>& args) {
  lua_newtable(L);
  for (size_t i = 0; i < args.size(); ++i) {
    const ArgInfo& arg = args[i];
    lua_newtable(L);
    set_field(L, "name", arg.name);
    set_field(L, "type", std::string(text_of(arg.type)) + (arg.optional ? " or nil" : ""));
    set_flag(L, "keyword_only", arg.keyword_only);
    if (arg.has_default) set_field(L, "default", default_text(arg.def));
    lua_rawseti(L, -2, int(i) + 1);
  }
}

// Returns the file in ops/defs/rows that contains the op.
std::string family_of(const OpInfo& op) {
  static const char* const files[] = {
#define OP(name, ...) __FILE__,
#include "ops/defs/ops.def"
#undef OP
  };
  const std::string_view file = files[size_t(op.id)];
  const size_t start = file.rfind('/') + 1;
  return std::string(file.substr(start, file.rfind('.') - start));
}

const char* gradient_of(const OpInfo& op) {
  if (op.vjp) return "own";
  return op.vjp_decomposes || op.has(kAtCall) ? "parts" : "none";
}

void set_facts(lua_State* L, const OpInfo& op) {
  set_field(L, "family", family_of(op));
  set_field(L, "gradient", std::string(gradient_of(op)));
  set_field(L, "category", std::string(name(category(op.id))));
  set_flag(L, "composite", op.is_composite());
  set_flag(L, "at_call", op.has(kAtCall));
  set_flag(L, "pointwise", op.has(kPointwise));
  set_flag(L, "aliases", op.has(kView));
  set_flag(L, "returns_itself", op.has(kIdentity));
  set_flag(L, "writes", op.has(kMutates));
  set_field(L, "fails", std::string(op.has(kFails) ? "always" : op.has(kFailsOnIntegers) ? "integers" : ""));
  set_flag(L, "dynamic", op.dynamic != nullptr);
}

// Sets a form's op, its number of results, and whether they are a list.
void set_results(lua_State* L, const OpInfo& op) {
  set_field(L, "op", std::string(op.name));
  set_flag(L, "list", op.has(kList));
  lua_pushinteger(L, op.results);
  lua_setfield(L, -2, "results");
}

const OpInfo* op_of(const Binding& b, size_t form) {
  if (b.host || b.schemas.empty()) return nullptr;
  return &info(b.forms ? (*b.forms)[form].op : b.op);
}

int describe_binding(lua_State* L) {
  const Binding* found = to_binding(L, 1);
  if (!found && lua_type(L, 1) == LUA_TSTRING) {
    const std::string wanted = lua_tostring(L, 1);
    for (const Binding& b : bindings()) {
      if (b.name == wanted) found = &b;
    }
  }
  if (!found) return 0;
  lua_newtable(L);
  set_field(L, "name", found->name);
  set_flag(L, "method", (found->flags & kMethod) != 0);
  set_flag(L, "function", (found->flags & kFunctionOf) != 0);
  set_flag(L, "inplace", found->inplace);
  set_flag(L, "takes_generator", (found->flags & kDraws) != 0);
  set_field(L, "about", doc_of(found->name));
  lua_newtable(L);
  const auto forms = forms_of(*found);
  for (size_t i = 0; i < forms.size(); ++i) {
    push_form(L, forms[i]);
    if (const OpInfo* op = op_of(*found, i)) set_results(L, *op);
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_setfield(L, -2, "forms");
  if (const OpInfo* op = op_of(*found, 0)) set_facts(L, *op);
  for (const OtherName& row : other_names()) {
    if (found->name == row.name) set_field(L, "same_as", std::string(row.of));
  }
  return 1;
}

// A mode that records the primitives that run beneath it, and decomposes composite ops.
struct Recorder : Mode {
  std::vector<std::string> names;
  bool draws = false;
  Results call(OpId op, Args& args) override {
    if (info(op).is_composite()) {
      const ModeScope again(this);
      return decompose_named(info(op), args);
    }
    names.push_back(name(op));
    draws = draws || info(op).has(kRandom);
    return call_op(op, args);
  }
  Tensor call_inplace(OpId op, Args& args) override {
    names.push_back(inplace_name(op));
    return lutra::call_inplace(op, args);
  }
};

// parts(f, ...) -> the names in order, and whether one draws random numbers. Raises f's error.
int parts(lua_State* L) {
  Recorder recorder;
  int status;
  {
    const ModeScope scope(&recorder);
    status = lua_pcall(L, lua_gettop(L) - 1, 0, 0);
  }
  if (status != 0) fail(lua_tostring(L, -1) ? lua_tostring(L, -1) : "parts: an error that is no text");
  lua_newtable(L);
  for (size_t i = 0; i < recorder.names.size(); ++i) {
    lua_pushlstring(L, recorder.names[i].data(), recorder.names[i].size());
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_pushboolean(L, recorder.draws);
  return 2;
}

int names(lua_State* L) {
  lua_newtable(L);
  lua_newtable(L);
  for (const Binding& b : bindings()) {
    if (b.flags & kMethod) set_flag(L, b.name.c_str(), true);
  }
  lua_setfield(L, -2, "methods");
  lua_newtable(L);
  for (const Attribute& a : attributes()) set_flag(L, a.name, true);
  lua_setfield(L, -2, "attributes");
  return 1;
}

const Special kDescribeSpecials[] = {
    {"_native.describe", kHostEffect, nullptr, describe_binding},
    {"_native.names", kHostEffect, nullptr, names},
    {"_native.parts", kHostEffect, nullptr, parts},
};

}  // namespace

std::span<const Special> describe_specials() { return kDescribeSpecials; }

}  // namespace lutra
