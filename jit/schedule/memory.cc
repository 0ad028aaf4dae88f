// Linear scan over the launches: a temporary takes a free slot of the same size expression, or, where both are
// constants, the smallest that is large enough.
#include "jit/schedule/memory.h"

#include <algorithm>

#include "jit/schedule/combine.h"
#include "ops/core/sym.h"

namespace lutra {
namespace {

struct Life {
  int first = -1, last = -1;
};

struct Slot {
  ExprId bytes;
  bool free;
};

bool fits(const SymEnv& env, const Slot& s, ExprId bytes) {
  if (s.bytes == bytes) return true;
  const SymExpr &have = env[s.bytes], &want = env[bytes];
  return have.op == SymOp::kConstInt && want.op == SymOp::kConstInt && have.i >= want.i;
}

}  // namespace

void plan_memory(Plan& plan) {
  SymEnv& env = *plan.env;
  std::vector<Life> lives(plan.buffers.size());
  std::vector<size_t> ends;  // by launch: the last one beside it
  for (size_t i = 0, end = 0; i < plan.launches.size(); i++) {
    for (end = std::max(end, i); end + 1 < plan.launches.size() && is_beside(plan.launches[end + 1]);) end++;
    ends.push_back(end);
    for_buffers(plan.launches[i], [&](int32_t b, bool) {
      Life& l = lives[size_t(b)];
      if (l.first < 0) l.first = int(i);
      l.last = int(end);
    });
  }
  std::vector<Slot> slots;
  for (size_t i = 0; i < plan.launches.size(); i++) {
    for_buffers(plan.launches[i], [&](int32_t b, bool) {
      Buffer& buffer = plan.buffers[size_t(b)];
      if (buffer.kind != Buffer::kTemp || buffer.index >= 0) return;
      ExprId bytes = env.make(SymOp::kMul, buffer.elements, env.constant(int64_t(size_of(buffer.dtype))));
      int best = -1;
      for (size_t s = 0; s < slots.size(); s++) {
        if (!slots[s].free || !fits(env, slots[s], bytes)) continue;
        if (best < 0 || env[slots[s].bytes].i < env[slots[size_t(best)].bytes].i) best = int(s);
      }
      if (best < 0) {
        best = int(slots.size());
        slots.push_back({bytes, true});
      }
      slots[size_t(best)].free = false;
      buffer.index = best;
    });
    for (size_t k = 0; k <= i && ends[i] == i; k++) {
      if (ends[k] != i) continue;
      for_buffers(plan.launches[k], [&](int32_t b, bool) {
        const Buffer& buffer = plan.buffers[size_t(b)];
        if (buffer.kind == Buffer::kTemp && lives[size_t(b)].last == int(i)) slots[size_t(buffer.index)].free = true;
      });
    }
  }
  for (const Slot& s : slots) plan.slots.push_back(s.bytes);
}

}  // namespace lutra
