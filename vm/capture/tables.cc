// Tables of a trace: reads of real ones become guarded fields, writes an overlay; metatables are followed as Lua does.
#include <cmath>
#include <lua.hpp>

#include "vm/capture/state.h"
#include "vm/capture/trace.h"

namespace lutra {
namespace {

std::string number_text(double d) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, "%.14g", d);
  return buffer;
}

}  // namespace

Table* Trace::table_of(Var* v) {
  force(v);
  return v->kind == VarKind::kTable ? v->table : nullptr;
}

Var* Trace::raw_get(Table* t, Var* k) {
  const Key id = key(k);
  auto it = t->entries.find(id);
  if (it != t->entries.end()) return it->second.value;
  if (t->pin == 0) return nil();
  if (k->kind == VarKind::kNil) return nil();
  if (!is_real(k)) return nil();
  // A tensor or table that came from a source is looked up by that source: another object there may find another value.
  const Source* by = nullptr;
  if (k->kind == VarKind::kTensor) by = k->source ? k->source : inputs[input_of_fake.at(k->tensor.get())].source;
  if (k->kind == VarKind::kTable) by = k->table->source;
  const Source* s;
  if (by) {
    if (by->kind == SourceKind::kGrad) stop("a gradient is used as a table key", "unsupported");
    s = source(SourceKind::kFieldBy, t->source, by, 0, index_text(t->source->text, by->text));
  } else {
    push_real(k);
    const int c = constant_slot_from_stack();
    std::string text;
    if (t->source->kind == SourceKind::kEnv && k->kind == VarKind::kString) {
      text = k->s;
    } else if (k->kind == VarKind::kString) {
      text = field_text(t->source->text, k->s);
    } else {
      text = index_text(t->source->text, k->kind == VarKind::kNumber ? number_text(k->num.to_double())
                                         : k->kind == VarKind::kBool ? (k->b ? "true" : "false")
                                                                     : "?");
    }
    s = source(SourceKind::kField, t->source, nullptr, c, text);
  }
  push_pin(t->pin);
  push_real(k);
  lua_rawget(L, -2);
  Var* v = wrap(s);
  lua_pop(L, 1);
  t->entries[id] = {k, v, false};
  return v;
}

void Trace::raw_set(Table* t, Var* k, Var* v) {
  const Key id = key(k);
  TableEntry& e = t->entries[id];
  if (!e.written) {
    bool listed = false;
    if (e.key) {
      for (const Key& other : t->log) listed = listed || !(other < id || id < other);
    }
    if (!listed) t->log.push_back(id);
  }
  if (t->pin != 0) {
    bool known = false;
    for (Table* w : written_tables) known = known || w == t;
    if (!known) written_tables.push_back(t);
  }
  e.key = k;
  e.value = v;
  e.written = true;
  effect_ = true;
}

Var* Trace::metatable(Var* v) {
  force(v);
  if (v->kind == VarKind::kString) {
    push_real(v);
    Var* mt = nil();
    if (lua_getmetatable(L, -1)) {
      mt = nullptr;
      lua_pop(L, 1);
    }
    lua_pop(L, 1);
    if (!mt) stop("the metatable of strings is used", "unsupported");
    return mt;
  }
  if (v->kind != VarKind::kTable) stop("the metatable of a value that is not a table", "unsupported");
  Table* t = v->table;
  if (t->metatable) return t->metatable;
  if (t->pin == 0) return t->metatable = nil();
  push_pin(t->pin);
  if (!lua_getmetatable(L, -1)) lua_pushnil(L);
  t->metatable = wrap(source(SourceKind::kMetatable, t->source, nullptr, 0, "getmetatable(" + t->source->text + ")"));
  lua_pop(L, 1);
  return force(t->metatable);
}

Var* Trace::metamethod(Var* v, const char* name) {
  Var* mt = metatable(v);
  if (mt->kind == VarKind::kNil) return mt;
  return force(raw_get(mt->table, string(name)));
}

Var* Trace::index(Var* object, Var* k) {
  for (int depth = 0; depth < 100; depth++) {
    force(object);
    switch (object->kind) {
      case VarKind::kTable: {
        Var* v = raw_get(object->table, k);
        // Without a metatable the value may stay unseen.
        if (object->table->metatable && object->table->metatable->kind == VarKind::kNil) return v;
        force(v);
        if (v->kind != VarKind::kNil) return v;
        Var* h = metamethod(object, "__index");
        if (h->kind == VarKind::kNil) return nil();
        if (h->kind == VarKind::kFunction || h->kind == VarKind::kClosure) {
          Vars r = call(h, {object, k}, true);
          return r.empty() ? nil() : r[0];
        }
        object = h;
        break;
      }
      case VarKind::kTensor: return tensor_attribute(object, k);
      case VarKind::kString: {
        lua_pushlstring(L, object->s.data(), object->s.size());
        push_real(k);
        const bool found = lua_getmetatable(L, -2);
        if (found) {
          lua_getfield(L, -1, "__index");
          lua_remove(L, -2);
        }
        if (!found || !lua_istable(L, -1)) stop("a string is indexed", "unsupported");
        lua_insert(L, -2);
        lua_rawget(L, -2);
        lua_remove(L, -2);
        lua_remove(L, -2);
        return constant_from_stack();
      }
      default: stop("a value that is neither table nor tensor is indexed", "unsupported");
    }
  }
  stop("a loop of __index", "unsupported");
}

