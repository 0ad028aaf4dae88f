// Models of Lua's library and of lt's own functions, one row each.
#include "vm/capture/trace/builtins.h"

#include <algorithm>
#include <cmath>
#include <lua.hpp>
#include <tuple>

#include "ops/defs/call.h"
#include "vm/bind/tensor_userdata.h"
#include "vm/capture/trace/builtin_arguments.h"
#include "vm/capture/trace/builtin_debug.h"
#include "vm/capture/trace/builtin_models.h"
#include "vm/capture/trace/builtin_modes.h"
#include "vm/capture/trace/builtin_numbers.h"
#include "vm/capture/trace/coroutines.h"
#include "vm/capture/trace/errors.h"
#include "vm/capture/trace/function_node.h"
#include "vm/capture/trace/gradient_hooks.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/read_numbers.h"
#include "vm/capture/trace/regions.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/texts.h"
#include "vm/capture/trace/trace.h"
#include "vm/capture/trace/unbacked_sizes.h"

namespace lutra {
namespace {

double number_arg(Trace& t, const Vars& args, size_t i, const char* name) {
  Var* v = arg(t, args, i);
  if (v->kind != VarKind::kNumber) t.stop(Break::argument, {name});
  return t.constant(v);
}

// Reads an argument that C takes as an int.
int whole_arg(Trace& t, const Vars& args, size_t i, const char* name) {
  const double d = number_arg(t, args, i, name);
  if (d != std::trunc(d) || std::fabs(d) > 1 << 30) t.stop(Break::argument, {name});
  return int(d);
}

int optional_arg(Trace& t, const Vars& args, size_t i, const char* name, int otherwise) {
  return arg(t, args, i)->kind == VarKind::kNil ? otherwise : whole_arg(t, args, i, name);
}

// Returns the iterator that pairs or ipairs return. It calls the function itself, since globals may have been replaced.
Var* iterator_of(Trace& t, Var* self) {
  t.push_real(self);
  lua_newtable(t.L);
  lua_call(t.L, 1, 1);
  return t.constant_from_stack();
}

const char* type_name(Var* v) {
  switch (v->kind) {
    case VarKind::kNil: return "nil";
    case VarKind::kBool: return "boolean";
    case VarKind::kNumber: return "number";
    case VarKind::kString: return "string";
    case VarKind::kTensor: return "userdata";
    case VarKind::kTable: return "table";
    case VarKind::kObject: return nullptr;
    default: return "function";
  }
}

Vars run_type(Trace& t, Var* self, const Vars& args) {
  if (args.empty()) t.stop(Break::raises, {"type"});
  Var* v = t.force(args[0]);
  if (const char* name = type_name(v)) return {t.string(name)};
  (void)self;
  t.push_pin(v->pin);
  const std::string name = luaL_typename(t.L, -1);
  lua_pop(t.L, 1);
  return {t.string(name)};
}

Vars run_pure(Trace& t, Var* self, const Vars& args) { return t.call_pure(self, args, self->builtin->name); }

Vars run_select(Trace& t, Var*, const Vars& args) {
  Var* n = arg(t, args, 0);
  if (n->kind == VarKind::kString && t.text(n) == "#") return {t.number(double(args.size()) - 1)};
  int i = whole_arg(t, args, 0, "select");
  if (i < 0) i += int(args.size());
  if (i < 1) t.stop(Break::raises, {"select"});
  if (size_t(i) >= args.size()) return {};
  return Vars(args.begin() + i, args.end());
}

Vars run_next(Trace& t, Var*, const Vars& args) {
  auto [k, v] = t.next(table_arg(t, args, 0, "next"), arg(t, args, 1));
  if (k->kind == VarKind::kNil) return {k};
  return {k, v};
}

Vars run_joineds(Trace& t, Var* self, const Vars& args) {
  table_arg(t, args, 0, "pairs");
  return {iterator_of(t, self), args[0], t.nil()};
}

Vars run_ipairs_step(Trace& t, Var*, const Vars& args) {
  Var* i = t.number(whole_arg(t, args, 1, "ipairs") + 1);
  Var* v = t.force(t.raw_get(table_arg(t, args, 0, "ipairs"), i));
  if (v->kind == VarKind::kNil) return {};
  return {i, v};
}

Vars run_ipairs(Trace& t, Var* self, const Vars& args) {
  table_arg(t, args, 0, "ipairs");
  return {iterator_of(t, self), args[0], t.number(0)};
}

Vars run_rawget(Trace& t, Var*, const Vars& args) {
  if (args.size() < 2) t.stop(Break::raises, {"rawget"});
  return {t.raw_get(table_arg(t, args, 0, "rawget"), arg(t, args, 1))};
}

Vars run_rawset(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "rawset");
  if (args.size() < 3 || arg(t, args, 1)->kind == VarKind::kNil) t.stop(Break::raises, {"rawset"});
  t.raw_set(table, args[1], arg(t, args, 2));
  return {args[0]};
}

Vars run_rawequal(Trace& t, Var*, const Vars& args) {
  if (args.size() < 2) t.stop(Break::raises, {"rawequal"});
  return {t.boolean(t.same(arg(t, args, 0), arg(t, args, 1)))};
}

Vars run_getmetatable(Trace& t, Var*, const Vars& args) {
  Var* v = arg(t, args, 0);
  const bool has = v->kind == VarKind::kTable || v->kind == VarKind::kString || v->kind == VarKind::kTensor;
  if (!has) t.stop(Break::metatable, {"a value that is not a table"});
  Var* mt = t.metatable(v);
  if (mt->kind == VarKind::kNil) return {mt};
  Var* protect = t.force(t.raw_get(mt->table, t.string("__metatable")));
  return {protect->kind == VarKind::kNil ? mt : protect};
}

Vars run_setmetatable(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "setmetatable");
  Var* mt = arg(t, args, 1);
  if (mt->kind != VarKind::kNil && mt->kind != VarKind::kTable) t.stop(Break::raises, {"setmetatable"});
  if (mt->kind == VarKind::kTable && t.force(t.raw_get(mt->table, t.string("__gc")))->kind != VarKind::kNil) {
    t.stop(Break::finalizer);
  }
  Var* old = t.metatable(args[0]);
  const bool protect =
      old->kind == VarKind::kTable && t.force(t.raw_get(old->table, t.string("__metatable")))->kind != VarKind::kNil;
  if (protect || args.size() < 2) t.stop(Break::raises, {"setmetatable"});
  t.writes_outside(*table);
  if (table->pin != 0 && !table->written) t.written_tables.push_back(table);
  table->written = true;
  table->metatable = mt;
  table->metatable_written = true;
  t.effect = true;
  return {args[0]};
}

