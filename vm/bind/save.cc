// lt.save(path, x | table, {metadata = {name = text}}) and lt.load(path, {metadata = true}): Lua values to files and
// back, by the path's extension. lt.load's {device = "cuda"} (or map_location) is the device of the tensors.
//
// In .safetensors a table's tensors are named by their path through it ("state.0.exp_avg"). A flat table from names to
// tensors needs nothing else, and files of other programs are loaded as such a table. For any other value the form
// (keys, numbers, strings, booleans) is stored as JSON in the file's metadata: a list [[key, value], ...] is a table,
// {"tensor": name} a tensor, {"number": "nan"} a number that JSON lacks.
#include <algorithm>
#include <cmath>
#include <lua.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "ops/core/closest.h"
#include "ops/defs/to_device.h"
#include "ops/io/npy.h"
#include "ops/io/npz.h"
#include "ops/io/safetensors.h"
#include "vm/bind/functions.h"
#include "vm/bind/save.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

using nlohmann::json;

constexpr char kForm[] = "lutra.form";
constexpr int kMaxDepth = 100;

Tensor dense(const Tensor& t) {
  GradModeScope off(false);
  Tensor cpu = t;
  if (t->device() != Device{}) cpu = on_host(t);
  if (cpu->is_contiguous()) return cpu;
  return call_inplace(OpId::copy_, {make_tensor(t->sizes, t->dtype), cpu});
}

std::string extension_of(const char* fn, const std::string& path) {
  for (const char* each : {".safetensors", ".npy", ".npz"}) {
    const size_t n = std::string(each).size();
    if (path.size() > n && path.compare(path.size() - n, n, each) == 0) return each;
  }
  fail(fn, ": '", path, "' must end in .safetensors, .npy or .npz");
}

std::string read_path(lua_State* L, const char* fn) {
  if (lua_type(L, 1) != LUA_TSTRING) {
    const char* got = to_tensor(L, 1) ? "a Tensor" : luaL_typename(L, 1);
    fail(fn, ": argument 'path' must be a string, got ", got, lua_isstring(L, 2) ? " (the path comes first)" : "");
  }
  size_t n = 0;
  const char* text = lua_tolstring(L, 1, &n);
  if (std::string(text).size() != n) fail(fn, ": argument 'path' has a zero byte");
  return {text, n};
}

// -- tables to names and tensors

// A key of a table. Keys are sorted, numbers before strings, so that files do not depend on the order of a hash table.
struct Key {
  bool is_number;
  double number;
  std::string text;
  bool operator<(const Key& o) const {
    if (is_number != o.is_number) return is_number;
    return is_number ? number < o.number : text < o.text;
  }
};

std::string number_text(double d) {
  if (d == std::floor(d) && std::fabs(d) < 1e15) return str(int64_t(d));
  return json(d).dump();
}

class Flattener {
 public:
  explicit Flattener(lua_State* L) : L_(L) {}
  NamedTensors tensors;

  json value(int idx, const std::string& path, int depth) {
    if (const Tensor* t = to_tensor(L_, idx)) {
      const std::string name = path.empty() ? "tensor" : path;
      if (name == "__metadata__" || !names_.insert(name).second) refuse(path, "a tensor whose name is taken");
      tensors.emplace_back(name, dense(*t));
      return json::object({{"tensor", name}});
    }
    switch (lua_type(L_, idx)) {
      case LUA_TSTRING: return text(idx);
      case LUA_TBOOLEAN: return bool(lua_toboolean(L_, idx));
      case LUA_TNUMBER: return number(lua_tonumber(L_, idx));
      case LUA_TTABLE: return table(idx, path, depth);
      default: refuse(path, str("a ", luaL_typename(L_, idx)));
    }
  }

 private:
  [[noreturn]] void refuse(const std::string& path, const std::string& what) const {
    fail("save: ", path.empty() ? "the value" : "field '" + path + "'", " is ", what,
         ", which cannot be stored (tensors, tables, numbers, strings and booleans can)");
  }

