// Models of library functions that call or make functions: inlines the functions of stdlib/lua_models.lua instead.
#include "vm/capture/trace/builtin_models.h"

#include <cmath>
#include <lua.hpp>

#include "vm/capture/trace/builtin_arguments.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/trace.h"
#include "vm/host/stdlib.h"

namespace lutra {
namespace {

constexpr int64_t kMaxSorted = 1000, kMaxText = 10000;

bool is_text(const Var* v) { return v->kind == VarKind::kString; }
// Returns whether v is a pattern without a zero byte. LuaJIT's functions differ in how they treat the text after one.
bool is_plain(Trace& t, Var* v) { return is_text(v) && t.text(v).find('\0') == std::string::npos; }
// Returns whether v is a number that a C int holds exactly.
bool is_small(Trace& t, Var* v) {
  if (v->kind != VarKind::kNumber) return false;
  const double d = t.constant(v);
  return d == std::trunc(d) && std::fabs(d) <= kMaxText;
}
bool is_function(const Var* v) {
  return v->kind == VarKind::kFunction || v->kind == VarKind::kClosure || v->kind == VarKind::kBinding;
}

// Returns a function of lua_models.lua. It is always the same object.
Var* model(Trace& t, const char* name) {
  push_stdlib_value(t.L, "lua_models");
  lua_getfield(t.L, -1, name);
  lua_pushvalue(t.L, -1);
  const int slot = t.constant_slot_from_stack();
  Var* f = t.force(t.wrap(t.source(SourceKind::kConstant, nullptr, nullptr, slot, name)));
  f->identity_guarded = true;
  lua_pop(t.L, 1);
  return f;
}

// Inlines a model. A break inside becomes a break before the call, since the real function cannot be resumed in its
// middle.
Vars inlined(Trace& t, const char* name, const Vars& args) {
  const size_t depth = t.frames.size();
  Var* f = model(t, name);
  const auto leave_out = [&] {
    for (Var* a : args) t.leave_out(a);
  };
  try {
    return t.call(f, args, true);
  } catch (const GraphBreak& b) {
    t.frames.resize(depth);
    if (!b.why.is_raised()) leave_out();
    throw GraphBreak{b.why, true};
  } catch (const LoopStop&) {
    t.frames.resize(depth);
    leave_out();
    t.stop(Break::called_loop, {.dirty = true});
  }
}

}  // namespace

Vars run_sort(Trace& t, Var*, const Vars& args) {
  Table* list = t.table_of(arg(t, args, 0));
  Var* before = arg(t, args, 1);
  if (!list || (before->kind != VarKind::kNil && !is_function(before))) t.stop(Break::raises, {"table.sort"});
  if (t.length(list) > kMaxSorted) t.stop(Break::long_list, {"table.sort"});
  return inlined(t, "sort", {args[0], before});
}

Vars run_maxn(Trace& t, Var*, const Vars& args) {
  Table* table = t.table_of(arg(t, args, 0));
  if (!table) t.stop(Break::raises, {"table.maxn"});
  if (t.length(table) > kMaxSorted) t.stop(Break::long_list, {"table.maxn"});
  return inlined(t, "maxn", {args[0]});
}

Vars run_gsub(Trace& t, Var* self, const Vars& args) {
  Var* by = arg(t, args, 2);
  if (!is_function(by) && by->kind != VarKind::kTable) return t.call_pure(self, args, self->builtin->name);
  Var *s = arg(t, args, 0), *pattern = arg(t, args, 1), *most = arg(t, args, 3);
  if (!is_text(s) || !is_plain(t, pattern)) t.stop(Break::argument, {"string.gsub"});
  if (most->kind != VarKind::kNil && !is_small(t, most)) t.stop(Break::argument, {"string.gsub"});
  if (t.text(s).size() > kMaxText) t.stop(Break::long_list, {"string.gsub"});
  return inlined(t, "gsub", {s, pattern, by, most});
}

Vars run_gmatch(Trace& t, Var*, const Vars& args) {
  Var *s = arg(t, args, 0), *pattern = arg(t, args, 1);
  if (!is_text(s) || !is_plain(t, pattern)) t.stop(Break::argument, {"string.gmatch"});
  return inlined(t, "gmatch", {s, pattern});
}

}  // namespace lutra
