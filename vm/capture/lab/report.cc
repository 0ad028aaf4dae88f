// Reports: lt.explain, lt.guards, lt.recompiles as Lua tables.
#include "vm/capture/lab/report.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/capture/dispatch/callees.h"
#include "vm/capture/segment/fields.h"
#include "vm/capture/segment/graph_table.h"
#include "vm/guard/rows.h"
#include "vm/host/stdlib.h"

namespace lutra {
namespace {

// Sets a field to a list of n elements, where push(i) pushes element i.
template <class F>
void set_list(lua_State* L, const char* key, size_t n, const F& push) {
  lua_newtable(L);
  for (size_t i = 0; i < n; i++) push(i), lua_rawseti(L, -2, int(i) + 1);
  lua_setfield(L, -2, key);
}

void push_names(lua_State* L, const std::vector<std::string>& names) {
  lua_newtable(L);
  for (size_t k = 0; k < names.size(); k++) {
    lua_pushstring(L, names[k].c_str());
    lua_rawseti(L, -2, int(k) + 1);
  }
}

void push_reason(lua_State* L, const BreakReason& b) {
  lua_newtable(L);
  set_string(L, "reason", b.reason);
  set_string(L, "id", row_of(b.id).id);
  set_string(L, "kind", b.kind());
  set_string(L, "file", b.place.file ? b.place.file : "?");
  set_number(L, "line", b.place.line);
  set_string(L, "source", source_line(b.place));
  set_string(L, "anchor", anchor_of(b.id));
  set_string(L, "hint", b.hint);
  set_string(L, "chain", b.chain);
  set_string(L, "eager", b.eager);
}

// Appends the entry's guards to the list at the top of the stack.
void append_guards(lua_State* L, const Entry& e) {
  int n = int(lua_objlen(L, -1));
  for (const GuardRow& row : rows_of(e.guards)) {
    lua_newtable(L);
    set_string(L, "kind", row.kind);
    set_string(L, "source", row.source);
    set_string(L, "expected", row.expected);
    set_string(L, "file", row.place.file ? row.place.file : "?");
    set_number(L, "line", row.place.line);
    set_number(L, "hits", double(e.hits));
    lua_rawseti(L, -2, ++n);
  }
}

void push_guards(lua_State* L, const Entry& e) {
  lua_newtable(L);
  append_guards(L, e);
}

// Passes the n values at the top to a function of stdlib/reports.lua, which makes the first one a table that prints.
void present(lua_State* L, const char* function, int n) {
  push_stdlib_value(L, "reports");
  lua_getfield(L, -1, function);
  lua_insert(L, -2 - n);
  lua_pop(L, 1);
  lua_call(L, n, 1);
}

// Pushes a function that segments have left to Lua.
void push_frame(lua_State* L, const CompiledProto& compiled) {
  lua_newtable(L);
  set_string(L, "name", compiled.name);
  set_number(L, "graph_count", double(compiled.log->size()));
  set_string(L, "reason", compiled.breaks->empty() ? "" : compiled.breaks->back().reason);
}

void push_backward(lua_State* L, const BackwardEntry& e) {
  lua_newtable(L);
  set_string(L, "place", e.place);
  set_number(L, "ops", double(e.ops));
  set_number(L, "kernels", e.segment ? double(e.segment->forward().kernels) : 0);
  set_number(L, "hits", double(e.hits));
  set_number(L, "compile_ms", e.capture_ms);
  set_string(L, "text", e.graph_text);
  lua_newtable(L);
  for (size_t i = 0; i < e.calls.size(); i++) {
    lua_pushstring(L, e.calls[i].c_str());
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_setfield(L, -2, "calls");
}

}  // namespace

void push_break_rows(lua_State* L) {
  size_t n = 0;
  const BreakRow* rows = break_rows(n);
  lua_newtable(L);
  for (size_t i = 0; i < n; i++) {
    lua_newtable(L);
    set_string(L, "id", rows[i].id);
    set_string(L, "kind", rows[i].kind);
    set_string(L, "text", rows[i].text);
    set_string(L, "hint", rows[i].hint);
    lua_rawseti(L, -2, int(i) + 1);
  }
}

void push_backwards(lua_State* L, const CompiledBackward& backward, size_t from) {
  lua_newtable(L);
  const auto& log = backward.log();
  for (size_t i = from; i < log.size(); i++) push_backward(L, *log[i]), lua_rawseti(L, -2, int(i - from) + 1);
}

void push_recompiles(lua_State* L, const CompiledProto& compiled) {
  lua_newtable(L);
  int n = 0;
  for (const Recompile& r : *compiled.recompiles) {
    lua_newtable(L);
    set_string(L, "kind", r.kind);
    set_string(L, "source", r.source);
    set_string(L, "old", r.old_text);
    set_string(L, "new", r.new_text);
    set_string(L, "file", r.file ? r.file : "?");
    set_number(L, "line", r.line);
    set_string(L, "hint", r.hint);
    lua_rawseti(L, -2, ++n);
  }
  present(L, "recompiles", 1);
}

void push_entries(lua_State* L, const CompiledProto& compiled) {
  lua_newtable(L);
  lua_newtable(L);  // facts about each entry
  int n = 0;
  each_point(compiled, [&](const ProtoPoint& point) {
    for (const auto& e : point.entries) {
      if (e->decline) continue;
      push_guards(L, *e);
      lua_rawseti(L, -3, ++n);
      lua_newtable(L);
      set_number(L, "pc", double(point.pc));
      set_number(L, "ops", double(e->ops));
      set_number(L, "hits", double(e->hits));
      lua_rawseti(L, -2, n);
    }
  });
  present(L, "guards", 2);
}

namespace {

using Log = std::vector<std::shared_ptr<Entry>>;

// Sets the fields of a report that sum over the entries.
void set_totals(lua_State* L, const Log& log) {
  size_t ops = 0;
  KeptBytes kept;
  int plain_checkpoints = 0;
  for (const auto& entry : log) {
    ops += entry->ops;
    kept.saved += entry->kept_bytes.saved, kept.recomputed += entry->kept_bytes.recomputed;
    plain_checkpoints += entry->plain_checkpoints;
  }
  const auto compiling = std::count_if(log.begin(), log.end(), [](const auto& e) { return bool(e->compiling); });
  set_number(L, "graph_count", double(log.size()));
  set_number(L, "op_count", double(ops));
  set_number(L, "plain_checkpoints", plain_checkpoints);
  set_number(L, "saved_bytes", kept.saved);
  set_number(L, "recomputed_bytes", kept.recomputed);
  set_number(L, "compiling", double(compiling));
}

// Sets the fields of a report that are lists by entry.
void set_lists(lua_State* L, const Log& log) {
  set_list(L, "graphs", log.size(), [&](size_t i) { push_graph(L, *log[i]); });
  set_list(L, "ops_per_graph", log.size(), [&](size_t i) { push_names(L, log[i]->op_names); });
  set_list(L, "kernels_per_graph", log.size(), [&](size_t i) { lua_pushnumber(L, double(log[i]->kernels)); });
  set_list(L, "compile_times", log.size(), [&](size_t i) { lua_pushnumber(L, log[i]->capture_ms); });
  set_list(L, "compile_stages", log.size(), [&](size_t i) {
    const Entry& e = *log[i];
    lua_newtable(L);
    set_number(L, "capture", e.capture_ms - e.compile_ms);
    set_number(L, "passes", e.passes_ms);
    set_number(L, "schedule", e.schedule_ms);
    set_number(L, "codegen", e.codegen_ms);
  });
}

}  // namespace

void push_explanation(lua_State* L, const std::shared_ptr<CompiledProto>& compiled, int first_result, int results) {
  const std::vector<std::shared_ptr<CompiledProto>> frames = with_callees(compiled);
  Log log;
  std::vector<BreakReason> breaks;
  for (const auto& frame : frames) {
    log.insert(log.end(), frame->log->begin(), frame->log->end());
    breaks.insert(breaks.end(), frame->breaks->begin(), frame->breaks->end());
  }
  lua_newtable(L);
  set_list(L, "frames", frames.size() - 1, [&](size_t i) { push_frame(L, *frames[i + 1]); });
  set_totals(L, log);
  set_lists(L, log);
  set_number(L, "graph_break_count", double(breaks.size()));
  set_list(L, "break_reasons", breaks.size(), [&](size_t i) { push_reason(L, breaks[i]); });
  lua_newtable(L);
  for (const auto& entry : log) append_guards(L, *entry);
  lua_setfield(L, -2, "out_guards");
  set_string(L, "name", compiled->name);
  lua_newtable(L);
  for (int i = 0; i < results; i++) lua_pushvalue(L, first_result + i), lua_rawseti(L, -2, i + 1);
  set_number(L, "n", results);
  lua_setfield(L, -2, "result");
  lua_newtable(L);
  for (size_t i = 0; i < log.size(); i++) push_guards(L, *log[i]), lua_rawseti(L, -2, int(i) + 1);
  lua_pushnumber(L, double(compiled->serial));
  present(L, "explanation", 3);
}

}  // namespace lutra
