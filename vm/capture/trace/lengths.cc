// Lengths of tables of a trace: a table in, a constant, or a number that is another in each call, and guards that no
// hole makes it ambiguous.
#include "vm/capture/trace/lengths.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/guard/lists.h"
#include "vm/portal/portal.h"

namespace lutra {

namespace {

constexpr int64_t kMaxList = 1 << 16;

// Which border LuaJIT finds beside a hole depends on how the table lies in memory: only lists have one length.
void know_list(Trace& t, Table* table) {
  if (table->list_known) return;
  table->list_known = true;
  table->border = table->pin ? table->length : 0;
  if (table->pin == 0) return;
  if (table->length > kMaxList) t.stop(Break::long_length);
  t.push_pin(table->pin);
  const bool is = is_list(t.L, lua_gettop(t.L), table->length);
  lua_pop(t.L, 1);
  if (!is) t.stop(Break::holes);
  t.check(GuardOp::kListCheck, table->source, int(table->length), "no holes");
}

// Whether a real table may have got keys, which moves what it has: beside holes, it may have another length then.
bool has_grown(const Table* t) {
  return t->pin != 0 && std::any_of(t->log.begin(), t->log.end(), [t](const Key& id) {
           const TableEntry& e = t->entries.at(id);
           const Var* before = e.before;
           if (e.replaces) return false;
           return !before || before->kind == VarKind::kNil || before->kind == VarKind::kLazy;
         });
}

// A write of something where something stood changes no length, of lists of any length: what stood there is looked at.
void find_replaced(Trace& t, Table* table) {
  constexpr size_t kMostLooked = 8;
  if (table->pin == 0 || table->list_known || table->log.size() > kMostLooked) return;
  for (const Key& id : table->log) {
    TableEntry& e = table->entries.at(id);
    if (e.replaces || id.kind == Key::kObject || t.force(e.value)->kind == VarKind::kNil) continue;
    Var* before = e.before ? e.before : read_real(t, table, e.key);
    t.push_pin(before->pin);
    const bool was_nil = lua_isnil(t.L, -1);
    lua_pop(t.L, 1);
    if (was_nil) continue;
    if (before->kind == VarKind::kLazy) t.check(GuardOp::kNotNilCheck, before->source, 0, "something");
    e.before = before, e.replaces = true;
    std::erase_if(table->touched, [&](int64_t i) { return id.is_position() && id.n == double(i); });
  }
}

void stop_at_holes(Trace& t, const Table* table) {
  t.push_pin(table->pin);
  const bool is = is_list(t.L, lua_gettop(t.L), int64_t(lua_objlen(t.L, -1)));
  lua_pop(t.L, 1);
  if (!is) t.stop(Break::holes);
}

bool has_check(const Trace& t, GuardOp op, const Source* s, int index) {
  const auto reg = t.registers.find(s);
  return reg != t.registers.end() &&
         std::any_of(t.program.steps.begin(), t.program.steps.end(), [&](const GuardStep& step) {
           return step.op == op && step.a == reg->second && step.index == index;
         });
}

// Where values behind the end are the only new ones, later calls ask whether the end that is found is theirs. That
// takes no look at each item, but for calls in which the table needs more room.
bool ends_behind_appended(Trace& t, Table* table) {
  const auto replaces = [table](const Key& id) { return table->entries.at(id).replaces; };
  const auto kept = std::count_if(table->log.begin(), table->log.end(), replaces);
  const auto n = int(table->appended.size());
  if (n == 0 || kept + n != int64_t(table->log.size()) || !mirror::available(t.L)) return false;
  if (has_check(t, GuardOp::kListCheck, table->source, -1 - n)) return true;
  stop_at_holes(t, table);
  t.check(GuardOp::kListCheck, table->source, -1 - n, "no holes");
  return true;
}

// A real table without holes has one length, wherever its items are.
void refuse_holes(Trace& t, Table* table) {
  if (table->has_no_holes || ends_behind_appended(t, table)) return;
  table->has_no_holes = true;
  t.push_pin(table->pin);
  const bool is_long = int64_t(lua_objlen(t.L, -1)) > kMaxList;
  lua_pop(t.L, 1);
  if (is_long) t.stop(Break::long_length);  // each call looks at all items
  stop_at_holes(t, table);
  t.check(GuardOp::kListCheck, table->source, -1, "no holes");
}

}  // namespace

void push_replica(Trace& t, const Table* table) {
  t.charge(table->writes.size());
  if (table->maker) {
    t.push_pin(table->maker);
    lua_call(t.L, 0, 1);
  } else {
    lua_createtable(t.L, table->array_size, table->hash_size);
  }
  for (const auto& [id, v] : table->writes) {
    if (id.is_room()) {
      make_room(t.L, lua_gettop(t.L), int(id.n));
      continue;
    }
    if (id.kind == Key::kObject) t.stop(Break::object_keys);
    t.push_real(table->entries.at(id).key);
    t.force(v)->kind == VarKind::kNil ? lua_pushnil(t.L) : lua_pushboolean(t.L, 1);
    lua_rawset(t.L, -3);
  }
}

int64_t Trace::length(Table* t) {
  t->length_read = true;
  if (!t->appended.empty()) stop(Break::changing_key);
  find_replaced(*this, t);
  if (t->pin != 0) stop_if_unsteady(*source(SourceKind::kLength, t->source, nullptr, 0, "#" + t->source->text));
  if (t->pin != 0 && !t->length_known) {
    push_pin(t->pin);
    t->length = int64_t(lua_objlen(L, -1));
    lua_pop(L, 1);
    t->length_known = true;
    check(GuardOp::kLengthCheck, t->source, int(t->length), str("length ", t->length));
  }
  if (!t->list_known && t->touched.empty() && !has_grown(t)) return t->pin ? t->length : 0;
  know_list(*this, t);
  for (int64_t i : t->touched) {
    Key k;
    k.n = double(i);
    const bool there = force(t->entries.at(k).value)->kind != VarKind::kNil;
    if (there && i > t->border) t->beyond.insert(i);
    if (!there && i > t->border) t->beyond.erase(i);
    if (there || i > t->border) continue;
    for (int64_t j = i + 1; j <= t->border; j++) t->beyond.insert(t->beyond.end(), j);
    t->border = i - 1;
  }
  t->touched.clear();
  while (!t->beyond.empty() && *t->beyond.begin() == t->border + 1) {
    t->beyond.erase(t->beyond.begin());
    t->border++;
  }
  if (t->beyond.empty()) return t->border;
  if (t->pin != 0) stop(Break::holes);
  push_replica(*this, t);
  const auto n = int64_t(lua_objlen(L, -1));
  lua_pop(L, 1);
  return n;
}

// is_seen: by the program, not to compare it with a position only.
Var* Trace::length_of(Table* t, bool is_seen) {
  if (!t->appended.empty()) {
    refuse_holes(*this, t);
    return t->appended.back();
  }
  find_replaced(*this, t);
  if (t->pin == 0 || t->length_known || !t->touched.empty()) return number(double(length(t)));
  t->length_read = true;
  if (is_seen && has_grown(t)) refuse_holes(*this, t);
  if (t->size) return t->size;
  push_pin(t->pin);
  lua_pushnumber(L, double(lua_objlen(L, -1)));
  t->size = force(wrap(source(SourceKind::kLength, t->source, nullptr, 0, "#" + t->source->text)));
  lua_pop(L, 1);
  return t->size;
}

}  // namespace lutra
