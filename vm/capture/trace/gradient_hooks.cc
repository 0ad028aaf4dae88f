// Hooks of tensors that the trace has made, and of inputs. A hook that the trace registers and that still exists at its
// end is registered again after the run, for backwards outside (segment/finish.cc).
#include "vm/capture/trace/gradient_hooks.h"

#include <lua.hpp>
#include <utility>

#include "ops/grad/tape.h"
#include "vm/bind/hooks.h"
#include "vm/capture/trace/border.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/regions.h"
#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

// Returns whether the real tensor of an input can get hooks after the run: its history must be unchanged. Writes to a
// view, or to its base, would change it.
bool takes_hooks(const Trace::TensorInput& in) {
  const bool value = in.source && in.source->kind != SourceKind::kGrad && !in.memory;
  return value && in.real->requires_grad && !in.real->base && in.fake->requires_grad && !has_new_history(in);
}

// Returns the argument, a tensor that requires grad: a result of the segment, or an input. An input's own hooks are
// loaded first.
Tensor own_tensor(Trace& t, const char* name, const Vars& args) {
  Var* v = args.empty() ? t.nil() : t.force(args[0]);
  if (v->kind != VarKind::kTensor || !v->tensor->requires_grad) t.stop(Break::raises, {name});
  if (!t.regions.empty()) t.regions.back()->refuse(str(name, " is called"));
  if (t.decisions.hooks_outside) t.stop(Break::hook, {name});
  const auto input = t.input_of_fake.find(v->tensor.get());
  if (input == t.input_of_fake.end()) return v->tensor;
  const auto i = size_t(input->second);
  if (!takes_hooks(t.inputs[i])) t.stop(Break::hook, {name});
  if (is_leaf(t.inputs[i].real)) load_hooks(t, i);
  return v->tensor;
}

// Runs a hook. given: a gradient, or the leaf. A break inside becomes a break before the call of backward, which cannot
// be resumed in its middle.
Tensor run_hook(Trace& t, Var* f, const Tensor& given, bool post_accumulate = false) {
  const size_t depth = t.frames.size();
  try {
    const Vars out = t.call(f, {t.tensor(given)}, true);
    const Var* now = out.empty() ? t.nil() : t.force(out[0]);
    const bool replaces = now->kind == VarKind::kTensor && !post_accumulate;
    if (now->kind != VarKind::kNil && !replaces) t.stop(Break::raises, {"a hook"});
    return now->tensor;
  } catch (const GraphBreak& b) {
    t.frames.resize(depth);
    t.leave_out(f);
    throw GraphBreak{b.why, true};
  } catch (const LoopStop&) {
    t.frames.resize(depth);
    t.leave_out(f);
    t.stop(Break::hooks, {.dirty = true});
  }
}

Vars run_remove_hook(Trace& t, Var* self, const Vars&) {
  Trace::Hooked& hooked = t.hooked[size_t(self->num.to_double())];
  hooked.remove();
  hooked.hook.reset();
  t.effect = true;
  return {};
}

const Builtin kRemove{"remove", run_remove_hook};

// Makes the hook's handle, a table with remove(). If the handle outlives the segment, the segment ends before the hook
// is registered.
Var* handle(Trace& t) {
  t.vars.emplace_back();
  Var* remove = &t.vars.back();
  remove->kind = VarKind::kClosure;
  remove->builtin = &kRemove;
  remove->num = Scalar(double(t.hooked.size() - 1));
  t.closures.emplace_back();
  remove->closure = &t.closures.back();
  remove->closure->outer_step = t.frames[0]->step;
  Var* table = t.fresh_table(0, 1);
  t.raw_set(table->table, t.string("remove"), remove);
  return table;
}

// Stops the trace: the hooks of an input with a history may run between hooks from before the segment, in an order that
// the trace does not know.
Tensor stop_at_hook(Trace& t) {
  if (!t.ended) t.stop(Break::hooks, {.dirty = true});
  return {};
}

