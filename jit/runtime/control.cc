// Runs launches that run functions: branches and loops. Values that a body carries to the next step alternate between
// two pieces of memory; the caller's own memory is only read.
#include <algorithm>
#include <deque>
#include <optional>
#include <stdexcept>

#include "jit/runtime/executable.h"
#include "ops/core/interrupt.h"
#include "ops/core/storage.h"
#include "ops/defs/control.h"
#include "ops/defs/element.h"

namespace lutra {
namespace {

// A tensor in memory that somebody else owns. Its sizes and strides are the run's.
struct Operand {
  char* data = nullptr;
  DType dtype = DType::kFloat32;
  const Sizes *sizes = nullptr, *strides = nullptr;
  size_t bytes = 0;  // from data on
};
using Operands = std::vector<Operand>;

int64_t span_of(const Sizes& sizes, const Sizes& strides) {
  int64_t last = 0;
  for (size_t d = 0; d < sizes.size(); d++) {
    if (sizes[d].hint == 0) return 0;
    last += (sizes[d].hint - 1) * strides[d].hint;
  }
  return last + 1;
}

// The slices of a tensor along a dimension.
struct Sliced {
  Operand first;
  int64_t by = 0;  // bytes from one to the next
  int64_t count = 0;
  Operand at(int64_t i) const {
    Operand t = first;
    t.data += i * by;
    return t;
  }
};
using Stacks = std::vector<Sliced>;

// Owns memory for tensors of these types.
struct Memory {
  Operands tensors;
  std::vector<Ref<Storage>> storages;
  Memory(const Operands& like, Device device) : tensors(like) {
    for (Operand& t : tensors) {
      storages.push_back(allocate(t.bytes, device));
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
    for (const int64_t n : call.ints.last(size_t(launch_.symbols))) symbols_.push_back(SymInt(n));
    numbers_ = call.scalars.data();
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
  Operand operand(void* data, DType dtype, const Sizes& sizes, const Sizes& strides) {
    shapes_.push_back(sizes), shapes_.push_back(strides);
    const Sizes &own_sizes = *(shapes_.end() - 2), &own_strides = shapes_.back();
    const size_t bytes = size_t(span_of(sizes, strides)) * size_of(dtype);
    return {static_cast<char*>(data), dtype, &own_sizes, &own_strides, bytes};
  }
  Operand operand(const ExternView& v) {
    Sizes sizes, strides;
    for (int32_t d = 0; d < v.dim; d++) sizes.push_back(v.sizes[d]), strides.push_back(v.strides[d]);
    return operand(v.data, v.dtype, sizes, strides);
  }
  static Operands part(const Operands& all, size_t from, size_t n) {
    return {all.begin() + long(from), all.begin() + long(from + n)};
  }
  Sliced sliced(const Operand& t, size_t dim) {
    Sizes sizes = *t.sizes, strides = *t.strides;
    sizes.erase(dim), strides.erase(dim);
    const int64_t by = (*t.strides)[dim].hint * int64_t(size_of(t.dtype));
    return {operand(t.data, t.dtype, sizes, strides), by, (*t.sizes)[dim].hint};
  }
  Stacks sliced(const Operands& stacks) {
    Stacks out;
    for (const Operand& t : stacks) out.push_back(sliced(t, 0));
    return out;
  }
  static void append(Operands& to, const Operands& from) { to.insert(to.end(), from.begin(), from.end()); }
  static void append(Operands& to, const Stacks& from, int64_t i) {
    for (const Sliced& s : from) to.push_back(s.at(i));
  }

  Executable& function(size_t k) const { return *functions_[size_t(launch_.functions[k])]; }

  void call(Executable& f, std::initializer_list<const Operands*> arguments, const Operands& results) {
    views_.clear(), outputs_.clear();
    for (const Operands* list : arguments) {
      for (const Operand& t : *list) views_.push_back({t.data, t.sizes->begin(), t.strides->begin(), t.bytes});
    }
    for (const Operand& t : results) outputs_.push_back(t.data);
    views_.push_back({nullptr, symbols_.begin(), nullptr});
    check_stop();
    f.run_views(views_.data(), numbers_, outputs_.data());
  }

  double element_of(const Operand& t) const {
    alignas(16) char element[16];
    copy_bytes(element, Device(), t.data, device_, size_of(t.dtype));
    return load_element(element, t.dtype).to_double();
  }
  bool holds(const Operand& t) const { return element_of(t) != 0; }

  void copy(const Operands& from, const Operands& to) const {
    for (size_t i = 0; i < from.size(); i++) {
      decider_ ? decider_->copy(to[i].data, from[i].data, from[i].bytes)
               : copy_bytes(to[i].data, device_, from[i].data, device_, from[i].bytes);
    }
  }

  // ints: the number of f's arguments in `in`, and of g's.
  void cond(const ExternCall& c, const Operands& in, const Operands& out) {
    const size_t n = size_t(c.ints[0]);
    const Operands f = part(in, 1, n), g = part(in, 1 + n, size_t(c.ints[1]));
    if (decider_) {
      decider_->when(in[0].data, in[0].dtype, true, [&] { call(function(0), {&f}, out); });
      return decider_->when(in[0].data, in[0].dtype, false, [&] { call(function(1), {&g}, out); });
    }
    holds(in[0]) ? call(function(0), {&f}, out) : call(function(1), {&g}, out);
  }

  // ints: the number of carried values, of those that only test reads, of those that only body reads, and of steps that
  // have a place in the stacks. The stacks of what body keeps follow the carried results.
  void while_loop(const ExternCall& c, const Operands& in, const Operands& out) {
    const size_t carried = size_t(c.ints[0]), tests = size_t(c.ints[1]);
    const Operands test_reads = part(in, carried, tests);
    const Operands body_reads = part(in, carried + tests, size_t(c.ints[2]));
    const Operands now = part(in, 0, carried), last = part(out, 0, carried);
    const Memory other(last, device_);
    if (decider_) {
      if (out.size() > carried) throw std::runtime_error("what steps of a loop keep has a place for each step");
      return loop_there(now, test_reads, body_reads, other.tensors, last);
    }
    const Stacks stacks = sliced(part(out, carried, out.size() - carried));
    for (const Sliced& s : stacks) LUTRA_CHECK(s.count == c.ints[3], "a loop that stacks another number");
    const int64_t steps = loop_here(now, test_reads, body_reads, other.tensors, last, stacks);
    if (gives_) clear(stacks, steps);
  }

  Memory flag_of(size_t f) {
    return Memory({operand(nullptr, function(f).plan().outputs[0].view.dtype, {}, {})}, device_);
  }

  // Runs steps as long as test returns true. Returns the number of steps. The results are in `last`.
  int64_t loop_here(Operands now, const Operands& test_reads, const Operands& body_reads, const Operands& other,
                    const Operands& last, const Stacks& stacks) {
    const size_t carried = now.size();
    std::optional<Memory> beyond;  // what steps keep that have no place in the stacks
    Operands results;
    int64_t steps = 0;
    bool in_last = false;
    // Runs n steps by function f.
    const auto make = [&](size_t f, int n) {
      results = in_last ? other : last;
      in_last = !in_last;
      for (int i = 0; i < n && !stacks.empty(); i++) {
        if (steps + i < stacks[0].count) {
          append(results, stacks, steps + i);
        } else {
          if (!beyond) beyond.emplace(slices(stacks, n), device_);
          append(results, part(beyond->tensors, size_t(i) * stacks.size(), stacks.size()));
        }
      }
      call(function(f), {&now, &body_reads}, results);
      now.assign(results.begin(), results.begin() + ptrdiff_t(carried));
      steps += n;
    };
    if (launch_.functions.size() > 2) {
      for (const Memory all = flag_of(2);; make(3, kStepsAtOnce)) {
        call(function(2), {&now, &test_reads, &body_reads}, all.tensors);
        if (!holds(all.tensors[0])) break;
      }
    }
    for (const Memory flag = flag_of(0);; make(1, 1)) {
      call(function(0), {&now, &test_reads}, flag.tensors);
      if (!holds(flag.tensors[0])) break;
    }
    if (!in_last) copy(now, last);
    return steps;
  }

  // Returns operands like the kept results of n steps.
  static Operands slices(const Stacks& stacks, int n) {
    Operands out;
    for (int i = 0; i < n; i++) append(out, stacks, 0);
    return out;
  }

  // Writes zeros for the steps that were not made.
  void clear(const Stacks& stacks, int64_t steps) const {
    for (const Sliced& s : stacks) {
      if (steps >= s.count) continue;
      const std::vector<char> zeros(size_t(s.count - steps) * s.first.bytes);
      copy_bytes(s.at(steps).data, device_, zeros.data(), Device(), zeros.size());
    }
  }

  // Runs the loop on the device, with the same memory in each step. out holds the carried values.
  void loop_there(const Operands& init, const Operands& test_reads, const Operands& body_reads, const Operands& next,
                  const Operands& out) {
    const Memory memory = flag_of(0);
    const Operands& flag = memory.tensors;
    copy(init, out);
    call(function(0), {&out, &test_reads}, flag);
    decider_->repeat(flag[0].data, flag[0].dtype, [&] {
      call(function(1), {&out, &body_reads}, next);
      copy(next, out);
      call(function(0), {&out, &test_reads}, flag);
    });
  }

  // Returns stacks for what a body keeps of n steps: its results from `from` on, which are contiguous.
  Operands stacked(const Executable& body, size_t from, int64_t n) {
    Operands stacks;
    std::vector<InputView> none(body.plan().positions.size());
    none.push_back({nullptr, symbols_.begin(), nullptr});
    const auto values = body.numbers(none.data(), numbers_);
    for (size_t k = from; k < body.plan().outputs.size(); k++) {
      const BufferView& v = body.plan().outputs[k].view;
      Sizes sizes, strides;
      for (ExprId e : v.sizes) sizes.push_back(SymInt(values(e)));
      for (ExprId e : v.strides) strides.push_back(SymInt(values(e)));
      const int64_t each = span_of(sizes, strides);
      sizes.insert(0, SymInt(n)), strides.insert(0, SymInt(each));
      stacks.push_back(operand(nullptr, info(v.dtype).carrier, sizes, strides));
    }
    return stacks;
  }
  // Runs the steps of a loop once more. Returns what the body keeps.
  Memory again(const Operands& init, const Operands& reads, int64_t n) {
    Memory saved(stacked(function(0), init.size(), n), device_);
    const Memory even(init, device_), odd(init, device_);
    const Stacks stacks = sliced(saved.tensors);
    Operands now = init, results;
    bool in_even = false;
    for (int64_t i = 0; i < n;) {
      const int64_t at_once = launch_.functions.size() > 3 && i + kStepsAtOnce <= n ? kStepsAtOnce : 1;
      results = in_even ? odd.tensors : even.tensors;
      in_even = !in_even;
      for (const int64_t end = i + at_once; i < end; i++) append(results, stacks, i);
      call(function(at_once > 1 ? 3 : 0), {&now, &reads}, results);
      now.assign(results.begin(), results.begin() + ptrdiff_t(init.size()));
    }
    return saved;
  }

  // ints: the number of carried values, of those that body reads, of sums, of those that back reads, and of the loop's
  // stacks.
  void while_loop_back(const ExternCall& c, const Operands& in, const Operands& out) {
    const size_t carried = size_t(c.ints[0]), reads = size_t(c.ints[1]), sums = size_t(c.ints[2]);
    const auto n = int64_t(element_of(in[0]));
    const Operands init = part(in, 1, carried), body_reads = part(in, 1 + carried, reads);
    const Operands first = part(in, 1 + carried + reads, sums);
    const Operands back_reads = part(in, 1 + carried + reads + sums, size_t(c.ints[3]));
    if (n == 0) return copy(first, out);
    Operands saved = part(in, in.size() - size_t(c.ints[4]), size_t(c.ints[4]));
    std::optional<Memory> made;
    if (saved.empty() || n > (*saved[0].sizes)[0].hint) saved = made.emplace(again(init, body_reads, n)).tensors;
    const Memory even(out, device_), odd(out, device_);
    const Stacks stacks = sliced(saved);
    Operands now = first, kept;
    bool in_even = false;
    for (int64_t i = n; i > 0;) {
      const int64_t at_once = launch_.functions.size() > 2 && i >= kStepsAtOnce ? kStepsAtOnce : 1;
      kept.clear();
      for (int64_t step = 1; step <= at_once; step++) append(kept, stacks, i - step);
      i -= at_once;
      const Operands& next = i == 0 ? out : in_even ? odd.tensors : even.tensors;
      in_even = !in_even;
      call(function(at_once > 1 ? 2 : 1), {&now, &kept, &back_reads}, next);
      now = next;
    }
  }
  // ints: the number of carried values, the number of sliced ones, their dims, whether the scan is in reverse, and the
  // number of values that are only read.
  void scan(const ExternCall& c, const Operands& in, const Operands& out) {
    const size_t carried = size_t(c.ints[0]), slices = size_t(c.ints[1]);
    const bool reverse = c.ints[2 + slices];
    const Operands reads = part(in, carried + slices, size_t(c.ints[3 + slices]));
    Stacks xs;
    for (size_t k = 0; k < slices; k++) xs.push_back(sliced(in[carried + k], size_t(c.ints[2 + k])));
    const Stacks stacks = sliced(part(out, carried, out.size() - carried));
    const Operands last = part(out, 0, carried);
    const Memory even(last, device_), odd(last, device_);
    const int64_t n = xs[0].count;
    for (const Sliced& s : xs) LUTRA_CHECK(s.count == n, "a scan of slices of different number");
    for (const Sliced& s : stacks) LUTRA_CHECK(s.count == n, "a scan that stacks another number");
    Operands now = part(in, 0, carried), x, results;
    for (int64_t step = 0; step < n; step++) {
      const int64_t i = reverse ? n - 1 - step : step;
      x.clear();
      append(x, xs, i);
      results = step == n - 1 ? last : step % 2 ? odd.tensors : even.tensors;
      append(results, stacks, i);
      call(function(0), {&now, &x, &reads}, results);
      now.assign(results.begin(), results.begin() + ptrdiff_t(carried));
    }
  }

  const ExternLaunch& launch_;
  const std::vector<std::shared_ptr<Executable>>& functions_;
  const Device device_;
  Decider* const decider_;           // null: the host decides
  const bool gives_;                 // its results may be visible outside the run
  SmallVec<SymInt, 8> symbols_;      // that functions read
  const double* numbers_ = nullptr;  // that functions read
  std::deque<Sizes> shapes_;
  std::vector<InputView> views_;  // of the current call
  std::vector<void*> outputs_;
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
