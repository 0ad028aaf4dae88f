// debug.getinfo of a frame of the trace or of a Lua function: returns the same table as LuaJIT. Facts that only the
// real stack has (frames above the first one, active lines) break the graph.
#include "vm/capture/trace/builtin_debug.h"

#include <cmath>
#include <lua.hpp>

#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/trace.h"
#include "vm/mirror/prototypes.h"

namespace lutra {
namespace {

constexpr const char* kName = "debug.getinfo";

// The name by which a function was called: that of the slot it came from, as lj_debug_slotname finds it.
struct CallName {
  std::string name;
  const char* kind = "";  // empty if there is no name
};

CallName name_of_slot(const bc::Proto& proto, bc::Pc pc, unsigned slot) {
  const auto text = [&](unsigned k) { return std::get<std::string>(proto.kgc[k]); };
  const std::string local = bc::local_name(proto, pc, slot);
  if (!local.empty()) return {local, "local"};
  while (--pc > 0) {
    const bc::Ins i = proto.code[pc];
    const bc::Mode mode = bc::info(i).a;
    if (mode == bc::Mode::Base && slot >= bc::op_a(i)) {
      if (bc::op(i) != bc::Op::KNIL || slot <= bc::op_d(i)) return {};
    }
    if (mode != bc::Mode::Dst || bc::op_a(i) != slot) continue;
    switch (bc::op(i)) {
      case bc::Op::MOV: return name_of_slot(proto, pc, bc::op_d(i));
      case bc::Op::GGET: return {text(bc::op_d(i)), "global"};
      case bc::Op::UGET: return {bc::upvalue_name(proto, bc::op_d(i)), "upvalue"};
      case bc::Op::TGETS: {
        const bc::Ins before = proto.code[pc - 1];  // for a method call the object is copied to the first argument
        const bool method =
            pc > 1 && bc::op(before) == bc::Op::MOV && bc::op_a(before) == slot + 2 && bc::op_d(before) == bc::op_b(i);
        return {text(bc::op_c(i)), method ? "method" : "field"};
      }
      default: return {};
    }
  }
  return {};
}

// Returns whether the frame is directly below the one before it on the real stack, too.
bool is_called_by_the_one_before(const Trace& t, size_t at) {
  const Frame &f = *t.frames[at], &caller = *t.frames[at - 1];
  const bc::Op by = bc::op(caller.code->proto().code[caller.pc]);
  const bool plain = f.modes.empty() && !f.expression && !f.tail && !f.is_library();
  return plain && !caller.is_library() && (by == bc::Op::CALL || by == bc::Op::CALLM);
}

// Returns the index of the frame at a level, where getinfo itself is level 0.
size_t frame_at(Trace& t, const Var* asks, double level) {
  const size_t n = t.frames.size();
  if (level < 1 || level > double(n) || level != std::trunc(level)) t.stop(Break::frames, {kName});
  const size_t at = n - size_t(level);
  const Frame& innermost = *t.frames.back();
  const bc::Ins call = innermost.code->proto().code[innermost.pc];
  const bool calls = bc::op(call) == bc::Op::CALL || bc::op(call) == bc::Op::CALLM;
  const Var* called = calls ? innermost.slots[bc::op_a(call)] : nullptr;
  // A pcall may be between them.
  const bool by_itself = called && called->builtin && called->builtin == asks->builtin;
  if (!by_itself || innermost.is_library()) t.stop(Break::frames, {kName});
  for (size_t i = at + 1; i < n; i++) {
    if (!is_called_by_the_one_before(t, i)) t.stop(Break::frames, {kName});
  }
  return at;
}

struct Asked {
  Trace& t;
  const LuaCode* code;
  Var* function;
  const Frame* frame = nullptr;  // null if the function itself is asked for
  size_t at = 0;
  Table* out = nullptr;

  void set(const char* key, Var* v) { t.raw_set(out, t.string(key), v); }
  void set(const char* key, double d) { set(key, t.number(d)); }