// Models getfenv for the function that calls it.
Vars run_getfenv(Trace& t, Var* self, const Vars& args) {
  Var* level = arg(t, args, 0);
  Frame& f = *t.frames.back();
  const bool own = level->kind == VarKind::kNil || (level->kind == VarKind::kNumber && t.constant(level) == 1);
  const Var* called = is_plain_call(bc::op(f.code->proto().code[f.pc])) ? call_operand(f, 0) : nullptr;
  if (!own || !called || called->builtin != self->builtin) t.stop(Break::environment, {self->builtin->name});
  return {environment(t, f)};
}

// Models require: returns the value in package.loaded. If the module is not loaded yet, the original code loads it.
Vars run_require(Trace& t, Var* self, const Vars& args) {
  Var* name = arg(t, args, 0);
  if (name->kind != VarKind::kString) t.stop(Break::raises, {"require"});
  lua_getfield(t.L, LUA_REGISTRYINDEX, "_LOADED");
  lua_pushvalue(t.L, -1);
  const int slot = t.constant_slot_from_stack();
  Var* loaded = t.root_table(t.source(SourceKind::kConstant, nullptr, nullptr, slot, "package.loaded"));
  Var* module = t.force(t.raw_get(loaded->table, name));
  // While a module is being loaded, package.loaded has a mark.
  const bool absent = module->kind == VarKind::kObject || !t.truthy(module);
  if (absent) t.stop(Break::load, {self->builtin->name});
  return {module};
}