void Trace::set_index(Var* object, Var* k, Var* v) {
  for (int depth = 0; depth < 100; depth++) {
    force(object);
    if (object->kind == VarKind::kTensor) return set_tensor_attribute(object, k, v);
    if (object->kind != VarKind::kTable)
      stop("a field of a value that is neither table nor tensor is assigned", "unsupported");
    Table* t = object->table;
    if (force(k)->kind == VarKind::kNil) stop("a table index is nil", "error");
    Var* mt = metatable(object);
    if (mt->kind == VarKind::kNil) return raw_set(t, k, v);
    if (force(raw_get(t, k))->kind != VarKind::kNil) return raw_set(t, k, v);
    Var* h = metamethod(object, "__newindex");
    if (h->kind == VarKind::kNil) return raw_set(t, k, v);
    if (h->kind == VarKind::kFunction || h->kind == VarKind::kClosure) {
      call(h, {object, k, v}, true);
      return;
    }
    object = h;
  }
  stop("a loop of __newindex", "unsupported");
}

int64_t Trace::length(Table* t) {
  if (t->pin != 0 && !t->length_known) {
    push_pin(t->pin);
    t->length = int64_t(lua_objlen(L, -1));
    lua_pop(L, 1);
    t->length_known = true;
    check(GuardOp::kLengthCheck, t->source, int(t->length), str("length ", t->length));
  }
  int64_t n = t->pin ? t->length : 0;
  auto present = [&](int64_t i) {
    Key k;
    k.n = double(i);
    auto it = t->entries.find(k);
    if (it == t->entries.end()) return t->pin != 0 && i >= 1 && i <= t->length;
    return force(it->second.value)->kind != VarKind::kNil;
  };
  while (n > 0 && !present(n)) n--;
  while (present(n + 1)) n++;
  return n;
}

Var* Trace::length_of(Table* t) {
  bool touched = t->pin == 0 || t->length_known;
  for (const auto& [id, e] : t->entries) touched = touched || (e.written && id.kind == Key::kNumber);
  if (touched) return number(double(length(t)));
  push_pin(t->pin);
  lua_pushnumber(L, double(lua_objlen(L, -1)));
  Var* v = force(wrap(source(SourceKind::kLength, t->source, nullptr, 0, "#" + t->source->text)));
  lua_pop(L, 1);
  return v;
}

namespace {

// The keys of a real table, in order, as constants; with their places in the entry's table of constants.
std::vector<int> real_keys(Trace& t, Table* table) {
  lua_State* L = t.L;
  std::vector<int> list;
  t.push_pin(table->pin);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    const int type = lua_type(L, -1);
    if (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN) {
      t.stop("pairs over keys that are objects", "unsupported", "loop over a list");
    }
    lua_pushvalue(L, -1);
    list.push_back(t.constant_slot_from_stack());
    table->keys.push_back(t.constant_from_stack());
  }
  lua_pop(L, 1);
  return list;
}

// The keys of a fresh table in the order that LuaJIT's has: a real one made by the same operations tells.
void fresh_keys(Trace& t, Table* table) {
  lua_State* L = t.L;
  lua_createtable(L, table->array_size, table->hash_size);
  std::vector<Var*> hash(table->template_hash.rbegin(), table->template_hash.rend());
  const bool more = !hash.empty() && table->log.size() > table->template_keys;
  if (more) t.stop("pairs over a constructor's table that has got further keys", "unsupported");
  for (const Key& id : table->log) {
    if (id.kind == Key::kObject) t.stop("pairs over keys that are objects", "unsupported", "loop over a list");
    if (!hash.empty() && id.kind != Key::kNumber) continue;
    t.push_real(table->entries[id].key);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
  }
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    lua_pushvalue(L, -1);
    table->keys.push_back(t.constant_from_stack());
  }
  lua_pop(L, 1);
  for (Var* k : hash) {
    if (k->kind != VarKind::kNumber) table->keys.push_back(k);
  }
}

}  // namespace

// The successor of k in the order of the table. The keys of real tables are guarded.
std::pair<Var*, Var*> Trace::next(Table* t, Var* k) {
  if (force(k)->kind == VarKind::kNil && t->keys_known) {
    // A new loop over a table that may have changed since the last one.
    if (t->pin == 0) {
      t->keys_known = false;
      t->keys.clear();
    } else {
      for (auto& [id, e] : t->entries) {
        bool listed = force(e.value)->kind == VarKind::kNil || !e.written;
        for (Var* known : t->keys) listed = listed || same(known, e.key);
        if (!listed) stop("pairs over a table that was written", "unsupported");
      }
    }
  }
  if (!t->keys_known) {
    t->keys_known = true;
    if (t->pin != 0) {
      for (auto& [id, e] : t->entries) {
        if (e.written) stop("pairs over a table that was written", "unsupported");
      }
      const std::vector<int> list = real_keys(*this, t);
      check(GuardOp::kKeysCheck, t->source, int(program.keys.size()), "the same keys in the same order");
      program.keys.push_back(list);
    } else {
      fresh_keys(*this, t);
    }
  }
  size_t at = 0;
  if (force(k)->kind != VarKind::kNil) {
    while (at < t->keys.size() && !same(t->keys[at], k)) at++;
    if (at == t->keys.size()) stop("next of a key that is not in the table", "unsupported");
    at++;
  }
  for (; at < t->keys.size(); at++) {
    Var* v = force(raw_get(t, t->keys[at]));
    if (v->kind != VarKind::kNil) return {t->keys[at], v};
  }
  return {nil(), nil()};
}

}  // namespace lutra
