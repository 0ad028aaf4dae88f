// Goes through the launches. A temporary takes over the slot of an operand that its kernel reads for the last time, or
// gets a slot of its own. A scatter's result takes the slot of the input that it reads last.
#include "jit/schedule/memory.h"

#include <algorithm>

#include "jit/device/backend.h"
#include "jit/schedule/combine.h"
#include "ops/core/interrupt.h"
#include "ops/core/sym.h"

namespace lutra {
namespace {

struct Life {
  int first = -1, last = -1;
};

bool same_place(const loop::Access& a, const loop::Access& b) {
  if (!(a.offset == b.offset) || a.terms.size() != b.terms.size()) return false;
  for (size_t t = 0; t < a.terms.size(); t++) {
    const auto &x = a.terms[t], &y = b.terms[t];
    if (x.is_value || y.is_value || x.id != y.id || !(x.stride == y.stride)) return false;
  }
  return true;
}

// Checks the accesses of two pointer arguments. They must all be in one body: loads of `from`, then a store to `to` at
// the place that the loads read.
class Overwrite {
 public:
  Overwrite(int32_t from, int32_t to) : from_(from), to_(to) {}

  bool holds(const loop::Kernel& k) {
    walk(k.body);
    return good_ && loads_ > 0 && store_;
  }

 private:
  void walk(const std::vector<loop::Stmt>& body) {
    for (const loop::Stmt& s : body) {
      if (const auto* l = std::get_if<std::unique_ptr<loop::Loop>>(&s)) {
        loops_.push_back((*l)->id);
        walk((*l)->body);
        loops_.pop_back();
        continue;
      }
      const auto& in = std::get<loop::Inst>(s);
      if (!loop::has_access(in.op) || (in.access.ptr != from_ && in.access.ptr != to_)) continue;
      if (!first_) first_ = &in.access, body_ = &body, good_ = moves_with_all(in.access);
      good_ = good_ && body_ == &body && same_place(*first_, in.access);
      if (in.access.ptr == from_) {
        good_ = good_ && in.op == loop::Op::kLoad && !store_;
        loads_++;
      } else {
        good_ = good_ && in.op == loop::Op::kStore && !store_;
        store_ = true;
      }
    }
  }

  // Returns true if each iteration accesses another place.
  bool moves_with_all(const loop::Access& a) const {
    return std::all_of(loops_.begin(), loops_.end(), [&](int32_t id) {
      return std::any_of(a.terms.begin(), a.terms.end(),
                         [&](const auto& t) { return !t.is_value && t.id == id && !(t.stride == loop::Coef::of(0)); });
    });
  }

  int32_t from_, to_;
  std::vector<int32_t> loops_;
  const loop::Access* first_ = nullptr;
  const std::vector<loop::Stmt>* body_ = nullptr;
  bool good_ = true, store_ = false;
  int loads_ = 0;
};

class MemoryPlanner {
 public:
  MemoryPlanner(Plan& plan, SymEnv& env)
      : plan_(plan),
        env_(env),
        fed_scatters_(backend_of(plan.device).preferences.fed_scatters),
        lives_(plan.buffers.size()) {}

  void run() {
    find_lives();
    for (size_t i = 0; i < plan_.launches.size(); i++) {
      check_stop();
      for_buffers(plan_.launches[i], [&](int32_t b, bool) {
        if (buffer(b).kind == Buffer::kTemp && buffer(b).index < 0) place(i, b);
      });
    }
    for (Launch& l : plan_.launches) {
      if (auto* k = std::get_if<KernelLaunch>(&l)) find_shared(*k);
    }
  }

 private:
  Buffer& buffer(int32_t b) { return plan_.buffers[size_t(b)]; }

  bool same_memory(int32_t a, int32_t b) {
    const Buffer &x = buffer(a), &y = buffer(b);
    if (x.kind == Buffer::kTemp || y.kind == Buffer::kTemp) return x.kind == y.kind && x.index == y.index;
    return a == b || (x.storage >= 0 && x.storage == y.storage);
  }

  void find_shared(KernelLaunch& k) {
    std::vector<loop::Param>& params = k.kernel.params;
    for (size_t r = 0; r < params.size(); r++) {
      for (size_t w = 0; !params[r].written && w < params.size(); w++) {
        params[r].shared |= params[w].written && same_memory(k.buffers[r], k.buffers[w]);
      }
    }
  }

