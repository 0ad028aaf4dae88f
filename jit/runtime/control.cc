// A launch that runs functions: branches and loops. What is carried from one run of a body to the next alternates
// between two pieces of memory; the caller's own is only read.
#include <algorithm>
#include <optional>
#include <stdexcept>

#include "jit/runtime/executable.h"
#include "ops/core/interrupt.h"
#include "ops/core/storage.h"
#include "ops/defs/control.h"
#include "ops/defs/element.h"

namespace lutra {
namespace {

// A tensor in memory that somebody else owns.
struct Operand {
  char* data = nullptr;
  DType dtype = DType::kFloat32;
  Sizes sizes, strides;
};
using Operands = std::vector<Operand>;

int64_t span_of(const Operand& t) {
  int64_t last = 0;
  for (size_t d = 0; d < t.sizes.size(); d++) {
    if (t.sizes[d].hint == 0) return 0;
    last += (t.sizes[d].hint - 1) * t.strides[d].hint;
  }
  return last + 1;
}

size_t bytes_of(const Operand& t) { return size_t(span_of(t)) * size_of(t.dtype); }

// Memory of its own for tensors of these types.
struct Memory {
  Operands tensors;
  std::vector<Ref<Storage>> storages;
  Memory(const Operands& like, Device device) : tensors(like) {
    for (Operand& t : tensors) {
      storages.push_back(allocate(bytes_of(t), device));
      t.data = static_cast<char*>(storages.back()->data);
    }
  }
};

class ControlRun {
 public:
  ControlRun(const ExternLaunch& launch, const std::vector<std::shared_ptr<Executable>>& functions, Device device,
             Decider* decider, bool gives)
      : launch_(launch), functions_(functions), device_(device), decider_(decider), gives_(gives) {}

  void run(const ExternCall& call) {
    Operands in, out;
    for (const ExternView& v : call.in) in.push_back(operand(v));
    for (const ExternView& v : call.out) out.push_back(operand(v));
    switch (control_of(launch_.op)) {
      case Control::kCond: return cond(call, in, out);
      case Control::kWhileLoop: return while_loop(call, in, out);
      case Control::kWhileLoopBack: return while_loop_back(call, in, out);
      case Control::kScan: return scan(call, in, out);
      case Control::kNone: break;
    }
    fail_internal("no control flow: ", name(launch_.op));
  }

 private:
  static Operand operand(const ExternView& v) {
    Operand t{static_cast<char*>(v.data), v.dtype, {}, {}};
    for (int32_t d = 0; d < v.dim; d++) t.sizes.push_back(v.sizes[d]), t.strides.push_back(v.strides[d]);
    return t;
  }
  static Operands part(const Operands& all, size_t from, size_t n) {
    return {all.begin() + long(from), all.begin() + long(from + n)};
  }
  Executable& function(size_t k) const { return *functions_[size_t(launch_.functions[k])]; }

  void call(Executable& f, std::initializer_list<const Operands*> arguments, const Operands& results) const {
    std::vector<InputView> views;
    std::vector<void*> outputs;
    for (const Operands* list : arguments) {
      for (const Operand& t : *list) views.push_back({t.data, t.sizes.begin(), t.strides.begin(), bytes_of(t)});
    }
    for (const Operand& t : results) outputs.push_back(t.data);
    check_stop();
    f.run_views(views.data(), nullptr, outputs.data());
  }

  double element_of(const Operand& t) const {
    alignas(16) char element[16];
    copy_bytes(element, Device(), t.data, device_, size_of(t.dtype));
    return load_element(element, t.dtype).to_double();
  }
  bool holds(const Operand& t) const { return element_of(t) != 0; }

  void copy(const Operands& from, const Operands& to) const {
    for (size_t i = 0; i < from.size(); i++) {
      const size_t bytes = bytes_of(from[i]);
      decider_ ? decider_->copy(to[i].data, from[i].data, bytes)
               : copy_bytes(to[i].data, device_, from[i].data, device_, bytes);
    }
  }

  // ints: how many of in are f's, how many g's.
  void cond(const ExternCall& c, const Operands& in, const Operands& out) const {
    const size_t n = size_t(c.ints[0]);
    const Operands f = part(in, 1, n), g = part(in, 1 + n, size_t(c.ints[1]));
    if (decider_) {
      decider_->when(in[0].data, in[0].dtype, true, [&] { call(function(0), {&f}, out); });
      return decider_->when(in[0].data, in[0].dtype, false, [&] { call(function(1), {&g}, out); });
    }
    holds(in[0]) ? call(function(0), {&f}, out) : call(function(1), {&g}, out);
  }

