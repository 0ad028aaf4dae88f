// Tables of a trace: reads of real tables become guarded fields, writes go to an overlay; metatables work as in Lua.
#include <algorithm>
#include <cmath>
#include <lua.hpp>

#include "vm/bind/tensor_userdata.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/lengths.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/trace.h"
#include "vm/capture/trace/unbacked_sizes.h"
#include "vm/portal/portal.h"

namespace lutra {
namespace {

std::string number_text(double d) {
  char buffer[32];
  snprintf(buffer, sizeof buffer, "%.14g", d);
  return buffer;
}

// Loads a part of the standard library (lt.nn, nn.Linear), which is otherwise loaded at its first use, so that the
// trace finds it as later calls do. The stack has the table that was read and a nil above it; the part replaces the
// nil.
void load_part(lua_State* L, const Var* key) {
  if (key->kind != VarKind::kString || !lua_isnil(L, -1)) return;
  const int nil = lua_gettop(L);
  lua_getfield(L, LUA_REGISTRYINDEX, "lutra.module");
  lua_getfield(L, -1, "_native");
  lua_getfield(L, -1, "lazy");
  lua_getfield(L, -1, "places");
  lua_pushvalue(L, nil - 1);
  lua_rawget(L, -2);
  if (!lua_isnil(L, -1)) {
    lua_getfield(L, nil + 3, "load");
    lua_pushvalue(L, nil - 1);
    lua_pushlstring(L, key->s.data(), key->s.size());
    lua_call(L, 2, 1);
    lua_replace(L, nil);
  }
  lua_settop(L, nil);
}

}  // namespace

Table* Trace::table_of(Var* v) {
  force(v);
  return v->kind == VarKind::kTable ? v->table : nullptr;
}

namespace {

// The most comparisons with written positions: more of them cost more than a symbolic position saves.
constexpr size_t kMaxAsked = 64;

bool is_something(Trace& t, Var* v) { return t.force(v)->kind != VarKind::kNil; }

// Returns whether the value before the trace's write is known to be non-nil.
bool was_something(Trace& t, const Table* table, const Key& id) {
  const auto old = table->entries.find(id);
  if (old == table->entries.end()) return false;
  return old->second.logged ? old->second.replaces : is_something(t, old->second.value);
}

Key key_of_moving(Var* k) {
  Key id;
  id.kind = Key::kObject;
  id.p = k;
  return id;
}

}  // namespace

// Reads a real table by a number or string that differs between calls. The key is none of those that were written.
// Guards read whatever value is there.
Var* Trace::get_by_changing(Table* t, Var* k) {
  const bool number = k->kind == VarKind::kNumber;
  if ((!number && k->kind != VarKind::kString) || t->pin == 0 || !has_varied(k)) return nullptr;
  if (number ? t->log.size() > kMaxAsked : t->written) return nullptr;
  const Source* by = k->source;
  if (!by && number) by = computed(k->num.expr);
  if (!by) return nullptr;
  const Source* s = source(SourceKind::kFieldBy, t->source, by, 0, index_text(t->source->text, by->text));
  Var*& v = t->read_by[s];
  if (v) return v;
  push_pin(t->pin);
  k->source ? push_pin(k->pin) : lua_pushnumber(L, k->num.to_double());
  lua_rawget(L, -2);
  v = wrap(s);
  lua_pop(L, 1);
  return v;
}

// Writes a real table at a symbolic position: replaces a non-nil value by another one, or appends to a list, which the
// body of a loop makes grow.
bool Trace::set_by_changing(Table* t, Var* k, Var* v) {
  if (t->pin == 0 || force(k)->kind != VarKind::kNumber || k->tensor || is_unbacked(*this, k->num.expr)) return false;
  const bool varies = has_varied(k);
  const bool grows = !options.loop_variables.empty() && options.dynamic != 0 && t->length_read && !k->source;
  if ((!varies && !(grows && k->num.expr)) || t->log.size() > kMaxAsked || !is_something(*this, v)) return false;
  const bool may_end = !t->length_known && t->touched.empty();
  const auto end = [&] { return symbolic(arithmetic(*this, bc::Op::ADDVV, length_of(t, false), number(1))); };
  const auto at_end = [&](bool asks) {
    const Scalar at = symbolic(k), behind = end();
    SymEnv& env = *graph->env;
    return at.expr &&
           (at.expr == behind.expr || (asks && env.ask(SymCmp::kEq, number_expr(env, at), number_expr(env, behind))));
  };
  bool appends = may_end && !k->source && at_end(false);
  Var* old = !appends && varies ? get_by_changing(t, k) : nullptr;
  if (old) {
    push_pin(old->pin);
    const bool is = !lua_isnil(L, -1);
    lua_pop(L, 1);
    if (is && old->kind == VarKind::kLazy) check(GuardOp::kNotNilCheck, old->source, 0, "something");
    if (!is) force(old), appends = may_end && at_end(true);
    if (!is && !appends) return false;
  }
  if (!old && !appends) return false;
  const Key id = key_of_moving(k);
  t->moving.push_back(k);
  if (appends) t->appended.push_back(k);
  t->entries[id] = {k, v, true, true, old, !appends};
  t->log.push_back(id);
  t->writes.emplace_back(id, v);
  if (!t->written) written_tables.push_back(t);
  t->written = effect = true;
  return true;
}

TableEntry* Trace::find_moving(Table* t, Var* k) {
  if (k->kind != VarKind::kNumber || k->tensor || t->pin == 0 || is_unbacked(*this, k->num.expr)) return nullptr;
  const bool moves = k->num.expr || has_varied(k);
  if (t->moving.empty() && !(moves && t->written)) return nullptr;
  if (t->log.size() > kMaxAsked) {
    if (!t->moving.empty()) stop(Break::changing_key);
    return nullptr;
  }
  SymEnv& env = *graph->env;
  const int32_t at = moves ? number_expr(env, symbolic(k)) : env.number(key(k).n);
  const bool is_older = !moves && was_something(*this, t, key(k));
  for (const Key& id : t->log) {
    TableEntry& e = t->entries.at(id);
    if (e.key->kind != VarKind::kNumber || (id.kind == Key::kNumber && !moves)) continue;
    if (is_older && !e.replaces) continue;  // the written position is after the end
    const int32_t other = id.kind == Key::kNumber ? env.number(id.n) : number_expr(env, symbolic(e.key));
    if (at == other || env.ask(SymCmp::kEq, at, other)) return &e;
  }
  return nullptr;
}

Var* read_real(Trace& t, Table* table, Var* k) {
  // A tensor or table from a source is looked up by that source, since another object there may find another value.
  const Source* by = nullptr;
  if (k->kind == VarKind::kTensor) by = k->source ? k->source : t.inputs[t.input_of_fake.at(k->tensor.get())].source;
  if (k->kind == VarKind::kTable) by = k->table->source;
  const Source* s;
  if (by) {
    if (by->kind == SourceKind::kGrad) t.stop(Break::gradient_key);
    s = t.source(SourceKind::kFieldBy, table->source, by, 0, index_text(table->source->text, by->text));
  } else {
    t.push_real(k);
    const int c = t.constant_slot_from_stack();
    std::string text;
    if (table->source->kind == SourceKind::kEnv && k->kind == VarKind::kString) {
      text = k->s;
    } else if (k->kind == VarKind::kString) {
      text = field_text(table->source->text, k->s);
    } else {
      text = index_text(table->source->text, k->kind == VarKind::kNumber ? number_text(k->num.to_double())
                                             : k->kind == VarKind::kBool ? (k->b ? "true" : "false")
                                                                         : "?");
    }
    s = t.source(SourceKind::kField, table->source, nullptr, c, text);
  }
  t.push_pin(table->pin);
  t.push_real(k);
  lua_rawget(t.L, -2);
  load_part(t.L, k);
  Var* v = t.wrap(s);
  lua_pop(t.L, 1);
  return v;
}

Var* Trace::raw_get(Table* t, Var* k) {
  charge(1);
  if (const TableEntry* e = find_moving(t, force(k))) return e->value;
  if (Var* v = get_by_changing(t, force(k))) return v;
  const Key id = key(k);
  if (id.is_nan()) return nil();
  auto it = t->entries.find(id);
  if (it != t->entries.end()) return it->second.value;
  if (k->kind == VarKind::kNil) return nil();
  if (t->pin == 0) {
    // The absence of this object key must be recorded.
    if (id.kind == Key::kObject) t->entries[id] = {k, nil(), false};
    return nil();
  }
  if (!is_real(k)) return nil();
  Var* v = read_real(*this, t, k);
  t->entries[id] = {k, v, false};
  return v;
}

void Trace::raw_set(Table* t, Var* k, Var* v) {
  charge(1);
  writes_outside(*t);
  if (TableEntry* e = find_moving(t, force(k))) {
    k = e->key;
    if (std::count(t->moving.begin(), t->moving.end(), k)) {
      if (!is_something(*this, v)) stop(Break::changing_key);
      e->value = v;
      return;
    }
  } else if (set_by_changing(t, k, v)) {
    return;
  }
  if (k->kind == VarKind::kNumber && !t->appended.empty()) {
    if (!is_something(*this, v) || !is_something(*this, raw_get(t, k))) stop(Break::changing_key);
  }
  const Key id = key(k);
  if (id.is_nan()) stop(Break::raises, {"a table index that is NaN"});
  TableEntry& e = t->entries[id];
  if (!e.logged) t->log.push_back(id), e.before = t->pin != 0 ? e.value : nullptr;
  if (t->pin != 0 && !t->written) written_tables.push_back(t);
  const auto something = [](const Var* x) { return x && x->kind != VarKind::kNil && x->kind != VarKind::kLazy; };
  if (!(e.logged && something(e.value) && something(v))) t->writes.emplace_back(id, v);
  e.replaces = t->pin != 0 && something(v) && (e.logged ? e.replaces : something(e.value));
  if (id.is_position() && !e.replaces) t->touched.push_back(int64_t(id.n));
  t->written = true;
  e.key = k;
  e.value = v;
  e.written = e.logged = true;
  effect = true;
}

Var* Trace::root_table(const Source* source) {
  Var* v = wrap(source);
  v->kind = VarKind::kTable;
  push_pin(v->pin);
  Table*& t = table_of_real[v->id = lua_topointer(L, -1)];
  lua_pop(L, 1);
  if (t) {
    check_pair(GuardOp::kSameCheck, source, t->source);
  } else {
    tables.emplace_back();
    t = &tables.back();
    t->pin = v->pin;
    t->source = source;
  }
  v->table = t;
  return v;
}

Var* Trace::metatable(Var* v) {
  force(v);
  if (v->kind == VarKind::kString) {
    if (string_meta) return string_meta;
    lua_pushliteral(L, "");
    if (!lua_getmetatable(L, -1)) stop(Break::metatable, {"strings is removed"});
    lua_remove(L, -2);
    return string_meta = force(wrap(source(SourceKind::kStringMeta, nullptr, nullptr, 0, "getmetatable(\"\")")));
  }
  if (v->kind == VarKind::kTensor) {
    if (tensor_meta) return tensor_meta;
    push_tensor_metatable(L);
    lua_pushvalue(L, -1);
    const int slot = constant_slot_from_stack();
    return tensor_meta = root_table(source(SourceKind::kConstant, nullptr, nullptr, slot, "getmetatable(tensor)"));
  }
  if (v->kind != VarKind::kTable) stop(Break::metatable, {"a value that is not a table"});
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
        // Without a metatable the value need not be inspected.
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
      case VarKind::kTensor:
      case VarKind::kString: {
        Var* h = metamethod(object, "__index");
        if (h->kind == VarKind::kNil) stop(Break::metatable, {"a value is indexed that has no __index"});
        if (h->kind == VarKind::kFunction || h->kind == VarKind::kClosure) {
          Vars r = call(h, {object, k}, true);
          return r.empty() ? nil() : r[0];
        }
        object = h;
        break;
      }
      default: object = methods_of(object);
    }
  }
  stop(Break::raises, {"a loop of __index"});
}