  void source() {
    const bc::Proto& proto = code->proto();
    set("source", t.string(code->dump->chunkname));
    set("short_src", t.string(short_source(*code)));
    set("linedefined", proto.first_line);
    set("lastlinedefined", proto.first_line + proto.num_lines);
    set("what", t.string(proto.first_line || !proto.num_lines ? "Lua" : "main"));
  }
  void name() {
    CallName found;
    if (frame) {
      if (at == 0 || !is_called_by_the_one_before(t, at)) t.stop(Break::frames, {kName});
      const Frame& caller = *t.frames[at - 1];
      const bc::Proto& proto = caller.code->proto();
      found = name_of_slot(proto, caller.pc, bc::op_a(proto.code[caller.pc]));
    }
    if (*found.kind) set("name", t.string(found.name));
    set("namewhat", t.string(found.kind));
  }
  void option(char o) {
    const bc::Proto& proto = code->proto();
    switch (o) {
      case 'S': return source();
      case 'l': return set("currentline", frame ? frame->line() : -1);
      case 'u':
        set("nups", double(proto.upvalues.size()));
        set("nparams", proto.num_params);
        return set("isvararg", t.boolean(proto.vararg()));
      case 'n': return name();
      case 'f':
        // The frame's own function may be a copy of the user's function.
        if (frame && (at == 0 || !is_called_by_the_one_before(t, at))) t.stop(Break::frames, {kName});
        return set("func", function);
      default: t.stop(Break::debug, {kName});
    }
  }
};

// Returns whether the function runs the rest of a frame after a break. Such a frame has a function of its own.
bool goes_on(const Trace& t, const Var* function) {
  if (function->kind != VarKind::kFunction) return false;
  lua_State* L = t.L;
  lua_rawgeti(L, t.pins, function->pin);
  const bool resumed = !lua_iscfunction(L, -1) && is_resumed(L, lua_gettop(L));
  lua_pop(L, 1);
  return resumed;
}

}  // namespace

std::string short_source(const LuaCode& code) {
  constexpr size_t kMost = 59, kDots = 3;
  const std::string& chunkname = code.dump->chunkname;
  if (chunkname.empty() || (chunkname[0] != '=' && chunkname[0] != '@')) return code.file;
  const std::string name = chunkname.substr(1);
  if (name.size() <= kMost) return name;
  return chunkname[0] == '=' ? name.substr(0, kMost) : "..." + name.substr(name.size() - (kMost - kDots));
}

Vars run_getinfo(Trace& t, Var* self, const Vars& args) {
  Var* of = args.empty() ? t.nil() : t.force(args[0]);
  Var* what = args.size() < 2 ? t.nil() : t.force(args[1]);
  const std::string options = what->kind == VarKind::kString ? t.text(what) : "flnSu";
  if (what->kind != VarKind::kString && what->kind != VarKind::kNil) t.stop(Break::debug, {kName});
  Asked asked{t, nullptr, of};
  if (of->kind == VarKind::kNumber) {
    asked.at = frame_at(t, self, t.constant(of));
    asked.frame = t.frames[asked.at];
    asked.code = asked.frame->code, asked.function = asked.frame->function;
  } else if (of->kind == VarKind::kClosure && !of->builtin) {
    asked.code = of->closure->code;
  } else if (of->kind == VarKind::kFunction && !of->builtin && !of->binding) {
    t.guard_callee(of);
    t.push_pin(of->pin);
    asked.code = code_of(t.state, t.L, -1);
    lua_pop(t.L, 1);
  }
  if (!asked.code || !asked.code->proto().has_debug) t.stop(Break::debug, {kName});
  if (goes_on(t, asked.function)) t.stop(Break::frames, {kName});
  constexpr int kFields = 16;
  Var* table = t.fresh_table(0, kFields);
  asked.out = table->table;
  for (const char o : options) asked.option(o);
  return {table};
}

}  // namespace lutra
