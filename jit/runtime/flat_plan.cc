// Flattens a plan into slots, steps and compiled kernels.
#include "jit/runtime/flat_plan.h"

#include <algorithm>
#include <unordered_map>

#include "jit/background/background.h"
#include "jit/device/backend.h"
#include "jit/graph/unbacked.h"
#include "jit/runtime/arena.h"
#include "jit/runtime/config.h"
#include "jit/runtime/executable.h"
#include "jit/runtime/kernel_cache.h"
#include "jit/runtime/library_call.h"
#include "jit/runtime/pool.h"
#include "jit/schedule/combine.h"
#include "ops/core/error.h"
#include "ops/core/intern.h"
#include "ops/core/interrupt.h"
#include "ops/meta/unbacked.h"

namespace lutra {
namespace {

constexpr size_t kMaxName = 96;

bool uses_random(const std::vector<loop::Stmt>& body) {
  return std::any_of(body.begin(), body.end(), [](const loop::Stmt& s) {
    const auto* l = std::get_if<std::unique_ptr<loop::Loop>>(&s);
    return l ? uses_random((*l)->body) : loop::info(std::get<loop::Inst>(s).op).rule == loop::TypeRule::kRandom;
  });
}

void set_place(LaunchStep& step, const Launch& launch) {
  const auto place = [&](const std::string& op, const std::string& file, int line) {
    step.op = intern(op), step.file = file.empty() ? nullptr : intern(file), step.line = line;
  };
  if (const auto* kernel = std::get_if<KernelLaunch>(&launch)) return place(kernel->op, kernel->file, kernel->line);
  const auto& library = std::get<ExternLaunch>(launch);
  place(name(library.op), library.file, library.line);
}

}  // namespace

FlatPlan::FlatPlan(const Plan& plan, const Codes& codes, std::vector<Tensor> brought, const CodeOptions& options)
    : plan(plan), constants(std::move(brought)), backend(backend_of(plan.device)), isa(current_isa()) {
  LUTRA_CHECK(constants.size() == size_t(plan.constants), constants.size(), " constants for ", plan.constants);
  program.begin(plan.exprs, plan.positions);
  find_unbacked();
  for (size_t i = 0; i < plan.functions.size(); i++) {
    const bool has_code = i < codes.functions.size();
    functions.push_back(Executable::of_function(plan.functions[i], has_code ? codes.functions[i] : Codes(), options));
  }
  compile(codes, options);
  for (size_t i = 0; i < plan.launches.size(); i++) {
    if (const auto* kernel = std::get_if<KernelLaunch>(&plan.launches[i])) {
      add_kernel(*kernel);
    } else {
      add_library(std::get<ExternLaunch>(plan.launches[i]));
    }
    steps.back().counters = counters_[i].get();
    steps.back().launch = int32_t(i);
    set_place(steps.back(), plan.launches[i]);
  }
  for (const auto& f : functions) kernel_count += f->kernel_count();
  name_runs();
  int32_t sizes = 0;
  for (LaunchStep& s : steps) {
    const auto* e = std::get_if<ExternLaunch>(&plan.launches[size_t(s.launch)]);
    if (e && info(e->op).dynamic) s.unbacked = sizes++;
  }
  for (size_t i = 0; i < steps.size(); i += size_t(steps[i].beside) + 1) {
    bool repeats = true;
    for (size_t k = i; k <= i + size_t(steps[i].beside); k++) {
      if (!writes_inputs(steps[k].launch)) continue;
      steps[i].writes = true;
      repeats &= this->repeats(steps[k].launch);
    }
    steps[i].in_place = steps[i].writes && repeats;
  }
  add_outputs();
}

void FlatPlan::find_unbacked() {
  std::vector<int32_t> numbers;
  for (const Launch& l : plan.launches) {
    const auto* e = std::get_if<ExternLaunch>(&l);
    if (!e || !info(e->op).dynamic) continue;
    const ExprId determined = tells_number(e->op) ? e->scalars.back() : e->out[0].sizes[0];
    const SymExpr& likely = plan.exprs[size_t(determined)];
    numbers.push_back(unbacked_number(plan.exprs, determined));
    unbacked.push_back({numbers.back(), is_number(likely.op) ? likely.d : double(likely.i)});
  }
  if (numbers.empty()) return;
  levels_ = unbacked_levels(plan.exprs, numbers);
  for (const SymGuard& g : plan.guards) {
    const int32_t last = std::max(level(g.a), arity(g.cmp) == 2 ? level(g.b) : 0);
    if (last > 0) program.add_guard(g, last);
  }
}

void FlatPlan::add_outputs() {
  for (const PlanOutput& out : plan.outputs) {
    if (out.kind == PlanOutput::kTensor) add_view(out.view);
    if (out.kind == PlanOutput::kScalar && is_number(plan.exprs[size_t(out.scalar)].op))
      program.number_slot(out.scalar);
    if (out.kind == PlanOutput::kScalar) program.int_slot(out.scalar);
  }
  for (const ArenaSlot& s : plan.slots) program.int_slot(s.bytes);
  for (const Buffer& b : plan.buffers) {
    if (b.kind == Buffer::kOutput) program.int_slot(b.elements);
    int32_t position = b.kind == Buffer::kInput ? b.index : -1;
    if (position >= 0 && !plan.positions.empty()) position = plan.positions.at(size_t(position));
    input_of.push_back(position);
    input_count = std::max(input_count, position + 1);
  }
  input_count = std::max(input_count, program.input_count());
}

// Counts parallel steps as one launch.
void FlatPlan::name_runs() {
  for (size_t i = 0; i < steps.size(); i += size_t(steps[i].beside) + 1) {
    std::string names = counters_[i]->name;
    while (size_t(steps[i].beside) + i + 1 < steps.size()) {
      const Launch& next = plan.launches[i + size_t(steps[i].beside) + 1];
      const auto* kernel = std::get_if<KernelLaunch>(&next);
      if (!kernel || !kernel->beside || steps[i].beside + 1 == kMaxBeside) break;
      steps[i].beside++;
      names += " | " + kernel->kernel.name;
    }
    if (!steps[i].beside) continue;
    if (names.size() > kMaxName) names = str(names.substr(0, kMaxName), "...");
    run_counters_.push_back(named_counters(str(steps[i].beside + 1, " kernels: ", names)));
    steps[i].counters = run_counters_.back().get();
  }
}

void FlatPlan::add_view(const BufferView& view) {
  for (ExprId id : view.sizes) program.int_slot(id);
  for (ExprId id : view.strides) program.int_slot(id);
  program.int_slot(view.offset);
}

// Compiles each kernel once, on all threads. Afterwards counters_ has an entry for each launch. In the background it
// uses only its own thread if the program's kernels run on the others.
void FlatPlan::compile(const Codes& codes, const CodeOptions& options) {
  struct Work {
    FlatPlan& flat;
    const Codes& codes;
    const CodeOptions& options;
  } work{*this, codes, options};
  counters_.resize(plan.launches.size());
  const auto compile_one = [](void* arg, int i) {
    const Work& w = *static_cast<Work*>(arg);
    w.flat.compile_launch(size_t(i), w.codes, w.options, false);
  };
  const int n = int(plan.launches.size());
  if (!in_background() || backend.preferences.leaves_processors) {
    run_chunks(n, compile_one, &work);
  } else {
    for (int i = 0; i < n; i++) compile_one(&work, i);
  }
  // The kernels that other threads were compiling.
  for (int i = 0; i < n; i++) {
    if (!counters_[size_t(i)]) compile_launch(size_t(i), codes, options, true);
  }
}

void FlatPlan::compile_launch(size_t i, const Codes& codes, const CodeOptions& options, bool waits) {
  check_stop();
  const bool for_sizes = backend.preferences.made_for_sizes;
  if (const auto* library = std::get_if<ExternLaunch>(&plan.launches[i])) {
    counters_[i] = library_counters(name(library->op));
    if (for_sizes && library->functions.empty() && !info(library->op).dynamic) prepare_library(*library);
    return;
  }
  const auto& launch = std::get<KernelLaunch>(plan.launches[i]);
  if (i < codes.of_launch.size() && codes.of_launch[i] >= 0) {
    counters_[i] = loaded_kernel(launch.kernel.name, codes.images[size_t(codes.of_launch[i])], backend);
    return;
  }
  KernelTarget target{plan.device, isa, {}, false, options.at_once};
  if (for_sizes) {
    for (ExprId e : launch.ints) target.hints.push_back(plan.exprs[size_t(e)].i);
    target.several = launch.beside || (i + 1 < plan.launches.size() && is_beside(plan.launches[i + 1]));
  }
  counters_[i] = cached_kernel(launch.kernel, target, options.listing, waits);
}

// Prepares a library call for its likely sizes.
void FlatPlan::prepare_library(const ExternLaunch& launch) const {
  CallOperands o;
  ExternCall call = call_of(
      launch, o, [&](ExprId e) { return plan.exprs[size_t(e)].i; }, [](ExprId) { return 1.0; },
      [](const BufferView&) { return reinterpret_cast<void*>(uintptr_t(512)); });  // present
  call.device = plan.device;
  backend.prepare(call);
}

void FlatPlan::add_library(const ExternLaunch& library) {
  for (const BufferView& v : library.in) {
    if (v.buffer >= 0) add_view(v);
  }
  for (const BufferView& v : library.out) add_view(v);
  for (ExprId e : library.ints) program.int_slot(e);
  for (ExprId e : library.scalars) program.number_slot(e);
  steps.push_back({});
}

void FlatPlan::add_kernel(const KernelLaunch& launch) {
  const loop::Kernel& k = launch.kernel;
  LUTRA_CHECK(launch.buffers.size() == k.params.size() && launch.ints.size() == size_t(k.ints) &&
                  launch.scalars.size() == size_t(k.scalars),
              "launch of ", k.name, " with other arguments than the kernel's");
  kernel_count++;
  LaunchStep s;
  s.kernel = counters_[steps.size()].get();
  s.first = int32_t(operands.size());
  s.random = uses_random(k.body);
  s.ptrs = int32_t(launch.buffers.size()), s.ints = k.ints, s.nums = k.scalars;
  for (int32_t b : launch.buffers) operands.push_back(b);
  for (ExprId id : launch.ints) operands.push_back(program.int_slot(id));
  for (ExprId id : launch.scalars) operands.push_back(program.number_slot(id));
  s.words = int32_t(kHeadWords) + s.ptrs + s.ints + s.nums;
  s.block = int32_t(block_words);
  block_words += align_up(size_t(s.words), 8);
  if (launch.extent) {
    s.extent = program.int_slot(launch.extent);
  }
  s.work = launch.work ? program.int_slot(launch.work) : -1;
  steps.push_back(s);
}

bool FlatPlan::writes_inputs(int32_t launch) const {
  const auto is_input = [&](int32_t b) { return b >= 0 && plan.buffers[size_t(b)].kind == Buffer::kInput; };
  const Launch& l = plan.launches[size_t(launch)];
  if (const auto* e = std::get_if<ExternLaunch>(&l)) {
    return std::any_of(e->out.begin(), e->out.end(), [&](const BufferView& v) { return is_input(v.buffer); });
  }
  const auto& k = std::get<KernelLaunch>(l);
  for (size_t i = 0; i < k.buffers.size(); i++) {
    if (k.kernel.params[i].written && is_input(k.buffers[i])) return true;
  }
  return false;
}

bool FlatPlan::repeats(int32_t launch) const {
  const Launch& l = plan.launches[size_t(launch)];
  if (const auto* k = std::get_if<KernelLaunch>(&l)) return k->repeats;
  const auto* e = std::get_if<ExternLaunch>(&l);
  return !e->in.empty() && e->out.size() == 1 && e->in[0].buffer == e->out[0].buffer;
}

std::string FlatPlan::listings() const {
  std::string text;
  for (const LaunchStep& s : steps) {
    if (s.kernel) text += s.kernel->code->listing;
  }
  for (const auto& f : functions) text += f->listings();
  return text;
}

Codes FlatPlan::codes() const {
  Codes codes;
  std::unordered_map<std::string, int32_t> places;
  for (const LaunchStep& s : steps) {
    std::string image = s.kernel ? backend.image(*s.kernel->code) : "";
    int32_t place = -1;
    if (!image.empty()) {
      const auto [at, is_new] = places.emplace(std::move(image), int32_t(codes.images.size()));
      if (is_new) codes.images.push_back(at->first);
      place = at->second;
    }
    codes.of_launch.push_back(place);
  }
  for (const auto& f : functions) codes.functions.push_back(f->codes());
  return codes;
}

std::pair<const char*, int> FlatPlan::first_place() const {
  for (const LaunchStep& s : steps) {
    if (s.file) return {s.file, s.line};
  }
  return {nullptr, 0};
}

std::string FlatPlan::place() const {
  const auto [file, line] = first_place();
  return file ? str("the segment at ", file, ":", line) : "a segment";
}

}  // namespace lutra