  std::string text(int idx) const {
    size_t n = 0;
    const char* p = lua_tolstring(L_, idx, &n);
    return {p, n};
  }

  static json number(double d) {
    if (std::isnan(d)) return json::object({{"number", "nan"}});
    if (std::isinf(d)) return json::object({{"number", d > 0 ? "inf" : "-inf"}});
    return d;
  }

  std::vector<Key> keys(int idx, const std::string& path) const {
    std::vector<Key> out;
    lua_pushnil(L_);
    while (lua_next(L_, idx)) {
      lua_pop(L_, 1);
      const bool is_number = lua_type(L_, -1) == LUA_TNUMBER;
      if (!is_number && lua_type(L_, -1) != LUA_TSTRING)
        refuse(path, str("a table with a ", luaL_typename(L_, -1), " as a key"));
      out.push_back({is_number, is_number ? lua_tonumber(L_, -1) : 0, is_number ? "" : text(lua_gettop(L_))});
      if (is_number && !std::isfinite(out.back().number)) refuse(path, "a table with an infinite key");
    }
    std::sort(out.begin(), out.end());
    return out;
  }

  json table(int idx, const std::string& path, int depth) {
    if (depth >= kMaxDepth) refuse(path, "a table within itself, or too deep");
    luaL_checkstack(L_, 8, "save: a table is too deep");
    if (lua_getmetatable(L_, idx)) {
      lua_getfield(L_, -1, "state_dict");
      const bool has_state = lua_isfunction(L_, -1);
      lua_pop(L_, 2);
      if (has_state) {
        fail("save: ", path.empty() ? "the value" : "field '" + path + "'",
             " is a module or optimiser: save its :state_dict()");
      }
      refuse(path, "a table with a metatable");
    }
    json form = json::array();
    for (const Key& key : keys(idx, path)) {
      key.is_number ? lua_pushnumber(L_, key.number) : lua_pushlstring(L_, key.text.data(), key.text.size());
      lua_rawget(L_, idx);
      const std::string name = key.is_number ? number_text(key.number) : key.text;
      json item = value(lua_gettop(L_), path.empty() ? name : path + "." + name, depth + 1);
      lua_pop(L_, 1);
      form.push_back(json::array({key.is_number ? json(key.number) : json(key.text), std::move(item)}));
    }
    return form;
  }

  lua_State* L_;
  std::set<std::string> names_;
};

// Returns whether the form is a table from names to tensors, with nothing else in it.
bool is_flat(const json& form) {
  if (!form.is_array()) return false;
  return std::all_of(form.begin(), form.end(), [](const json& item) {
    return item[0].is_string() && item[1].is_object() && item[1].contains("tensor");
  });
}

std::string dump(const json& form) {
  try {
    return form.dump();
  } catch (const json::exception&) {
    fail("save: strings in a .safetensors file are UTF-8");
  }
}

// Returns whether there are options at idx. Throws if they are not a table with known keys.
bool has_options(lua_State* L, int idx, const char* fn, const KnownNames& known) {
  if (lua_isnoneornil(L, idx)) return false;
  if (!lua_istable(L, idx)) fail(fn, ": options are a table, not a ", luaL_typename(L, idx));
  lua_pushnil(L);
  while (lua_next(L, idx)) {
    lua_pop(L, 1);
    if (lua_type(L, -1) != LUA_TSTRING) fail(fn, ": options have names", known.known(""));
    const std::string_view key = lua_tostring(L, -1);
    if (!known.have(key)) fail(fn, ": unknown option '", key, "'", known.known(key));
  }
  return true;
}