  // ints: how many are carried, how many only test reads, how many only body; of how many steps what body keeps is
  // stacked, behind what is carried.
  void while_loop(const ExternCall& c, const Operands& in, const Operands& out) const {
    const size_t carried = size_t(c.ints[0]), tests = size_t(c.ints[1]);
    const Operands test_reads = part(in, carried, tests);
    const Operands body_reads = part(in, carried + tests, size_t(c.ints[2]));
    const Memory flag({{nullptr, function(0).plan().outputs[0].view.dtype, {}, {}}}, device_);
    const Operands last = part(out, 0, carried), stacks = part(out, carried, out.size() - carried);
    const Memory other(last, device_);
    Operands now = part(in, 0, carried);
    if (decider_) {
      if (!stacks.empty()) throw std::runtime_error("what steps of a loop keep has a place for each step");
      return loop_there(now, test_reads, body_reads, flag.tensors, other.tensors, last);
    }
    const int64_t kept = c.ints[3];
    for (const Operand& t : stacks) LUTRA_CHECK(t.sizes[0].hint == kept, "a loop that stacks another number");
    std::optional<Memory> beyond;  // of what steps keep that have no place
    int64_t steps = 0;
    for (;; steps++) {
      call(function(0), {&now, &test_reads}, flag.tensors);
      if (!holds(flag.tensors[0])) break;
      if (steps == kept && !stacks.empty()) beyond.emplace(slices(stacks, 0), device_);
      const Operands& next = steps % 2 ? other.tensors : last;
      call(function(1), {&now, &body_reads}, joined(next, beyond ? beyond->tensors : slices(stacks, steps)));
      now = next;
    }
    if (steps % 2 == 0) copy(now, last);
    if (gives_) clear(stacks, steps);
  }

