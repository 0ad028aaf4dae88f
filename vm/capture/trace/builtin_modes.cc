// Models of functions that set or read the grad mode and autocast: they change the modes of the trace.
#include "vm/capture/trace/builtin_modes.h"

#include "ops/defs/call.h"
#include "vm/capture/trace/builtin_arguments.h"

namespace lutra {

static Vars run_in_grad_mode(Trace& t, const Vars& args, Via via) {
  if (args.empty()) t.stop(Break::raises, {"a call of nothing"});
  ModeCall mode{via, grad_enabled()};
  t.grad_mode_read = true;
  set_grad_enabled(via == Via::kEnableGrad);
  Vars r = t.call(args[0], Vars(args.begin() + 1, args.end()), false, mode);
  mode.restore();
  return r;
}
Vars run_no_grad(Trace& t, Var*, const Vars& args) { return run_in_grad_mode(t, args, Via::kNoGrad); }
Vars run_enable_grad(Trace& t, Var*, const Vars& args) { return run_in_grad_mode(t, args, Via::kEnableGrad); }

// Models lt._native.autocast_check(options), where an unknown key is an error. The order of the keys does not matter,
// so any fresh table is accepted.
Vars run_autocast_check(Trace& t, Var*, const Vars& args) {
  Table* table = table_arg(t, args, 0, "autocast_check");
  const auto check = [&](Var* key) {
    const bool text = t.force(key)->kind == VarKind::kString;
    const std::string name = text ? t.text(key) : "";
    if (name != "dtype" && name != "enabled" && name != "cache_enabled") t.stop(Break::raises, {"autocast"});
  };
  if (table->pin == 0) {
    for (const Key& id : table->log) {
      TableEntry& e = table->entries.at(id);
      if (t.force(e.value)->kind != VarKind::kNil) check(e.key);
    }
    return {};
  }
  for (auto [k, v] = t.next(table, t.nil()); k->kind != VarKind::kNil; std::tie(k, v) = t.next(table, k)) check(k);
  return {};
}

// Models autocast_region(device_type, dtype, enabled, cache_enabled, f, ...), which lt.autocast calls. nil keeps the
// outer setting.
Vars run_autocast(Trace& t, Var*, const Vars& args) {
  constexpr size_t kFunction = 4;
  if (args.size() <= kFunction) t.stop(Break::raises, {"a call of nothing"});
  if (t.force(args[0])->kind != VarKind::kString) t.stop(Break::raises, {"autocast_region of no device"});
  note_autocast_read();
  ModeCall mode{Via::kAutocast, true, autocast_mode(), autocast_mode()};
  const bool cuda = t.text(args[0]) == "cuda";
  if (cuda) mode.device = DeviceType::kCUDA;
  mode.inner.enabled[cuda] = t.truthy(args[2]);
  if (t.force(args[1])->kind == VarKind::kString) mode.inner.dtype[cuda] = dtype_from_name(t.text(args[1]));
  if (t.force(args[3])->kind != VarKind::kNil) mode.inner.cache = t.truthy(args[3]);
  set_autocast_mode(mode.inner);
  Vars r = t.call(args[kFunction], Vars(args.begin() + kFunction + 1, args.end()), false, mode);
  mode.restore();
  return r;
}

Vars run_set_grad_enabled(Trace& t, Var*, const Vars& args) {
  t.grad_mode_read = true;
  set_grad_enabled(t.truthy(arg(t, args, 0)));
  t.effect = true;
  return {};
}

Vars run_is_grad_enabled(Trace& t, Var*, const Vars&) {
  t.grad_mode_read = true;
  return {t.boolean(grad_enabled())};
}

}  // namespace lutra