Vars run_assert(Trace& t, Var* self, const Vars& args) {
  if (!args.empty() && t.truthy(args[0])) return args;
  Var* message = args.size() < 2 ? t.string("assertion failed!") : t.force(args[1]);
  // The real assert ends a text at its first NUL. A text that changes is not read here.
  const bool is_text = message->kind == VarKind::kString;
  const bool is_whole = !is_text || (!may_change(message) && t.text(message).find('\0') == std::string::npos);
  if (!args.empty() && is_whole) raise_if_caught(t, self, message, true);
  t.stop(Break::assert_fails);
}

// Models pcall and xpcall. An error inside, other than of error and assert, is a graph break: the frames are rebuilt
// below the real pcall, which catches the error.
Vars run_pcall(Trace& t, Var* self, const Vars& args) {
  if (args.empty()) t.stop(Break::raises, {"pcall"});
  return protected_call(t, self, nullptr, args[0], Vars(args.begin() + 1, args.end()));
}

Vars run_xpcall(Trace& t, Var* self, const Vars& args) {
  Var* handler = arg(t, args, 1);
  if (handler->kind != VarKind::kFunction && handler->kind != VarKind::kClosure && handler->kind != VarKind::kBinding) {
    t.stop(Break::raises, {"xpcall"});
  }
  return protected_call(t, self, handler, args[0], Vars(args.begin() + 2, args.end()));
}

Vars run_error(Trace& t, Var* self, const Vars& args) {
  Var* level = arg(t, args, 1);
  const double n = level->kind == VarKind::kNil ? 1 : level->kind == VarKind::kNumber ? t.constant(level) : -1;
  if (n == 0 || n == 1) raise_if_caught(t, self, arg(t, args, 0), n == 1);
  t.stop(Break::error_called);
}

Vars run_fail(Trace& t, Var*, const Vars&) { t.stop(Break::error_called); }

Vars run_unpack(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "unpack");
  const int64_t from = optional_arg(t, args, 1, "unpack", 1);
  const bool all = arg(t, args, 2)->kind == VarKind::kNil;
  const int64_t to = all ? t.length(table) : whole_arg(t, args, 2, "unpack");
  if (to - from > 200) t.stop(Break::long_list, {"unpack"});
  Vars r;
  for (int64_t i = from; i <= to; i++) r.push_back(t.raw_get(table, t.number(double(i))));
  return r;
}

Vars run_insert(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "table.insert");
  // In the body of a loop that is not unrolled each iteration appends.
  const bool grows = table->pin != 0 && (t.options.changing_values.count("#" + table->source->text) > 0 ||
                                         !t.options.loop_variables.empty());
  if (args.size() == 2 && grows) {
    t.raw_set(table, arithmetic(t, bc::Op::ADDVV, t.length_of(table), t.number(1)), args[1]);
    return {};
  }
  const int64_t n = t.length(table);
  if (args.size() == 2) {
    t.raw_set(table, t.number(double(n + 1)), args[1]);
    return {};
  }
  if (args.size() != 3) t.stop(Break::raises, {"table.insert"});
  const int64_t at = whole_arg(t, args, 1, "table.insert");
  t.charge(uint64_t(std::max<int64_t>(0, n - at)));
  for (int64_t i = n; i >= at; i--) {
    t.raw_set(table, t.number(double(i + 1)), t.raw_get(table, t.number(double(i))));
  }
  t.raw_set(table, t.number(double(at)), args[2]);
  return {};
}

Vars run_remove(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "table.remove");
  const int64_t n = t.length(table);
  const bool given = arg(t, args, 1)->kind != VarKind::kNil;
  const int64_t at = given ? whole_arg(t, args, 1, "table.remove") : n;
  if (n == 0 && !given) return {};
  t.charge(uint64_t(std::max<int64_t>(0, n - at)));
  if (at < 1 || at > n) t.stop(Break::argument, {"table.remove"});
  Var* removed = t.raw_get(table, t.number(double(at)));
  for (int64_t i = at; i < n; i++) {
    t.raw_set(table, t.number(double(i)), t.raw_get(table, t.number(double(i + 1))));
  }
  t.raw_set(table, t.number(double(n)), t.nil());
  return {removed};
}

Vars run_getn(Trace& t, Var*, const Vars& args) {
  return {t.number(double(t.length(table_arg(t, args, 0, "table.getn"))))};
}