  // Zeros for steps that were not made.
  void clear(const Operands& stacks, int64_t steps) const {
    for (Operand t : stacks) {
      if (steps >= t.sizes[0].hint) continue;
      move(t, 0, steps), t.sizes[0] = t.sizes[0] - steps;
      const std::vector<char> zeros(bytes_of(t));
      copy_bytes(t.data, device_, zeros.data(), Device(), zeros.size());
    }
  }
  static Operands joined(Operands a, const Operands& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  // The same memory in each step: out has what is carried.
  void loop_there(const Operands& init, const Operands& test_reads, const Operands& body_reads, const Operands& flag,
                  const Operands& next, const Operands& out) const {
    copy(init, out);
    call(function(0), {&out, &test_reads}, flag);
    decider_->repeat(flag[0].data, flag[0].dtype, [&] {
      call(function(1), {&out, &body_reads}, next);
      copy(next, out);
      call(function(0), {&out, &test_reads}, flag);
    });
  }

  // What a body keeps of n steps: its results from `from` on, which are contiguous, stacked.
  static Operands stacked(const Plan& body, size_t from, int64_t n) {
    Operands stacks;
    for (size_t k = from; k < body.outputs.size(); k++) {
      const BufferView& v = body.outputs[k].view;
      Operand t{nullptr, info(v.dtype).carrier, {}, {}};
      for (const bool strides : {false, true}) {
        for (ExprId e : strides ? v.strides : v.sizes) {
          LUTRA_CHECK(body.exprs[size_t(e)].op == SymOp::kConstInt, "a function without fixed sizes");
          (strides ? t.strides : t.sizes).push_back(SymInt(body.exprs[size_t(e)].i));
        }
      }
      const int64_t each = span_of(t);
      t.sizes.insert(0, SymInt(n)), t.strides.insert(0, SymInt(each));
      stacks.push_back(t);
    }
    return stacks;
  }
  static Operands slices(const Operands& stacks, int64_t i) {
    Operands out = stacks;
    for (Operand& t : out) move(t, 0, i), t.sizes.erase(0), t.strides.erase(0);
    return out;
  }
  // The steps of a loop once more; what the body keeps.
  Memory again(const Operands& init, const Operands& reads, int64_t n) const {
    const Memory saved(stacked(function(0).plan(), init.size(), n), device_);
    const Memory even(init, device_), odd(init, device_);
    Operands now = init;
    for (int64_t i = 0; i < n; i++) {
      const Operands& next = i % 2 ? odd.tensors : even.tensors;
      Operands results = next;
      for (const Operand& t : slices(saved.tensors, i)) results.push_back(t);
      call(function(0), {&now, &reads}, results);
      now = next;
    }
    return saved;
  }

  // ints: how many are carried, are read by body, are sums, are read by back, are stacks of the loop's.
  void while_loop_back(const ExternCall& c, const Operands& in, const Operands& out) const {
    const size_t carried = size_t(c.ints[0]), reads = size_t(c.ints[1]), sums = size_t(c.ints[2]);
    const auto n = int64_t(element_of(in[0]));
    const Operands init = part(in, 1, carried), body_reads = part(in, 1 + carried, reads);
    const Operands first = part(in, 1 + carried + reads, sums);
    const Operands back_reads = part(in, 1 + carried + reads + sums, size_t(c.ints[3]));
    if (n == 0) return copy(first, out);
    Operands saved = part(in, in.size() - size_t(c.ints[4]), size_t(c.ints[4]));
    std::optional<Memory> made;
    if (saved.empty() || n > saved[0].sizes[0].hint) saved = made.emplace(again(init, body_reads, n)).tensors;
    const Memory even(out, device_), odd(out, device_);
    Operands now = first;
    for (int64_t i = n; i-- > 0;) {
      const Operands kept = slices(saved, i);
      const Operands& next = i == 0 ? out : i % 2 ? odd.tensors : even.tensors;
      call(function(1), {&now, &kept, &back_reads}, next);
      now = next;
    }
  }
  // ints: how many are carried, how many are sliced, along which dims, whether in reverse, how many are only read.
  void scan(const ExternCall& c, const Operands& in, const Operands& out) const {
    const size_t carried = size_t(c.ints[0]), slices = size_t(c.ints[1]);
    const auto dim = [&](size_t k) { return size_t(c.ints[2 + k]); };
    const bool reverse = c.ints[2 + slices];
    const Operands xs = part(in, carried, slices), reads = part(in, carried + slices, size_t(c.ints[3 + slices]));
    const Operands last = part(out, 0, carried);
    const Memory even(last, device_), odd(last, device_);
    Operands now = part(in, 0, carried);
    const int64_t n = xs[0].sizes[dim(0)].hint;
    for (size_t k = 0; k < slices; k++)
      LUTRA_CHECK(xs[k].sizes[dim(k)].hint == n, "a scan of slices of different number");
    for (size_t k = carried; k < out.size(); k++)
      LUTRA_CHECK(out[k].sizes[0].hint == n, "a scan that stacks another number");
    for (int64_t step = 0; step < n; step++) {
      const int64_t i = reverse ? n - 1 - step : step;
      Operands x = xs;
      for (size_t k = 0; k < slices; k++) {
        move(x[k], dim(k), i);
        x[k].sizes.erase(dim(k)), x[k].strides.erase(dim(k));
      }
      const Operands& carry = step == n - 1 ? last : step % 2 ? odd.tensors : even.tensors;
      Operands results = carry;
      for (size_t k = carried; k < out.size(); k++) {
        results.push_back(out[k]);
        move(results.back(), 0, i);
      }
      call(function(0), {&now, &x, &reads}, results);
      now = carry;
    }
  }
  static void move(Operand& t, size_t dim, int64_t by) {
    t.data += by * t.strides[dim].hint * int64_t(size_of(t.dtype));
  }

  const ExternLaunch& launch_;
  const std::vector<std::shared_ptr<Executable>>& functions_;
  const Device device_;
  Decider* const decider_;  // null: the host decides
  const bool gives_;        // whether its results may be seen outside of the run
};

}  // namespace

void Runner::launch_control(RunContext& c, const ExternLaunch& launch) const {
  CallOperands operands;
  const ExternCall call = make_call(c, launch, operands);
  const bool gives = std::any_of(launch.out.begin(), launch.out.end(), [&](const BufferView& v) {
    return plan_.buffers[size_t(v.buffer)].kind == Buffer::kOutput;
  });
  ControlRun(launch, flat_.functions, plan_.device, decider(c), gives).run(call);
}

}  // namespace lutra
