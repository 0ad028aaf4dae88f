// Reports: misses and what they teach, internal errors, lt.explain, lt.guards, lt.recompiles as Lua tables.
#include "vm/capture/lab/report.h"

#include <algorithm>
#include <cstdio>
#include <lua.hpp>

#include "vm/capture/dispatch/driver.h"
#include "vm/capture/dispatch/state.h"
#include "vm/capture/trace/hints.h"
#include "vm/host/runtime.h"

namespace lutra {
namespace {

// -- misses

bool is_tensor_check(GuardOp op) { return op == GuardOp::kTensorCheck || op == GuardOp::kGradTensorCheck; }

// Of sizes that stay constants, why they do.
std::string size_hint(const CaptureState& state, lua_State* L, const Unit& unit, const Tensor& t,
                      const TensorSpec& spec, int dim) {
  if (t->sizes[size_t(dim)].hint < 2 || (spec.sizes[size_t(dim)] >= 0 && spec.sizes[size_t(dim)] < 2)) {
    return "sizes 0 and 1 have entries of their own, since broadcasting is decided by them";
  }
  if (mark_of(state, L, t, dim) < 0) return "lt.mark_static(x, dim) gives each size an entry";
  if (unit.options.dynamic == 0) return "dynamic = false gives each size an entry";
  return recompile_hint("size");
}

// The tensors that a call brings, by input: loads go on over checks of tensors that fail, up to the first other
// failure.
std::vector<Tensor> tensors_of(lua_State* L, const GuardProgram& p, int nslots, int nargs, int self, int constants,
                               int weak) {
  GuardProgram loose = p;
  loose.steps.clear();
  std::vector<std::pair<int, int>> places;  // input, register
  for (const GuardStep& s : p.steps) {
    if (s.op == GuardOp::kTensorCheck) {
      places.push_back({s.index, s.a});
    } else if (is_load(s.op) ? s.op != GuardOp::kGradLoad : s.op == GuardOp::kTypeCheck) {
      loose.steps.push_back(s);
    }
  }
  std::vector<Tensor> found(p.tensors.size());
  GuardValues values;
  const int top = lua_gettop(L);
  if (run_guards(L, loose, nslots, nargs, self, constants, weak, &values) < 0) {
    for (auto [input, reg] : places) {
      if (Tensor* t = to_tensor(L, values.base + reg)) found[size_t(input)] = *t;
    }
  }
  lua_settop(L, top);
  return found;
}

// Dims whose size differs from the spec's become symbols of the next capture; sizes 0 and 1 stay constants.
void learn_sizes(UnitPoint& point, const GuardProgram& p, const std::vector<Tensor>& tensors) {
  for (size_t i = 0; i < p.tensors.size(); i++) {
    const TensorSpec& spec = p.tensors[i];
    if (!tensors[i] || !p.tensor_sources[i] || spec.sizes.size() != tensors[i]->sizes.size()) continue;
    for (size_t d = 0; d < spec.sizes.size(); d++) {
      if (spec.sizes[d] < 0 || spec.sizes[d] == tensors[i]->sizes[d].hint) continue;
      point.dynamic_dims[p.tensor_sources[i]->text].insert(int(d));
    }
  }
}

// Another closure of the same prototype: the next entry takes any.
void learn_function(lua_State* L, UnitPoint& point, const GuardProgram& p, int failed, int nslots, int nargs, int self,
                    int constants, int weak) {
  GuardProgram until;
  until.steps.assign(p.steps.begin(), p.steps.begin() + failed);
  until.tensors = p.tensors;
  until.scalar_sources = p.scalar_sources;
  until.keys = p.keys;
  until.groups = p.groups;
  until.registers = p.registers;
  GuardValues values;
  const int top = lua_gettop(L);
  const GuardStep& s = p.steps[size_t(failed)];
  if (run_guards(L, until, nslots, nargs, self, constants, weak, &values) < 0 && lua_isfunction(L, values.base + s.a) &&
      prototype_number(L, values.base + s.a) == s.prototype) {
    point.loose_functions.insert(s.source->text);
  }
  lua_settop(L, top);
}

// What reports say of a guard.
struct GuardRow {
  std::string kind, source, expected;
  GuardPlace place;
};

GuardRow row_of(const GuardProgram& p, size_t step) {
  const GuardStep& s = p.steps[step];
  return {kind_name(s.op), s.source ? report_text(*s.source) : "", p.expected[step], place_of(p, s)};
}

// A relation between sizes and numbers, of the first that it is about.
GuardRow row_of_relation(const GuardProgram& p, size_t i) {
  const Source* source = relation_source(p, int(i));
  const GuardPlace place = i < p.relation_places.size() ? p.relation_places[i] : p.start;
  return {kind_name(GuardOp::kSymbolsCheck), source ? report_text(*source) : "", relation_text(p, int(i)), place};
}

// A guard of what Lutra itself gave (the methods of tensors). Only a miss of it is told.
bool is_own(const GuardStep& s) { return s.source && s.source->base && s.source->base->kind == SourceKind::kConstant; }

std::vector<GuardRow> rows_of(const GuardProgram& p) {
  std::vector<GuardRow> rows;
  for (size_t i = 0; i < p.steps.size(); i++) {
    if (is_own(p.steps[i])) continue;
    if (p.steps[i].op == GuardOp::kSymbolsCheck) {
      for (size_t k = 0; k < p.symbols.guards().size(); k++) rows.push_back(row_of_relation(p, k));
    } else if (!is_load(p.steps[i].op)) {
      rows.push_back(row_of(p, i));
    }
  }
  return rows;
}

void log_recompile(const Unit& unit, const Recompile& r) {
  if (!log_wanted("recompiles")) return;
  // Modes are read nowhere.
  log_text("recompiles", str(unit.name, ": ", r.source, r.source.empty() ? "" : ": ", r.kind, " was ", r.old_text,
                             ", is ", r.new_text, " (read at ", r.file ? r.file : "?", ":", r.line, ")"));
}

}  // namespace

bool note_miss(CaptureState& state, lua_State* L, Unit& unit, UnitPoint& point, const Entry& entry, int failed,
               int nslots, int nargs, int self, int constants, int weak) {
  Runtime& rt = runtime(L);
  const auto compiled = std::count_if(point.entries.begin(), point.entries.end(), [](auto& e) { return !e->decline; });
  const bool limit = !entry.decline && int(compiled) >= rt.config.recompile_limit;
  if (limit && point.limit_reported) return false;
  const GuardProgram& p = entry.guards;
  const GuardStep& s = p.steps[size_t(failed)];
  Recompile r;
  r.kind = kind_name(s.op);
  int relation = -1;
  r.new_text = describe_found(L, p, failed, nslots, nargs, self, constants, weak, &relation);
  const GuardRow row = relation >= 0 ? row_of_relation(p, size_t(relation)) : row_of(p, size_t(failed));
  r.source = row.source, r.old_text = row.expected, r.file = row.place.file, r.line = row.place.line;
  if (is_tensor_check(s.op)) {
    const std::vector<Tensor> tensors = tensors_of(L, p, nslots, nargs, self, constants, weak);
    const Tensor& t = tensors[size_t(s.index)];
    TensorMiss miss;
    if (t && !matches(t, p.tensors[size_t(s.index)], &miss)) {
      r.kind = miss.kind, r.old_text = miss.old_text, r.new_text = miss.new_text;
      if (r.kind == "size") {
        learn_sizes(point, p, tensors);
        r.hint = size_hint(state, L, unit, t, p.tensors[size_t(s.index)], miss.dim);
      }
    }
  }
  if (s.op == GuardOp::kIdentityCheck && s.prototype) {
    learn_function(L, point, p, failed, nslots, nargs, self, constants, weak);
  }
  if (r.hint.empty()) r.hint = recompile_hint(r.kind);
  if (entry.decline) return point.entries.size() < 64;  // nothing was compiled, so that this is no recompile
  if (limit) {
    if (!point.limit_reported && !unit.automatic) {
      point.limit_reported = true;
      fprintf(stderr,
              "lutra: %s: recompile_limit (%d) reached, running the original code; last: %s%s%s was %s, is %s\n",
              unit.name.c_str(), rt.config.recompile_limit, r.source.c_str(), r.source.empty() ? "" : " ",
              r.kind.c_str(), r.old_text.c_str(), r.new_text.c_str());
    }
    return false;
  }
  rt.counters.recompiles[r.kind]++;
  log_recompile(unit, r);
  unit.recompiles->push_back(std::move(r));
  return true;
}

void report_internal(CaptureState& state, Unit& unit, const std::string& what, const std::string& graph) {
  unit.failed = true;
  (void)state;
  fprintf(stderr, "lutra: internal error in %s, which runs its original code from now on: %s\n%s%s", unit.name.c_str(),
          what.c_str(), graph.c_str(), graph.empty() || graph.back() == '\n' ? "" : "\n");
}

std::vector<NodeText> describe_nodes(const Graph& graph) {
  std::vector<NodeText> list;
  for (const auto& n : graph.nodes) {
    NodeText t;
    t.op = name(n->op);
    if (n->inplace && n->op != OpId::copy_) t.op += "_";
    t.name = str("%", n->id);
    t.line = n->line;
    for (const Value& v : n->args) {
      if (!t.args.empty()) t.args += ", ";
      if (v.is<Tensor>() && v.tensor()) {
        t.args += str("%", v.tensor()->node->id + v.tensor()->result);
      } else if (v.is<Scalar>()) {
        t.args += str(v.as<Scalar>().to_double());
      } else if (v.is<Sizes>()) {
        t.args += to_string(v.as<Sizes>());
      } else {
        t.args += v.is_none() ? "None" : "...";
      }
    }
    if (!n->results.empty() && n->results[0]) {
      t.dtype = name(n->results[0]->dtype);
      for (const SymInt& s : n->results[0]->sizes) t.shape.push_back(s.hint);
    }
    list.push_back(std::move(t));
  }
  return list;
}

// -- Lua tables

namespace {

void set_string(lua_State* L, const char* key, const std::string& s) {
  lua_pushlstring(L, s.data(), s.size());
  lua_setfield(L, -2, key);
}
void set_number(lua_State* L, const char* key, double d) {
  lua_pushnumber(L, d);
  lua_setfield(L, -2, key);
}
// A field that is a list: push(i) pushes element i of n.
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

int text_of(lua_State* L) {
  lua_getfield(L, 1, "_text");
  return 1;
}

// The table at the top prints as text.
void set_text(lua_State* L, const std::string& text) {
  lua_createtable(L, 0, 2);
  lua_pushcfunction(L, text_of);
  lua_setfield(L, -2, "__tostring");
  lua_createtable(L, 0, 1);
  set_string(L, "_text", text);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
}

int next_node(lua_State* L) {
  lua_Integer i = lua_tointeger(L, lua_upvalueindex(2)) + 1;
  lua_pushinteger(L, i);
  lua_replace(L, lua_upvalueindex(2));
  lua_rawgeti(L, lua_upvalueindex(1), int(i));
  return 1;
}

int graph_nodes(lua_State* L) {
  lua_getfield(L, 1, "_nodes");
  lua_pushinteger(L, 0);
  lua_pushcclosure(L, next_node, 2);
  return 1;
}

void push_reason(lua_State* L, const BreakReason& b) {
  lua_newtable(L);
  set_string(L, "reason", b.reason);
  set_string(L, "kind", b.kind);
  set_string(L, "file", b.file ? b.file : "?");
  set_number(L, "line", b.line);
  set_string(L, "hint", b.hint);
  set_string(L, "chain", b.chain);
}

// Appends to the list at the top of the stack.
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

// Gives the n values at the top to a function of stdlib/reports.lua, which makes of the first a table that prints.
void present(lua_State* L, const char* function, int n) {
  lua_getfield(L, LUA_REGISTRYINDEX, "lutra.module");
  lua_getfield(L, -1, "_native");
  lua_getfield(L, -1, "use");
  lua_pushliteral(L, "reports");
  lua_call(L, 1, 1);
  lua_getfield(L, -1, function);
  lua_insert(L, -4 - n);
  lua_pop(L, 3);
  lua_call(L, n, 1);
}

}  // namespace

void push_graph(lua_State* L, const Entry& e) {
  lua_newtable(L);
  lua_newtable(L);
  for (size_t i = 0; i < e.nodes.size(); i++) {
    const NodeText& n = e.nodes[i];
    lua_newtable(L);
    set_string(L, "op", n.op);
    set_string(L, "name", n.name);
    set_string(L, "args", n.args);
    set_number(L, "line", n.line);
    lua_newtable(L);
    set_string(L, "dtype", n.dtype);
    lua_newtable(L);
    for (size_t d = 0; d < n.shape.size(); d++) lua_pushnumber(L, double(n.shape[d])), lua_rawseti(L, -2, int(d) + 1);
    lua_setfield(L, -2, "shape");
    lua_setfield(L, -2, "meta");
    lua_rawseti(L, -2, int(i) + 1);
  }
  lua_setfield(L, -2, "_nodes");
  lua_pushcfunction(L, graph_nodes);
  lua_setfield(L, -2, "nodes");
  set_text(L, e.graph_text);
}

void push_recompiles(lua_State* L, const Unit& unit) {
  lua_newtable(L);
  int n = 0;
  for (const Recompile& r : *unit.recompiles) {
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

void push_entries(lua_State* L, const Unit& unit) {
  lua_newtable(L);
  lua_newtable(L);  // what is known of each
  int n = 0;
  for (const auto& [pc, point] : unit.points) {
    for (const auto& e : point.entries) {
      if (e->decline) continue;
      push_guards(L, *e);
      lua_rawseti(L, -3, ++n);
      lua_newtable(L);
      set_number(L, "pc", double(pc));
      set_number(L, "ops", double(e->ops));
      set_number(L, "hits", double(e->hits));
      lua_rawseti(L, -2, n);
    }
  }
  present(L, "guards", 2);
}

void push_explanation(lua_State* L, const Unit& unit, int first_result, int results) {
  lua_newtable(L);
  const auto& log = *unit.log;
  const auto& breaks = *unit.breaks;
  set_number(L, "graph_count", double(log.size()));
  set_number(L, "graph_break_count", double(breaks.size()));
  size_t ops = 0;
  for (const auto& entry : log) ops += entry->ops;
  set_list(L, "graphs", log.size(), [&](size_t i) { push_graph(L, *log[i]); });
  set_list(L, "ops_per_graph", log.size(), [&](size_t i) { push_names(L, log[i]->op_names); });
  set_number(L, "op_count", double(ops));
  set_list(L, "break_reasons", breaks.size(), [&](size_t i) { push_reason(L, breaks[i]); });
  lua_newtable(L);
  for (const auto& entry : log) append_guards(L, *entry);
  lua_setfield(L, -2, "out_guards");
  set_list(L, "kernels_per_graph", log.size(), [&](size_t i) { lua_pushnumber(L, double(log[i]->kernels)); });
  set_string(L, "name", unit.name);
  set_list(L, "compile_times", log.size(), [&](size_t i) { lua_pushnumber(L, log[i]->capture_ms); });
  set_list(L, "compile_stages", log.size(), [&](size_t i) {
    const Entry& e = *log[i];
    lua_newtable(L);
    set_number(L, "capture", e.capture_ms - e.compile_ms);
    set_number(L, "passes", e.passes_ms);
    set_number(L, "schedule", e.schedule_ms);
    set_number(L, "codegen", e.codegen_ms);
  });
  lua_newtable(L);
  for (int i = 0; i < results; i++) lua_pushvalue(L, first_result + i), lua_rawseti(L, -2, i + 1);
  set_number(L, "n", results);
  lua_setfield(L, -2, "result");
  lua_newtable(L);
  for (size_t i = 0; i < log.size(); i++) push_guards(L, *log[i]), lua_rawseti(L, -2, int(i) + 1);
  lua_pushnumber(L, double(unit.serial));
  present(L, "explanation", 3);
}

}  // namespace lutra