void read_user_metadata(lua_State* L, const std::string& extension, Safetensors* out) {
  if (!has_options(L, 3, "save", {"metadata"})) return;
  lua_getfield(L, 3, "metadata");
  if (lua_isnil(L, -1)) return;
  if (extension != ".safetensors") fail("save: metadata has a place in .safetensors files only");
  if (!lua_istable(L, -1)) fail("save: metadata is a table from names to strings, not a ", luaL_typename(L, -1));
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    if (lua_type(L, -2) != LUA_TSTRING || lua_type(L, -1) != LUA_TSTRING) {
      fail("save: metadata is a table from names to strings; one of its fields is not");
    }
    out->metadata.emplace_back(lua_tostring(L, -2), lua_tostring(L, -1));
    if (out->metadata.back().first == kForm) fail("save: the name '", kForm, "' in metadata is Lutra's own");
    lua_pop(L, 1);
  }
  std::sort(out->metadata.begin(), out->metadata.end());
}

// Saves a flat table as .npz. Items of a list get NumPy's names (arr_0, ...).
void save_flat_npz(const std::string& path, const json& form, NamedTensors tensors) {
  for (size_t i = 0; i < form.size(); i++) {
    const json &key = form[i][0], &value = form[i][1];
    if (!value.is_object() || !value.contains("tensor")) {
      fail("save: '", path, "': a .npz file holds a table of tensors; other fields have a place in .safetensors files");
    }
    if (key.is_number()) tensors.at(i).first = "arr_" + number_text(key.get<double>() - 1);
    for (size_t k = 0; k < i; k++) {
      if (tensors[k].first == tensors[i].first) {
        fail("save: '", path, "': two tensors would be called '", tensors[i].first, "'");
      }
    }
  }
  save_npz(path, tensors);
}

int save(lua_State* L) {
  check_not_sandboxed("save");
  const std::string path = read_path(L, "save"), extension = extension_of("save", path);
  lua_settop(L, 3);
  const Tensor* single = to_tensor(L, 2);
  if (!single && !lua_istable(L, 2)) {
    fail("save: argument 'x' must be a Tensor or a table, got ", luaL_typename(L, 2));
  }
  Safetensors content;
  read_user_metadata(L, extension, &content);
  if (extension == ".npy") {
    if (!single) fail("save: a .npy file holds one tensor; tables have a place in .npz and .safetensors files");
    save_npy(path, dense(*single));
    return 0;
  }
  Flattener flat(L);
  const json form = flat.value(2, "", 0);
  if (extension == ".npz") {
    if (single) fail("save: a .npz file holds a table of tensors; one alone has its place in a .npy file");
    save_flat_npz(path, form, flat.tensors);
    return 0;
  }
  if (!is_flat(form)) content.metadata.emplace_back(kForm, dump(form));
  content.tensors = std::move(flat.tensors);
  save_safetensors(path, content);
  return 0;
}

// -- files to tables

[[noreturn]] void refuse_form(const std::string& path) {
  fail("load: '", path, "' is damaged: its '", kForm, "' cannot be read");
}

class Builder {
 public:
  Builder(lua_State* L, const std::string& path, const NamedTensors& tensors) : L_(L), path_(path) {
    for (const auto& [name, t] : tensors) tensors_[name] = t;
  }

  void push(const json& form, int depth) {
    luaL_checkstack(L_, 8, "load: a table is too deep");
    if (form.is_string()) {
      push_text(form.get_ref<const std::string&>());
    } else if (form.is_boolean()) {
      lua_pushboolean(L_, form.get<bool>());
    } else if (form.is_number()) {
      lua_pushnumber(L_, form.get<double>());
    } else if (form.is_array()) {
      push_table(form, depth);
    } else {
      push_object(form);
    }
  }

 private:
  [[noreturn]] void damaged() const { refuse_form(path_); }
  void push_text(const std::string& s) { lua_pushlstring(L_, s.data(), s.size()); }

  void push_table(const json& form, int depth) {
    if (depth >= kMaxDepth) damaged();
    lua_newtable(L_);
    for (const json& item : form) {
      if (!item.is_array() || item.size() != 2) damaged();
      if (item[0].is_string()) {
        push_text(item[0].get_ref<const std::string&>());
      } else if (item[0].is_number()) {
        lua_pushnumber(L_, item[0].get<double>());
      } else {
        damaged();
      }
      push(item[1], depth + 1);
      lua_rawset(L_, -3);
    }
  }