Vars run_concat(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "table.concat");
  Var* by = arg(t, args, 1);
  const auto need_text = [&](const Var* v) {
    if (v->kind != VarKind::kString && v->kind != VarKind::kNumber) t.stop(Break::raises, {"table.concat"});
  };
  if (by->kind != VarKind::kNil) need_text(by);
  const int64_t from = optional_arg(t, args, 2, "table.concat", 1);
  const bool all = arg(t, args, 3)->kind == VarKind::kNil;
  const int64_t to = all ? t.length(table) : whole_arg(t, args, 3, "table.concat");
  Vars parts;
  for (int64_t i = from; i <= to; i++) {
    if (i > from && by->kind != VarKind::kNil) parts.push_back(by);
    parts.push_back(t.force(t.raw_get(table, t.number(double(i)))));
    need_text(parts.back());
  }
  return {join(t, parts)};
}

// -- lt

Vars run_storage_offset(Trace& t, Var*, const Vars& args) {
  if (arg(t, args, 0)->kind != VarKind::kTensor) t.stop(Break::raises, {"storage_offset"});
  return {t.storage_offset(args[0])};
}

Vars run_tensor_index(Trace& t, Var*, const Vars& args) {
  if (arg(t, args, 0)->kind != VarKind::kTensor || args.size() < 2) t.stop(Break::raises, {"__index"});
  return {t.tensor_attribute(args[0], args[1])};
}

Vars run_tensor_newindex(Trace& t, Var*, const Vars& args) {
  if (arg(t, args, 0)->kind != VarKind::kTensor || args.size() < 3) t.stop(Break::raises, {"__newindex"});
  t.set_tensor_attribute(args[0], args[1], args[2]);
  return {};
}

Vars run_is_compiling(Trace& t, Var*, const Vars&) { return {t.boolean(true)}; }

Vars run_is_plain_checkpoint(Trace& t, Var*, const Vars&) {
  const bool plain = !t.options.automatic || !grad_enabled();
  t.plain_checkpoints += plain && grad_enabled();
  return {t.boolean(plain)};
}

// Models manual_seed, which takes effect before the graph's draws. If the graph has drawn already, it ends.
Vars run_manual_seed(Trace& t, Var*, const Vars& args) {
  if (!t.regions.empty()) t.regions.back()->refuse("manual_seed is called");
  Var* seed = arg(t, args, 0);
  const bool number = seed->kind == VarKind::kNumber && !seed->tensor;
  if (!number || t.graph->rng_calls) t.stop(Break::random_state, {"manual_seed"});
  const Scalar s = t.symbolic(seed);
  SymEnv& env = *t.graph->env;
  if (is_unbacked(t, s.expr)) t.stop(Break::random_state, {"manual_seed"});
  const bool whole = s.expr ? s.kind == Scalar::kInt || env.ask_integer(s.expr) : s.is_whole();
  if (!whole || (!s.expr && std::fabs(s.to_double()) > 0x1p53)) t.stop(Break::random_state, {"manual_seed"});
  t.seed = t.scalar(s);
  t.effect = true;
  return {};
}

Vars run_graph_break(Trace& t, Var*, const Vars& args) {
  const bool says = !args.empty() && t.force(args[0])->kind == VarKind::kString;
  t.stop(Break::user, {"", says ? t.text(args[0]) : ""});
}

