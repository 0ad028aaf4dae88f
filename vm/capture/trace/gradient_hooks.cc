// Hooks of tensors that the trace has made. A hook that is there when the trace ends is registered again after the run,
// for backwards outside (segment/finish.cc).
#include "vm/capture/trace/gradient_hooks.h"

#include "ops/grad/tape.h"
#include "vm/capture/trace/builtins.h"
#include "vm/capture/trace/regions.h"
#include "vm/capture/trace/trace.h"

namespace lutra {
namespace {

// A result of the segment that requires grad; hooks of others are eager code's.
Tensor own_tensor(Trace& t, const char* name, const Vars& args) {
  Var* v = args.empty() ? t.nil() : t.force(args[0]);
  if (v->kind != VarKind::kTensor || !v->tensor->requires_grad) t.stop(Break::raises, {name});
  if (!t.regions.empty()) t.regions.back()->refuse(str(name, " is called"));
  if (t.decisions.hooks_outside || t.input_of_fake.count(v->tensor.get())) t.stop(Break::hook, {name});
  return v->tensor;
}

// A break within is one before the call of backward, which cannot be resumed in its middle.
Tensor run_hook(Trace& t, Var* f, const Tensor& gradient) {
  const size_t depth = t.frames.size();
  try {
    const Vars out = t.call(f, {t.tensor(gradient)}, true);
    const Var* now = out.empty() ? t.nil() : t.force(out[0]);
    if (now->kind != VarKind::kNil && now->kind != VarKind::kTensor) t.stop(Break::raises, {"a hook"});
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

Vars run_remove(Trace& t, Var* self, const Vars&) {
  Trace::Hooked& hooked = t.hooked[size_t(self->num.to_double())];
  hooked.remove();
  hooked.hook.reset();
  t.effect = true;
  return {};
}

const Builtin kRemove{"remove", run_remove};

// The hook's handle: a table with remove(). It cannot be kept: the segment ends before that.
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

}  // namespace

Vars run_retain_grad(Trace& t, Var*, const Vars& args) {
  Var* v = args.empty() ? t.nil() : t.force(args[0]);
  const bool leaf = v->kind == VarKind::kTensor && v->tensor->requires_grad && is_leaf(v->tensor);
  if (leaf) return {};
  const Tensor y = own_tensor(t, "retain_grad", args);
  retain_grad(y);
  t.retained.push_back(y);
  t.effect = true;
  return {};
}

Vars run_register_hook(Trace& t, Var*, const Vars& args) {
  Var* f = args.size() < 2 ? t.nil() : t.force(args[1]);
  const bool function = f->kind == VarKind::kClosure || f->kind == VarKind::kFunction || f->kind == VarKind::kBinding;
  if (!function) t.stop(Break::raises, {"register_hook"});
  const Tensor y = own_tensor(t, "register_hook", args);
  BreakReason why(Break::hook, {"register_hook"}, {t.file(), t.line()}, t.call_chain());
  const auto alive = std::make_shared<char>();
  auto remove = register_hook(y, [&t, f, alive](const Tensor& g) { return t.ended ? Tensor() : run_hook(t, f, g); });
  t.hooked.push_back({alive, y, gradient_edge(y), f, t.frames.back()->step, std::move(why), std::move(remove)});
  t.effect = true;
  return {handle(t)};
}

}  // namespace lutra