  void push_object(const json& form) {
    if (!form.is_object() || form.size() != 1 || !form.begin()->is_string()) damaged();
    const std::string key = form.begin().key(), text = form.begin()->get<std::string>();
    if (key == "tensor") {
      const auto found = tensors_.find(text);
      if (found == tensors_.end()) damaged();
      push_tensor(L_, found->second);
    } else if (key == "number" && (text == "nan" || text == "inf" || text == "-inf")) {
      lua_pushnumber(L_, text == "nan" ? std::nan("") : text == "inf" ? INFINITY : -INFINITY);
    } else {
      damaged();
    }
  }

  lua_State* L_;
  const std::string& path_;
  std::map<std::string, Tensor> tensors_;
};

void push_named(lua_State* L, const NamedTensors& tensors) {
  lua_createtable(L, 0, int(std::min<size_t>(tensors.size(), 1 << 20)));
  for (const auto& [name, t] : tensors) {
    lua_pushlstring(L, name.data(), name.size());
    push_tensor(L, t);
    lua_rawset(L, -3);
  }
}

void move_to(NamedTensors& tensors, Device device) {
  for (auto& [name, t] : tensors) t = copy_to(t, device);
}

// Returns the device in the options, a table at idx.
Device wanted_device(lua_State* L, int idx) {
  Device device;
  for (const char* key : {"device", "map_location"}) {
    lua_getfield(L, idx, key);
    if (!lua_isnil(L, -1)) {
      if (lua_type(L, -1) != LUA_TSTRING) fail("load: ", key, " must be a string, got ", luaL_typename(L, -1));
      device = parse_device(lua_tostring(L, -1));
    }
    lua_pop(L, 1);
  }
  check_device(device);
  return device;
}

void push_content(lua_State* L, const std::string& path, const Safetensors& content) {
  const std::string* form = nullptr;
  for (const auto& [name, text] : content.metadata) {
    if (name == kForm) form = &text;
  }
  if (form) {
    const json parsed = json::parse(*form, nullptr, false);
    if (parsed.is_discarded()) refuse_form(path);
    Builder(L, path, content.tensors).push(parsed, 0);
  } else {
    push_named(L, content.tensors);
  }
}

// Pushes the value, and the metadata if requested.
int load_named(lua_State* L, const std::string& path, bool metadata, Device device) {
  Safetensors content = load_safetensors(path);
  move_to(content.tensors, device);
  push_content(L, path, content);
  if (!metadata) return 1;
  lua_newtable(L);
  for (const auto& [name, text] : content.metadata) {
    if (name == kForm) continue;
    lua_pushlstring(L, name.data(), name.size());
    lua_pushlstring(L, text.data(), text.size());
    lua_rawset(L, -3);
  }
  return 2;
}

int load(lua_State* L) {
  check_not_sandboxed("load");
  const std::string path = read_path(L, "load"), extension = extension_of("load", path);
  bool metadata = false;
  Device device;
  if (has_options(L, 2, "load", {"device", "map_location", "metadata"})) {
    lua_getfield(L, 2, "metadata");
    metadata = lua_toboolean(L, -1);
    device = wanted_device(L, 2);
  }
  if (extension == ".safetensors") return load_named(L, path, metadata, device);
  if (extension == ".npz") {
    NamedTensors tensors = load_npz(path);
    move_to(tensors, device);
    push_named(L, tensors);
  } else {
    push_tensor(L, copy_to(load_npy(path), device));
  }
  return 1;
}

const Special kSaveSpecials[] = {
    {"save", kFunctionOf | kHostEffect, nullptr, save},
    {"load", kFunctionOf | kHostEffect, nullptr, load},
};

}  // namespace

void push_safetensors(lua_State* L, const void* bytes, size_t size) {
  MemorySource in(bytes, size, "the memory");
  push_content(L, "the memory", read_safetensors(in));
}

std::span<const Special> save_specials() { return kSaveSpecials; }

}  // namespace lutra
