// Bugs of lowering, fusion and memory planning: make some loops or slots of a plan wrong.
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "jit/inject/bugs.h"
#include "jit/schedule/plan.h"

namespace lutra {
namespace {

using loop::Inst;
using loop::Loop;
using loop::Stmt;

struct Visit {
  Plan& plan;
  KernelLaunch& launch;
  std::vector<Loop*> around{};                                             // loops around the instruction
  std::function<bool(Visit&, std::vector<Stmt>&, size_t)> inst = nullptr;  // returns true if it has spoiled something
  std::function<bool(Visit&, Loop&)> loop = nullptr;

  bool walk(std::vector<Stmt>& body) {
    for (size_t i = 0; i < body.size(); i++) {
      if (auto* l = std::get_if<std::unique_ptr<Loop>>(&body[i])) {
        if (loop && loop(*this, **l)) return true;
        around.push_back(l->get());
        const bool done = walk((*l)->body);
        around.pop_back();
        if (done) return true;
      } else if (inst && inst(*this, body, i)) {
        return true;
      }
    }
    return false;
  }
};

// Visits kernels until the visit spoils one; kernels of functions come last. The visit gets the kernel's own plan,
// whose expressions it reads.
bool spoil_kernel(Plan& plan, const std::function<bool(Visit&, std::vector<Stmt>&, size_t)>& inst,
                  const std::function<bool(Visit&, Loop&)>& loop = nullptr) {
  for (Launch& launch : plan.launches) {
    auto* k = std::get_if<KernelLaunch>(&launch);
    if (!k) continue;
    Visit visit{plan, *k, {}, inst, loop};
    if (visit.walk(k->kernel.body)) return true;
  }
  return std::any_of(plan.functions.begin(), plan.functions.end(),
                     [&](Plan& function) { return spoil_kernel(function, inst, loop); });
}

// Returns the value of a coefficient when the graph was captured.
int64_t hint(const Visit& v, const loop::Coef& c) {
  return c.arg < 0 ? c.literal : v.plan.exprs[size_t(v.launch.ints[size_t(c.arg)])].i;
}

bool is_zero(const std::map<int32_t, const Inst*>& defined, int32_t id) {
  const auto it = defined.find(id);
  return it != defined.end() && it->second->op == loop::Op::kConst && it->second->imm == 0 && it->second->iimm == 0;
}

void find_definitions(const std::vector<Stmt>& body, std::map<int32_t, const Inst*>& out) {
  for (const Stmt& s : body) {
    if (const auto* l = std::get_if<std::unique_ptr<Loop>>(&s)) {
      find_definitions((*l)->body, out);
    } else if (std::get<Inst>(s).id >= 0) {
      out[std::get<Inst>(s).id] = &std::get<Inst>(s);
    }
  }
}

// Returns true for a load whose address depends on loop variables only.
bool is_plain_load(const Inst& i) {
  if (i.op != loop::Op::kLoad) return false;
  for (const loop::Access::Term& t : i.access.terms) {
    if (t.is_value) return false;
  }
  return true;
}

}  // namespace

bool wrong_relu(Graph*, Plan* plan) {
  return spoil_kernel(*plan, [](Visit& v, std::vector<Stmt>& body, size_t at) {
    Inst& i = std::get<Inst>(body[at]);
    if (i.op != loop::Op::kMax) return false;
    std::map<int32_t, const Inst*> defined;
    find_definitions(v.launch.kernel.body, defined);
    if (!is_zero(defined, i.b)) return false;
    i.op = loop::Op::kAbs, i.b = -1;
    return true;
  });
}

bool drop_store(Graph*, Plan* plan) {
  return spoil_kernel(*plan, [](Visit& v, std::vector<Stmt>& body, size_t at) {
    std::set<int32_t> stored;
    for (const Stmt& s : body) {
      const Inst* i = std::get_if<Inst>(&s);
      if (i && i->op == loop::Op::kStore) stored.insert(i->access.ptr);
    }
    if (stored.size() < 2 || std::get<Inst>(body[at]).op != loop::Op::kStore || v.around.empty()) return false;
    body.erase(body.begin() + long(at));
    return true;
  });
}

bool skip_last(Graph*, Plan* plan) {
  return spoil_kernel(*plan, nullptr, [](Visit& v, Loop& l) {
    if (l.accs.empty() || l.parallel || hint(v, l.size) < 2) return false;
    if (l.size.arg < 0) return --l.size.literal, true;
    const int64_t n = hint(v, l.size) - 1;
    auto& exprs = v.plan.exprs;
    exprs.push_back({SymOp::kConstInt, 0, 0, -1, 0});
    exprs.push_back({SymOp::kAdd, v.launch.ints[size_t(l.size.arg)], ExprId(exprs.size()) - 1, n, 0});
    v.launch.ints.push_back(ExprId(exprs.size()) - 1);
    l.size.arg = v.launch.kernel.ints++;
    return true;
  });
}

bool wrong_stride(Graph*, Plan* plan) {
  return spoil_kernel(*plan, [](Visit& v, std::vector<Stmt>& body, size_t at) {
    Inst& i = std::get<Inst>(body[at]);
    if (!is_plain_load(i)) return false;
    loop::Access::Term *large = nullptr, *small = nullptr;
    for (loop::Access::Term& t : i.access.terms) {
      const int64_t stride = hint(v, t.stride);
      if (stride <= 0) return false;
      if (!large || stride > hint(v, large->stride)) large = &t;
      if (!small || stride < hint(v, small->stride)) small = &t;
    }
    if (!large || hint(v, large->stride) == hint(v, small->stride)) return false;
    large->stride = small->stride;
    return true;
  });
}

bool wrong_broadcast(Graph*, Plan* plan) {
  return spoil_kernel(*plan, [](Visit& v, std::vector<Stmt>& body, size_t at) {
    Inst& i = std::get<Inst>(body[at]);
    if (!is_plain_load(i) || i.access.terms.empty() || i.access.terms.size() >= v.around.size()) return false;
    i.access.terms.pop_back();
    return true;
  });
}

bool reuse_live_memory(Graph*, Plan* plan) {
  bool any = false;
  for (ArenaSlot& slot : plan->slots) {
    any = any || slot.last > slot.first;
    slot.last = slot.first;
  }
  for (Plan& function : plan->functions) any = reuse_live_memory(nullptr, &function) || any;
  return any;
}

}  // namespace lutra