const Builtin kRows[] = {
    {"type", run_type},
    {"select", run_select},
    {"debug.getinfo", run_getinfo},
    {"coroutine.create", run_coroutine_create},
    {"coroutine.wrap", run_coroutine_wrap},
    {"coroutine.resume", run_coroutine_resume},
    {"coroutine.yield", run_coroutine_yield},
    {"coroutine.status", run_coroutine_status},
    {"coroutine.running", run_coroutine_running},
    {"coroutine.isyieldable", run_coroutine_isyieldable},
    {"next", run_next},
    {"pairs", run_joineds},
    {"ipairs", run_ipairs},
    {"ipairs iterator", run_ipairs_step},
    {"tensor.__index", run_tensor_index},
    {"tensor.__newindex", run_tensor_newindex},
    {"rawget", run_rawget},
    {"rawset", run_rawset},
    {"rawequal", run_rawequal},
    {"getmetatable", run_getmetatable},
    {"setmetatable", run_setmetatable},
    {"assert", run_assert},
    {"error", run_error},
    {"pcall", run_pcall},
    {"xpcall", run_xpcall},
    {"unpack", run_unpack},
    {"tostring", run_tostring},
    {"tonumber", run_tonumber},
    {"require", run_require},
    {"getfenv", run_getfenv},
    {"table.insert", run_insert},
    {"table.remove", run_remove},
    {"table.getn", run_getn},
    {"table.concat", run_concat},
    {"table.sort", run_sort},
    {"table.maxn", run_maxn},
    {"math.sqrt", run_host},
    {"math.exp", run_host},
    {"math.log", run_log},
    {"math.sin", run_host},
    {"math.cos", run_host},
    {"math.floor", run_host},
    {"math.ceil", run_host},
    {"math.abs", run_host},
    {"math.random", run_random},
    {"math.randomseed", run_randomseed},
    {"math.max", run_extreme},
    {"math.min", run_extreme},
    {"math.pow", run_pow},
    {"math.fmod", run_fmod},
    {"math.modf", run_modf},
    {"math.tan", run_host},
    {"math.tanh", run_host},
    {"math.log10", run_host},
    {"math.sinh", run_host},
    {"math.cosh", run_host},
    {"math.asin", run_host},
    {"math.acos", run_host},
    {"math.atan", run_host},
    {"math.atan2", run_joined},
    {"math.ldexp", run_ldexp},
    {"math.frexp", run_pure},
    {"bit.tobit", run_bits},
    {"bit.tohex", run_pure},
    {"bit.bnot", run_bits},
    {"bit.band", run_bits},
    {"bit.bor", run_bits},
    {"bit.bxor", run_bits},
    {"bit.lshift", run_bits},
    {"bit.rshift", run_bits},
    {"bit.arshift", run_bits},
    {"bit.rol", run_bits},
    {"bit.ror", run_bits},
    {"bit.bswap", run_bits},
    {"string.format", run_format},
    {"string.sub", run_text},
    {"string.find", run_pure},
    {"string.match", run_pure},
    {"string.gsub", run_gsub},
    {"string.gmatch", run_gmatch},
    {"string.upper", run_text},
    {"string.lower", run_text},
    {"string.rep", run_rep},
    {"string.len", run_pure},
    {"string.byte", run_pure},
    {"string.char", run_pure},
    {"string.reverse", run_text},
    {"lutra.no_grad", run_no_grad},
    {"lutra.inference_mode", run_no_grad},
    {"lutra.enable_grad", run_enable_grad},
    {"lutra._native.fail", run_fail},
    {"lutra._native.autocast_check", run_autocast_check},
    {"lutra._native.autocast_region", run_autocast},
    {"lutra._native.is_plain_checkpoint", run_is_plain_checkpoint},
    {"lutra._native.control_possible", run_control_possible},
    {"lutra._native.control_peels", run_control_peels},
    {"lutra._native.control_open", run_control_open},
    {"lutra._native.control_close", run_control_close},
    {"lutra._native.control_refuse", run_control_refuse},
    {"lutra._native.control_place_of", run_control_place_of},
    {"lutra._native.control_cond", run_control_cond},
    {"lutra._native.control_while", run_control_while},
    {"lutra._native.control_scan", run_control_scan},
    {"lutra._native.control_branch_reads", run_control_branch_reads},
    {"lutra._native.control_loop_reads", run_control_loop_reads},
    {"lutra.graph_break", run_graph_break},
    {"lutra.is_compiling", run_is_compiling},
    {"lutra._native.is_captured", run_is_compiling},
};

const Builtin kBindingRows[] = {
    {"set_grad_enabled", run_set_grad_enabled},
    {"is_grad_enabled", run_is_grad_enabled},
    {"storage_offset", run_storage_offset},
    {"item", run_item},
    {"tolist", run_tolist},
    {"totable", run_totable},
    {"equal", run_equal},
    {"allclose", run_allclose},
    {"manual_seed", run_manual_seed},
    {"retain_grad", run_retain_grad},
    {"register_hook", run_register_hook},
    {"_native.make_node", run_make_node},
};