void Trace::set_index(Var* object, Var* k, Var* v) {
  for (int depth = 0; depth < 100; depth++) {
    force(object);
    if (object->kind == VarKind::kNil) stop(Break::raises, {"assigning a field of nil"});
    if (object->kind != VarKind::kTable && object->kind != VarKind::kTensor) stop_at_index(object);
    if (force(k)->kind == VarKind::kNil) stop(Break::raises, {"a table index that is nil"});
    Var* mt = metatable(object);
    if (object->kind == VarKind::kTable) {
      if (mt->kind == VarKind::kNil) return raw_set(object->table, k, v);
      if (force(raw_get(object->table, k))->kind != VarKind::kNil) return raw_set(object->table, k, v);
    }
    Var* h = metamethod(object, "__newindex");
    if (h->kind == VarKind::kNil && object->kind == VarKind::kTensor)
      stop(Break::raises, {"assigning a field of a tensor"});
    if (h->kind == VarKind::kNil) return raw_set(object->table, k, v);
    if (h->kind == VarKind::kFunction || h->kind == VarKind::kClosure) {
      call(h, {object, k, v}, true);
      return;
    }
    object = h;
  }
  stop(Break::raises, {"a loop of __newindex"});
}

namespace {

// Reads the keys of a real table, in order, as constants. Returns their indices in the entry's table of constants.
std::vector<int> real_keys(Trace& t, Table* table) {
  lua_State* L = t.L;
  std::vector<int> list;
  t.push_pin(table->pin);
  lua_pushnil(L);
  while (lua_next(L, -2)) {
    lua_pop(L, 1);
    t.need_room(list.size());
    lua_pushvalue(L, -1);
    const int type = lua_type(L, -1);
    if (type != LUA_TSTRING && type != LUA_TNUMBER && type != LUA_TBOOLEAN) {
      t.stop(Break::object_keys);
    }
    lua_pushvalue(L, -1);
    list.push_back(t.constant_slot_from_stack());
    table->keys.push_back(t.constant_from_stack());
  }
  lua_pop(L, 1);
  return list;
}

// Computes the keys of a fresh table in LuaJIT's order. Without the mirror the memory layout of a template's hash is
// unknown, but a dump has its order.
void fresh_keys(Trace& t, Table* table) {
  lua_State* L = t.L;
  std::vector<Var*> hash(table->template_hash.rbegin(), table->template_hash.rend());
  if (table->maker) hash.clear();
  if (hash.empty()) {
    push_replica(t, table);
  } else {
    if (table->log.size() > table->template_keys) {
      t.stop(Break::written_pairs);
    }
    lua_createtable(L, table->array_size, table->hash_size);
    for (const Key& id : table->log) {
      if (id.kind != Key::kNumber) continue;
      t.push_real(table->entries[id].key);
      lua_pushboolean(L, 1);
      lua_rawset(L, -3);
    }
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

void know_keys(Trace& t, Table* table) {
  table->keys_known = true;
  if (table->pin != 0) {
    const std::vector<int> list = real_keys(t, table);
    t.check(GuardOp::kKeysCheck, table->source, int(t.program.keys.size()), "the same keys in the same order");
    t.program.keys.push_back(list);
  } else {
    fresh_keys(t, table);
  }
  table->key_places.clear();
  for (size_t i = 0; i < table->keys.size(); i++) table->key_places.emplace(t.key(table->keys[i]), i);
}

// Begins a loop over a table that may have changed since its keys were read. Assigning nil to a new key also changes
// the order, since LuaJIT makes room for the key.
void begin_keys(Trace& t, Table* table) {
  if (table->pin == 0) {
    table->keys_known = false;
    table->keys.clear();
  }
  if (!table->keys_known) know_keys(t, table);
  if (table->pin == 0) return;
  for (const Key& id : table->log) {
    if (!table->key_places.count(id)) t.stop(Break::written_pairs);
  }
}

}  // namespace

Vars Trace::keys_in_any_order(Table* t) {
  Vars keys;
  if (t->moving.size() > t->appended.size()) stop(Break::written_pairs);  // some of them are existing keys
  if (t->pin != 0) {
    if (!t->keys_known) know_keys(*this, t);
    for (Var* k : t->keys) {
      if (force(raw_get(t, k))->kind != VarKind::kNil) keys.push_back(k);
    }
  }
  for (const Key& id : t->log) {
    const TableEntry& e = t->entries[id];
    const bool listed = t->pin != 0 && t->key_places.count(id);
    if (!listed && force(e.value)->kind != VarKind::kNil) keys.push_back(e.key);
  }
  return keys;
}

// Returns the successor of k in the table's order. The keys of real tables are guarded.
std::pair<Var*, Var*> Trace::next(Table* t, Var* k) {
  const bool first = force(k)->kind == VarKind::kNil;
  if (first || !t->keys_known) begin_keys(*this, t);
  size_t at = 0;
  if (!first) {
    const auto place = t->key_places.find(key(k));
    if (place == t->key_places.end()) stop(Break::argument, {"next"});
    at = place->second + 1;
  }
  for (; at < t->keys.size(); at++) {
    Var* v = force(raw_get(t, t->keys[at]));
    if (v->kind != VarKind::kNil) return {t->keys[at], v};
  }
  return {nil(), nil()};
}

}  // namespace lutra
