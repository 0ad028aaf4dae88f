// Strings that are built after the run from numbers and strings that may change.
#include "vm/capture/trace/texts.h"

#include <algorithm>
#include <lua.hpp>

#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/cdata.h"
#include "vm/capture/trace/state.h"
#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

constexpr int kDeepest = 64;           // depth of nested texts: a loop that appends to one makes a chain
constexpr size_t kMaxBytes = 1 << 20;  // size of a repeated text
constexpr size_t kMaxParts = 200;      // each is a slot of the stack

bool is_value(const Var* v) {
  return v->kind == VarKind::kNil || v->kind == VarKind::kBool || v->kind == VarKind::kNumber ||
         v->kind == VarKind::kString;
}

bool any_may_change(const Vars& args) { return std::any_of(args.begin(), args.end(), may_change); }

// Makes a string that is built after the run. Returns null if it should be a constant.
Var* text_later(Trace& t, Var* function, const Vars& args) {
  if (args.size() > kMaxParts) return nullptr;
  int depth = 0;
  for (const Var* v : args) depth = std::max(depth, v->text ? v->text->depth : 0);
  if (depth >= kDeepest) return nullptr;
  t.texts.push_back({function, args, depth + 1});
  t.vars.emplace_back();
  Var* v = &t.vars.back();
  v->kind = VarKind::kString;
  v->guarded = false;
  v->text = &t.texts.back();
  return v;
}

std::string constant_text(Trace& t, Var* v) {
  if (v->kind == VarKind::kString) return t.text(v);
  push_number(t.L, t.constant(v));
  const std::string text = lua_tostring(t.L, -1);
  lua_pop(t.L, 1);
  return text;
}

// Returns whether a format takes only strings, so that it fails for none.
bool takes_texts(const std::string& format) {
  for (size_t i = 0; i < format.size(); i++) {
    if (format[i] != '%') continue;
    if (++i < format.size() && format[i] == '%') continue;
    i = format.find_first_not_of("-+ #.0123456789", i);
    if (i == std::string::npos || (format[i] != 's' && format[i] != 'q')) return false;
  }
  return true;
}

// Returns whether the function accepts such arguments. The values of numbers do not matter.
bool succeeds(Trace& t, Var* function, const Vars& args) {
  const int top = lua_gettop(t.L);
  luaL_checkstack(t.L, int(args.size()) + 16, "capture");
  t.push_real(function);
  for (Var* v : args) {
    if (!may_change(v)) {
      t.push_real(v);
    } else if (v->kind == VarKind::kNumber) {
      lua_pushnumber(t.L, 1);
    } else {
      lua_pushliteral(t.L, "text");
    }
  }
  const bool ok = lua_pcall(t.L, int(args.size()), 1, 0) == 0 && lua_type(t.L, -1) == LUA_TSTRING;
  lua_settop(t.L, top);
  return ok;
}

void force_all(Trace& t, const Vars& args) {
  for (Var* v : args) t.force(v);
}

}  // namespace

bool may_change(const Var* v) {
  if (v->kind == VarKind::kNumber) return v->tensor || v->num.expr || (v->source && !v->guarded);
  return v->kind == VarKind::kString && (v->text || (v->source && !v->guarded));
}

Var* join(Trace& t, const Vars& parts) {
  if (any_may_change(parts)) {
    if (Var* v = text_later(t, nullptr, parts)) return v;
  }
  std::string joined;
  for (Var* v : parts) joined += constant_text(t, v);
  return t.string(joined);
}

void pin_text(Trace& t, Var* v) {
  const MadeText& text = *v->text;
  if (text.function) {
    const Vars made = t.call_pure(text.function, text.args, text.function->builtin->name);
    v->s = t.text(made[0]);
  } else {
    v->s.clear();
    for (Var* part : text.args) v->s += constant_text(t, part);
  }
  v->text = nullptr;
  v->guarded = true;
}

Vars run_text(Trace& t, Var* self, const Vars& args) {
  force_all(t, args);
  const bool plain = std::all_of(args.begin(), args.end(), is_value);
  const bool text = !args.empty() && args[0]->kind == VarKind::kString;
  if (plain && text && any_may_change(args) && succeeds(t, self, args)) {
    if (Var* v = text_later(t, self, args)) return {v};
  }
  return t.call_pure(self, args, self->builtin->name);
}

// Returns whether the format has a %p, with flags and a width.
bool takes_address(const std::string& format) {
  for (size_t at = format.find('%'); at < format.size(); at = format.find('%', at + 1)) {
    at = format.find_first_not_of("-+ #0123456789.", at + 1);
    if (at < format.size() && format[at] == 'p') return true;
  }
  return false;
}

Vars run_format(Trace& t, Var* self, const Vars& args) {
  force_all(t, args);
  for (Var* v : args) {
    const bool other = v->kind == VarKind::kObject && v->source && !v->fixed;  // guarded only by value
    if (other && args[0]->kind == VarKind::kString && takes_address(t.text(args[0]))) {
      t.stop(Break::address, {"a cdata"});
    }
  }
  if (!args.empty() && args[0]->kind == VarKind::kString && !takes_texts(t.text(args[0]))) {
    for (Var* v : args) {
      if (v->kind == VarKind::kString) t.text(v);
    }
  }
  return run_text(t, self, args);
}

// Models string.rep with a count that may change. Beyond a maximum it may fail.
Vars run_rep(Trace& t, Var* self, const Vars& args) {
  force_all(t, args);
  const bool fits = args.size() == 2 && args[0]->kind == VarKind::kString && args[1]->kind == VarKind::kNumber;
  if (!fits || args[1]->tensor || !may_change(args[1])) return t.call_pure(self, args, self->builtin->name);
  const size_t length = std::max<size_t>(1, t.text(args[0]).size());
  SymEnv& env = *t.graph->env;
  const Scalar n = t.symbolic(args[1]);
  const double most = double(kMaxBytes / length);
  if (!(n.to_double() <= most)) return t.call_pure(self, args, self->builtin->name);
  env.ask(SymCmp::kLe, number_expr(env, n), env.number(most));
  return run_text(t, self, args);
}

Vars run_tostring(Trace& t, Var* self, const Vars& args) {
  Var* v = args.empty() ? t.nil() : t.force(args[0]);
  if (v->kind == VarKind::kTensor) t.stop(Break::reads_elements, {"tostring"});
  if ((v->kind == VarKind::kNumber && may_change(v)) || is_changing_integer(t, v)) {
    if (Var* text = text_later(t, self, {v})) return {text};
  }
  if (v->kind == VarKind::kTable) {
    Var* f = t.metamethod(v, "__tostring");
    if (f->kind != VarKind::kNil) {
      const Vars r = t.call(f, {v}, true);
      if (r.empty() || t.force(r[0])->kind != VarKind::kString) t.stop(Break::raises, {"tostring"});
      return {r[0]};
    }
  }
  const bool plain = is_value(v) || is_constant_cdata(t, v);
  if (!plain) t.stop(Break::address, {str("a ", v->kind == VarKind::kTable ? "table" : "function or a userdata")});
  if (v->kind != VarKind::kString) return t.call_pure(self, args, "tostring");
  if (t.metamethod(v, "__tostring")->kind != VarKind::kNil) t.stop(Break::metatable, {"strings has __tostring"});
  return {v};
}

}  // namespace lutra
