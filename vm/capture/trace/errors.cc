// Carries an error from error or assert to the pcall or coroutine.resume around it. The frames between are dropped.
#include "vm/capture/trace/errors.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/capture/trace/builtin_debug.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/coroutines.h"
#include "vm/capture/trace/interpreter.h"
#include "vm/capture/trace/texts.h"
#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

bool is(const Var* v, const Builtin* builtin) { return v && v->builtin == builtin; }

bool is_caught_by(const ModeCall& mode) {
  if (mode.via == Via::kProtected) return !mode.handler;
  return mode.via == Via::kCoroutine && mode.catches && mode.catches->builtin->run == run_coroutine_resume;
}

// Returns whether the frame has come back from a yield, so that the C++ call that would catch its error is gone.
bool has_come_back(const Trace& t, size_t i) {
  if (!t.coroutines || t.coroutines->running.empty()) return false;
  const Coroutine& co = *t.coroutines->running.back();
  return i >= co.first && i < co.first + co.came_back;
}

// Returns whether only calls of Lua functions lie between the error and a call that catches it.
bool is_caught(const Trace& t) {
  for (size_t i = t.frames.size(); i-- > 1;) {
    const Frame& f = *t.frames[i];
    if (f.is_library() || f.is_builtin()) return false;
    if (!f.modes.empty())
      return is_caught_by(f.modes.back()) && (f.modes.back().via == Via::kCoroutine || !has_come_back(t, i));
    if (f.expression) return false;
  }
  return false;
}

// Returns whether pcall itself calls the function.
bool is_called_by_pcall(const Trace& t, const Builtin* function) {
  const Frame& f = *t.frames.back();
  return t.modes.size() == 1 && is_caught_by(t.modes[0]) && is(call_operand(f, 0), t.modes[0].catches->builtin) &&
         is(call_operand(f, 1), function);
}

// Returns the text with the place of the current call before it; null if the trace does not know it.
Var* with_place(Trace& t, Var* text) {
  const Frame& f = *t.frames.back();
  const bool plain = is_plain_call(bc::op(f.code->proto().code[f.pc])) && f.code->proto().has_debug;
  if (!plain || text->kind != VarKind::kString) return nullptr;
  return join(t, {t.string(str(short_source(*f.code), ":", f.line(), ": ")), text});
}

}  // namespace

void raise_if_caught(Trace& t, const Var* self, Var* value, bool located) {
  if (!t.regions.empty() || t.frames.empty()) return;
  const bool by_pcall = is_called_by_pcall(t, self->builtin);
  if (!by_pcall && (!t.modes.empty() || !is(call_operand(*t.frames.back(), 0), self->builtin) || !is_caught(t))) return;
  t.force(value);
  if (located && (value->kind == VarKind::kString || value->kind == VarKind::kNumber)) {
    const bool stays = by_pcall && value->kind == VarKind::kString;  // a C function has no place
    if (!stays && (by_pcall || !(value = with_place(t, value)))) return;
  }
  throw RaisedError{value};
}

Vars protected_call(Trace& t, Var* self, Var* handler, Var* f, Vars args) {
  ModeCall mode{Via::kProtected};
  mode.catches = self;
  mode.handler = handler;
  const std::vector<ModeCall> around = t.modes;
  const size_t depth = t.frames.size();
  const int top = lua_gettop(t.L);
  try {
    Vars results = t.call(f, std::move(args), false, mode);
    results.insert(results.begin(), t.boolean(true));
    return results;
  } catch (const RaisedError& error) {
    lua_settop(t.L, top);
    t.frames.resize(depth);
    t.modes = around;
    return {t.boolean(false), error.value};
  }
}

}  // namespace lutra