// Returns whether the value at the top is a function of LuaJIT's own libraries, in C or in bytecode. A host may have
// replaced some.
bool is_library_function(lua_State* L) {
  if (!lua_isfunction(L, -1) || lua_iscfunction(L, -1)) return lua_isfunction(L, -1);
  lua_Debug about;
  lua_pushvalue(L, -1);
  lua_getinfo(L, ">S", &about);
  return strncmp(about.short_src, "[builtin:", 9) == 0;
}

// Records the functions of a table by address. The table `anchors` keeps them alive, so that their addresses are not
// reused.
void learn_table(lua_State* L, TraceState& state, const std::string& prefix, int table, int anchors) {
  const bool ours = prefix.starts_with("lutra.");
  lua_pushnil(L);
  while (lua_next(L, table)) {
    if (lua_type(L, -2) == LUA_TSTRING && (ours ? lua_isfunction(L, -1) : is_library_function(L))) {
      const std::string name = prefix + lua_tostring(L, -2);
      const void* p = lua_topointer(L, -1);
      if (const Builtin* b = find_builtin_row(name)) state.builtins[p] = b;
      state.c_names.emplace(p, name);
      lua_pushvalue(L, -1);
      lua_pushboolean(L, 1);
      lua_rawset(L, anchors);
    }
    lua_pop(L, 1);
  }
}

}  // namespace

const Builtin* find_builtin_row(const std::string& name) {
  static const auto rows = [] {
    std::unordered_map<std::string_view, const Builtin*> out;
    for (const Builtin& b : kRows) out.emplace(b.name, &b);
    return out;
  }();
  const auto row = rows.find(name);
  return row == rows.end() ? nullptr : row->second;
}

const Builtin* find_binding_builtin(const std::string& name) {
  for (const Builtin& b : kBindingRows) {
    if (name == b.name) return &b;
  }
  return nullptr;
}

const Builtin* find_builtin(const TraceState& state, const void* function) {
  auto it = state.builtins.find(function);
  return it == state.builtins.end() ? nullptr : it->second;
}

std::string name_of_function(const TraceState& state, const void* function) {
  auto it = state.c_names.find(function);
  return it == state.c_names.end() ? "" : it->second;
}

const std::string* disabled_because(const TraceState& state, const void* function) {
  auto it = state.disabled.find(function);
  return it == state.disabled.end() ? nullptr : &it->second;
}

void learn_builtins(lua_State* L, TraceState& state) {
  const int module = lua_gettop(L), anchors = module + 1, globals = module + 2;
  lua_newtable(L);
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  learn_table(L, state, "", globals, anchors);
  for (const char* library : {"math", "string", "table", "bit", "io", "os", "coroutine", "debug"}) {
    lua_getfield(L, globals, library);
    if (lua_istable(L, -1)) learn_table(L, state, std::string(library) + ".", lua_gettop(L), anchors);
    lua_pop(L, 1);
  }
  luaL_getmetatable(L, LUA_FILEHANDLE);
  if (lua_istable(L, -1)) learn_table(L, state, "file:", lua_gettop(L), anchors);
  lua_pop(L, 1);
  lua_getfield(L, globals, "ipairs");
  lua_newtable(L);
  lua_call(L, 1, 1);
  state.builtins[lua_topointer(L, -1)] = find_builtin_row("ipairs iterator");
  lua_pushboolean(L, 1);
  lua_rawset(L, anchors);
  push_tensor_metatable(L);
  for (const char* event : {"__index", "__newindex"}) {
    lua_getfield(L, -1, event);
    state.builtins[lua_topointer(L, -1)] = find_builtin_row(str("tensor.", event));
    if (lua_getupvalue(L, -1, 1)) lua_setfield(L, LUA_REGISTRYINDEX, "lutra.methods");
    lua_pushboolean(L, 1);
    lua_rawset(L, anchors);
  }
  lua_pop(L, 1);
  learn_table(L, state, "lutra.", module, anchors);
  lua_getfield(L, module, "_native");
  learn_table(L, state, "lutra._native.", lua_gettop(L), anchors);
  lua_settop(L, anchors);
  lua_setfield(L, LUA_REGISTRYINDEX, "lutra.builtins");
}

}  // namespace lutra