  void find_lives() {
    for (size_t i = 0, end = 0; i < plan_.launches.size(); i++) {
      for (end = std::max(end, i); end + 1 < plan_.launches.size() && is_beside(plan_.launches[end + 1]);) end++;
      ends_.push_back(end);
      for_buffers(plan_.launches[i], [&](int32_t b, bool) {
        Life& l = lives_[size_t(b)];
        if (l.first < 0) l.first = int(i);
        l.last = int(end);
      });
      // A kernel that feeds a scatter reads while the scatter writes.
      if (i == 0 || !is_fed_scatter(plan_.launches[i])) continue;
      if (!std::holds_alternative<KernelLaunch>(plan_.launches[i - 1])) continue;
      for_buffers(plan_.launches[i - 1], [&](int32_t b, bool) { lives_[size_t(b)].last = int(end); });
    }
  }

  // Returns true if a kernel before this launch may feed it.
  bool is_fed_scatter(const Launch& l) const {
    const auto* e = std::get_if<ExternLaunch>(&l);
    return fed_scatters_ && e && info(e->op).has(kScatters);
  }

  void place(size_t launch, int32_t b) {
    ExprId bytes = env_.make(SymOp::kMul, buffer(b).elements, env_.constant(int64_t(size_of(buffer(b).dtype))));
    const Life& life = lives_[size_t(b)];
    int32_t slot = taken_over(launch, b, bytes);
    if (slot < 0) slot = scattered_into(launch, b, bytes);
    if (slot < 0) {
      slot = int32_t(plan_.slots.size());
      plan_.slots.push_back({bytes, life.first, life.last});
    }
    plan_.slots[size_t(slot)].last = life.last;
    buffer(b).index = slot;
  }

  // Returns the slot of an operand that is not needed after this launch and whose elements are each read just before
  // b's are written; -1 if there is none.
  int32_t taken_over(size_t launch, int32_t b, ExprId bytes) {
    const auto* k = std::get_if<KernelLaunch>(&plan_.launches[launch]);
    if (!k || k->beside || ends_[launch] != launch || !k->faults.empty()) return -1;
    int32_t to = -1;
    for (size_t p = 0; p < k->buffers.size(); p++) {
      if (k->buffers[p] == b) to = int32_t(p);
    }
    for (size_t p = 0; p < k->buffers.size(); p++) {
      const int32_t d = k->buffers[p];
      if (d == b || buffer(d).kind != Buffer::kTemp || buffer(d).index < 0) continue;
      Life& life = lives_[size_t(d)];
      const bool dies = life.last == int(launch) && life.first < int(launch);
      if (!dies || plan_.slots[size_t(buffer(d).index)].bytes != bytes) continue;
      if (size_of(k->kernel.params[p].type) != size_of(k->kernel.params[size_t(to)].type)) continue;
      if (!Overwrite(int32_t(p), to).holds(k->kernel)) continue;
      life.last = -1;  // the slot is b's now
      return buffer(d).index;
    }
    return -1;
  }

  // Returns the slot of a scatter's input that is not needed after it: the result takes its place without a copy. -1 if
  // that cannot be.
  int32_t scattered_into(size_t launch, int32_t b, ExprId bytes) {
    if (!is_fed_scatter(plan_.launches[launch]) || ends_[launch] != launch) return -1;
    const auto& e = std::get<ExternLaunch>(plan_.launches[launch]);
    const BufferView &in = e.in[0], &out = e.out[0];
    const auto reads = [&](const BufferView& v) { return v.buffer == in.buffer; };
    if (out.buffer != b || in.buffer < 0 || std::count_if(e.in.begin(), e.in.end(), reads) != 1) return -1;
    const bool same_layout =
        in.dtype == out.dtype && in.offset == out.offset && in.sizes == out.sizes && in.strides == out.strides;
    Life& life = lives_[size_t(in.buffer)];
    const bool dies = life.last == int(launch) && life.first < int(launch);
    if (buffer(in.buffer).kind != Buffer::kTemp || buffer(in.buffer).index < 0 || !same_layout || !dies) return -1;
    if (plan_.slots[size_t(buffer(in.buffer).index)].bytes != bytes) return -1;
    life.last = -1;  // the slot is b's now
    return buffer(in.buffer).index;
  }

  Plan& plan_;
  SymEnv& env_;
  const bool fed_scatters_;
  std::vector<Life> lives_;
  std::vector<size_t> ends_;  // by launch: the last one of its parallel group
};

}  // namespace

void plan_memory(Plan& plan, SymEnv& env) { MemoryPlanner(plan, env).run(); }

}  // namespace lutra
