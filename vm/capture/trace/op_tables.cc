// Instructions on tables and globals.
#include <algorithm>
#include <bit>
#include <cstring>
#include <lua.hpp>

#include "vm/capture/trace/interpreter.h"
#include "vm/mirror/prototypes.h"
#include "vm/portal/portal.h"

namespace lutra {

Var* environment(Trace& t, Frame& f) {
  Var* fn = f.function;
  while (fn->kind == VarKind::kClosure) fn = fn->closure->env;
  Var*& env = t.environments[fn->source];
  if (env) return env;
  t.push_pin(fn->pin);
  lua_getfenv(t.L, -1);
  env = t.wrap(t.source(SourceKind::kEnv, fn->source, nullptr, 0, "the environment"));
  lua_pop(t.L, 1);
  return env;
}

namespace {

Var* k_value(Trace& t, const bc::KValue& k) {
  if (auto* b = std::get_if<bool>(&k)) return t.boolean(*b);
  if (auto* i = std::get_if<int32_t>(&k)) return t.number(*i);
  if (auto* d = std::get_if<double>(&k)) return t.number(*d);
  if (auto* s = std::get_if<std::string>(&k)) return t.string(*s);
  return t.nil();
}

// Returns the pin of a function that makes tables from the template; 0 if the layout of its keys does not matter.
int template_maker(Trace& t, const Frame& f, unsigned constant) {
  if (!mirror::available(t.L)) return 0;
  const int top = lua_gettop(t.L);
  t.push_prototype(f.function);
  const uint64_t object = to_proto(t.L, top + 1)->k[-1 - ptrdiff_t(constant)];
  int pin = 0;
  if (std::bit_cast<const mirror::Tab*>(object)->hmask != 0) {
    int& known = t.table_makers[object];
    if (!known) push_table_maker(t.L, top + 1, constant), known = t.pin();
    pin = known;
  }
  lua_settop(t.L, top);
  return pin;
}

void op_tdup(Trace& t, Frame& f, bc::Ins i) {
  const bc::Template& k = std::get<bc::Template>(f.code->proto().kgc[op_d(i)]);
  Var* v = t.fresh_table(k.array.empty() ? 0 : int(k.array.size()) - 1, int(k.hash.size()));
  for (size_t n = 0; n < k.array.size(); n++) {
    Var* item = k_value(t, k.array[n]);
    if (item->kind != VarKind::kNil) t.raw_set(v->table, t.number(double(n)), item);
  }
  for (const auto& [key, item] : k.hash) {
    Var* name = k_value(t, key);
    t.raw_set(v->table, name, k_value(t, item));
    v->table->template_hash.push_back(name);
  }
  v->table->template_keys = v->table->log.size();
  v->table->maker = template_maker(t, f, op_d(i));
  t.set(f, op_a(i), v);
}

Var* key_operand(Trace& t, Frame& f, bc::Ins i) {
  switch (bc::op(i)) {
    case Op::TGETS:
    case Op::TSETS: return string_constant(t, f, op_c(i));
    case Op::TGETB:
    case Op::TSETB: return t.number(op_c(i));
    default: return t.slot(f, op_c(i));
  }
}

void op_get(Trace& t, Frame& f, bc::Ins i) { t.set(f, op_a(i), t.index(t.slot(f, op_b(i)), key_operand(t, f, i))); }

void op_put(Trace& t, Frame& f, bc::Ins i) {
  t.set_index(t.slot(f, op_b(i)), key_operand(t, f, i), t.slot(f, op_a(i)));
}

// Returns whether all elements of the fresh table lie in its array. Then the table may as well be created with a larger
// array.
bool is_in_array(const Table& t) {
  return t.pin == 0 && !t.maker && t.hash_size == 0 &&
         std::all_of(t.writes.begin(), t.writes.end(),
                     [&](const auto& w) { return w.first.is_position() && w.first.n <= t.array_size; });
}

// A[D's low 32 bits ...] = MULTRES values: the end of a constructor.
void op_tsetm(Trace& t, Frame& f, bc::Ins i) {
  Table* table = t.table_of(t.slot(f, op_a(i) - 1));
  if (!table) fail_internal("capture: TSETM of a value that is no table");
  const bc::KNum& k = f.code->proto().knum[op_d(i)];
  double d = std::holds_alternative<double>(k) ? std::get<double>(k) : std::get<int32_t>(k);
  uint64_t bits;
  memcpy(&bits, &d, sizeof bits);
  double at = std::holds_alternative<double>(k) ? double(uint32_t(bits)) : d;
  if (f.multres.empty()) return;
  const double end = at + double(f.multres.size());
  if (!is_in_array(*table)) {
    table->writes.emplace_back(Key::of_room(end), t.nil());
  } else if (int(end) > (table->array_size ? table->array_size + 1 : 0)) {
    table->array_size = int(end);  // one slot more than needed
  }
  for (Var* v : f.multres) t.raw_set(table, t.number(at++), v);
}

}  // namespace

// Returns the method table of a userdata that has one, such as a file.
Var* Trace::methods_of(Var* object) {
  if (object->kind != VarKind::kObject || !object->source) stop_at_index(object);
  push_pin(object->pin);
  if (lua_type(L, -1) != LUA_TUSERDATA || !luaL_getmetafield(L, -1, "__index")) stop_at_index(object);
  const bool has_table = lua_istable(L, -1);
  lua_pop(L, 1);
  if (!has_table || !lua_getmetatable(L, -1)) stop_at_index(object);
  const std::string name = str("getmetatable(", object->source->text, ")");
  Var* meta = wrap(source(SourceKind::kMetatable, object->source, nullptr, 0, name));
  lua_pop(L, 1);
  return force(raw_get(force(meta)->table, string("__index")));
}

// Stops with a break that names the kind of a value that cannot be indexed.
void Trace::stop_at_index(Var* object) {
  if (object->kind == VarKind::kObject) {
    push_pin(object->pin);
    const std::string what = luaL_typename(L, -1);  // a stopped trace need not clean up the stack
    if (what == "cdata") stop(Break::cdata, {"indexed"});
    stop(Break::userdata, {what});
  }
  switch (object->kind) {
    case VarKind::kNil: stop(Break::raises, {"indexing nil"});
    case VarKind::kBool: stop(Break::raises, {"indexing a boolean"});
    case VarKind::kNumber: stop(Break::raises, {"indexing a number"});
    case VarKind::kString: stop(Break::raises, {"assigning a field of a string"});
    default: stop(Break::raises, {"indexing a function"});
  }
}

void install_tables(Handlers& h) {
  h.set(Op::TNEW, [](Trace& t, Frame& f, bc::Ins i) {
    const unsigned d = op_d(i), array = d & 0x7ff, hash = d >> 11;
    t.set(f, op_a(i), t.fresh_table(array == 0x7ff ? 0x800 : array ? int(array) - 1 : 0, hash ? 1 << hash : 0));
  });
  h.set(Op::TDUP, op_tdup);
  h.set(Op::GGET, [](Trace& t, Frame& f, bc::Ins i) {
    t.set(f, op_a(i), t.index(environment(t, f), string_constant(t, f, op_d(i))));
  });
  h.set(Op::GSET, [](Trace& t, Frame& f, bc::Ins i) {
    t.set_index(environment(t, f), string_constant(t, f, op_d(i)), t.slot(f, op_a(i)));
  });
  for (Op op : {Op::TGETV, Op::TGETS, Op::TGETB}) h.set(op, op_get);
  for (Op op : {Op::TSETV, Op::TSETS, Op::TSETB}) h.set(op, op_put);
  h.set(Op::TSETM, op_tsetm);
  // Used in library functions that are written in bytecode.
  h.set(Op::TGETR, [](Trace& t, Frame& f, bc::Ins i) {
    t.set(f, op_a(i), t.raw_get(t.table_of(t.slot(f, op_b(i))), t.slot(f, op_c(i))));
  });
  h.set(Op::TSETR, [](Trace& t, Frame& f, bc::Ins i) {
    t.raw_set(t.table_of(t.slot(f, op_b(i))), t.slot(f, op_c(i)), t.force(t.slot(f, op_a(i))));
  });
}

}  // namespace lutra
