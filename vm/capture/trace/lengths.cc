// Lengths of tables in a trace: a constant or a symbolic number, with guards that no hole makes the length ambiguous.
#include "vm/capture/trace/lengths.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/guard/lists.h"
#include "vm/portal/portal.h"

namespace lutra {

namespace {

constexpr int64_t kMaxList = 1 << 16;

// Guards that a table is a list. The border that LuaJIT finds near a hole depends on the table's memory layout; only
// lists have a unique length.
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

// Returns whether a real table may have got new keys, which can move its elements. With holes it may then have another
// length.
bool has_grown(const Table* t) {
  return t->pin != 0 && std::any_of(t->log.begin(), t->log.end(), [t](const Key& id) {
           const TableEntry& e = t->entries.at(id);
           const Var* before = e.before;
           if (e.replaces) return false;
           return !before || before->kind == VarKind::kNil || before->kind == VarKind::kLazy;
         });
}

// Marks writes of a non-nil value over another one, which do not change the length. It inspects the old values.
void find_replaced(Trace& t, Table* table) {
  constexpr size_t kMaxLooked = 8;
  if (table->pin == 0 || table->list_known || table->log.size() > kMaxLooked) return;
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

// Handles a list whose only new values are after its end. Later calls check only that the border is the expected one.
// They need not inspect each item, unless the table has to grow.
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

// Guards that a real table has no holes, so that its length is unique whatever its layout.
void refuse_holes(Trace& t, Table* table) {
  if (table->has_no_holes || ends_behind_appended(t, table)) return;
  table->has_no_holes = true;
  t.push_pin(table->pin);
  const bool is_long = int64_t(lua_objlen(t.L, -1)) > kMaxList;
  lua_pop(t.L, 1);
  if (is_long) t.stop(Break::long_length);  // each call would inspect all items
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
  if (!t->appended.empty())
    stop(Break::changing_key,
         {"", "a list that grows is read whole: join it outside, or keep its items in one tensor"});
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

void Trace::know_length(Table* t) {
  if (t->pin == 0) return;
  push_pin(t->pin);
  const bool has_items = lua_objlen(L, -1) > 0;
  lua_pop(L, 1);
  if (has_items || t->length_read) length(t);
}

// is_seen: the program sees the length; it is not only compared with a position.
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