// Registers a hook. f is null if an input retains its gradient.
void hook(Trace& t, const char* name, const Tensor& y, Var* f) {
  BreakReason why(Break::hook, {name}, {t.file(), t.line()}, t.call_chain());
  const auto alive = std::make_shared<char>();
  const bool before = t.input_of_fake.count(y.get()) && !is_leaf(y);
  auto run = [&t, f, alive, before](const Tensor& g) {
    if (t.ended) return Tensor();
    return before ? stop_at_hook(t) : run_hook(t, f, g);
  };
  auto remove = register_hook(y, std::move(run));
  t.hooked.push_back({alive, y, gradient_edge(y), f, t.frames.back()->step, std::move(why), std::move(remove)});
}

// Makes v retain its gradient. A leaf does so anyway.
void keep_gradient(Trace& t, const char* name, Var* v) {
  if (v->kind == VarKind::kTensor && v->tensor->requires_grad && is_leaf(v->tensor)) return;
  const Tensor y = own_tensor(t, name, {v});
  if (t.input_of_fake.count(y.get())) return hook(t, name, y, nullptr);
  retain_grad(y);
  t.retained.push_back(y);
}

}  // namespace

void load_hooks(Trace& t, size_t input) {
  const Tensor fake = t.inputs[input].fake, real = t.inputs[input].real;
  const Source* source = t.inputs[input].source;
  if (!source || !fake->requires_grad || std::exchange(t.inputs[input].hooks_loaded, true)) return;
  t.inputs[input].unhooked = !has_hooks(real);
  if (t.inputs[input].unhooked) return;
  if (!is_leaf(real) || !takes_hooks(t.inputs[input])) {
    t.loaded_hooks.push_back(register_hook(fake, [&t](const Tensor&) { return stop_at_hook(t); }));
    return;
  }
  for (const bool post_accumulate : {false, true}) {
    for (int k = 0;; k++) {
      luaL_checkstack(t.L, 4, "hooks");
      const int at = post_accumulate ? ~k : k;
      push_hook(t.L, real, at);
      const char* kind = post_accumulate ? "post accumulate hook " : "hook ";
      Var* f =
          t.force(t.wrap(t.source(SourceKind::kHook, source, nullptr, at, str(kind, k + 1, " of ", source->text))));
      if (f->kind == VarKind::kNil) break;
      if (f->kind != VarKind::kFunction) t.stop(Break::hooks);
      const auto run = [&t, f, post_accumulate](const Tensor& given) {
        return t.ended ? Tensor() : run_hook(t, f, given, post_accumulate);
      };
      t.loaded_hooks.push_back(post_accumulate ? register_post_accumulate_grad_hook(fake, run)
                                               : register_hook(fake, run));
    }
  }
}

// Models retain_grad. For an input a hook stands for the retained gradient; no backward of the trace runs it.
Vars run_retain_grad(Trace& t, Var*, const Vars& args) {
  if (args.size() != 1) t.stop(Break::raises, {"retain_grad"});
  keep_gradient(t, "retain_grad", t.force(args[0]));
  t.effect = true;
  return {};
}

void keep_gradients_of_inputs(Trace& t, const Vars& args) {
  if (args.empty()) return;
  Table* keywords = t.table_of(t.force(args.back()));  // or a list, which has no string keys
  Var* given = keywords ? t.force(t.raw_get(keywords, t.string("inputs"))) : t.nil();
  if (given->kind == VarKind::kNil && args.size() > 4) given = t.force(args[4]);
  if (given->kind == VarKind::kTensor) return keep_gradient(t, "backward", given);
  Table* list = t.table_of(given);
  for (int64_t i = 1, n = list ? t.length(list) : 0; i <= n; i++) {
    Var* v = t.force(t.raw_get(list, t.number(double(i))));
    if (v->kind == VarKind::kTensor && v->tensor->requires_grad) keep_gradient(t, "backward", v);
  }
}

Vars run_register_hook(Trace& t, Var*, const Vars& args) {
  Var* f = args.size() < 2 ? t.nil() : t.force(args[1]);
  const bool function = f->kind == VarKind::kClosure || f->kind == VarKind::kFunction || f->kind == VarKind::kBinding;
  if (!function) t.stop(Break::raises, {"register_hook"});
  const Tensor y = own_tensor(t, "register_hook", args);
  hook(t, "register_hook", y, f);
  t.effect = true;
  return {handle(t)};
}

}  // namespace lutra
