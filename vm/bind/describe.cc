// What the REPL's help and completion ask about bindings: describe(function | name) gives a table of its forms and one
// line about it (ops/defs/ops.def, docs.def), names() those of methods and attributes.
#include <lua.hpp>
#include <map>

#include "ops/defs/forms.h"
#include "vm/bind/functions.h"
#include "vm/bind/tensor_userdata.h"

namespace lutra {
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
    case ArgType::kBool: return "boolean";
    case ArgType::kDType: return "dtype";
    case ArgType::kDevice: return "device";
    case ArgType::kStr: return "string";
  }
  return "?";
}

// A default as one writes it in Lua.
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

void set(lua_State* L, const char* key, const std::string& text) {
  lua_pushlstring(L, text.data(), text.size());
  lua_setfield(L, -2, key);
}

void set(lua_State* L, const char* key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}

// name -> what it does; of another name of it, that name.
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
    if (name == row.name) return str("The same as ", row.of, ".");
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
    set(L, "name", arg.name);
    set(L, "type", std::string(text_of(arg.type)) + (arg.optional ? " or nil" : ""));
    set(L, "keyword_only", arg.keyword_only);
    if (arg.has_default) set(L, "default", default_text(arg.def));
    lua_rawseti(L, -2, int(i) + 1);
  }
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
  set(L, "name", found->name);
  set(L, "method", (found->flags & kMethod) != 0);
  set(L, "function", (found->flags & kFunctionOf) != 0);
  set(L, "inplace", found->inplace);
  set(L, "about", doc_of(found->name));
  lua_newtable(L);
  const auto forms = forms_of(*found);
  for (size_t i = 0; i < forms.size(); ++i) {
    push_form(L, forms[i]);
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_setfield(L, -2, "forms");
  return 1;
}

int names(lua_State* L) {
  lua_newtable(L);
  lua_newtable(L);
  for (const Binding& b : bindings()) {
    if (b.flags & kMethod) set(L, b.name.c_str(), true);
  }
  lua_setfield(L, -2, "methods");
  lua_newtable(L);
  for (const Attribute& a : attributes()) set(L, a.name, true);
  lua_setfield(L, -2, "attributes");
  return 1;
}

const Special kSpecials[] = {
    {"_native.describe", kHostEffect, nullptr, describe_binding},
    {"_native.names", kHostEffect, nullptr, names},
};

}  // namespace

std::span<const Special> describe_specials() { return kSpecials; }

}  // namespace lutra
