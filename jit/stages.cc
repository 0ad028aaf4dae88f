// The table of stages, and the functions that run them.
#include "jit/stages.h"

#include <algorithm>

#include "jit/device/backend.h"
#include "jit/graph/function.h"
#include "jit/passes/passes.h"
#include "jit/schedule/schedule.h"

namespace lutra {
namespace {

void check(const Graph& graph, const char* stage) {
#ifdef LUTRA_DEBUG
  const std::string wrong = verify(graph);
  if (!wrong.empty()) fail_internal("after ", stage, ": ", wrong, "\n", print(graph));
#else
  (void)graph, (void)stage;
#endif
}

void check_sharing(const Graph& before, const Graph& after, const char* pass) {
#ifdef LUTRA_DEBUG
  const std::string wrong = verify_sharing(before, after);
  if (!wrong.empty()) fail_internal("after ", pass, ": ", wrong, "\n", print(before), print(after));
#else
  (void)before, (void)after, (void)pass;
#endif
}

void renumber(Compilation& c) {
  c.graph->renumber();
  check(*c.graph, "capture");
}

// Runs the pass on the graph and on the functions that the graph calls.
GraphPtr run_on(const PassRow& pass, const Graph& graph) {
  GraphPtr rewritten = pass.run(graph);
  map_functions(*rewritten, [&](const Graph& function) { return run_on(pass, function); });
  check(*rewritten, pass.name);
  check_sharing(graph, *rewritten, pass.name);
  return rewritten;
}

template <size_t kPass>
void run_pass(Compilation& c) {
  GraphPtr rewritten = run_on(kPasses[kPass], *c.graph);
  if (!c.captured) c.captured = std::move(c.graph);
  c.graph = std::move(rewritten);
}

bool shows(const CompileOptions& options, const char* stage) {
  return options.log && (!options.wanted || options.wanted(stage));
}

void lower_graph(Compilation& c) {
  c.lowered.emplace(lower(*c.graph));
#ifdef LUTRA_DEBUG
  const std::string wrong = verify(*c.lowered);
  if (!wrong.empty()) fail_internal("lower: ", wrong, "\n", print(*c.graph, *c.lowered));
#endif
}

void make_plan(Compilation& c) {
  const Device device = device_of(*c.graph);
  std::optional<Machine> machine;
  if (!c.options.stated_machine) machine = backend_of(device).machine(device);
  const bool logs_fusion = c.options.wanted && shows(c.options, "fusion");
  c.plan = schedule(*c.graph, std::move(*c.lowered),
                    {true, machine ? &*machine : nullptr, logs_fusion ? &c.decisions : nullptr});
  // The single kernel of an eager op gets the op's name.
  if (c.options.eager.empty() || c.plan.launches.size() != 1) return;
  if (auto* k = std::get_if<KernelLaunch>(&c.plan.launches[0])) k->kernel.name = c.options.eager;
}

void make_code(Compilation& c) {
  const bool listing = c.options.wanted && shows(c.options, "asm");
  c.executable =
      Executable::build(std::move(c.plan), constants_of(*c.graph), listing, /*at_once=*/!c.options.eager.empty());
}

std::string graph_text(const Compilation& c) { return print(*c.graph); }
std::string lowered_text(const Compilation& c) { return print(*c.graph, *c.lowered); }
std::string plan_text(const Compilation& c) { return print(c.plan); }
std::string fusion_text(const Compilation& c) { return c.decisions; }
std::string loop_text(const Compilation& c) { return loops_text(c.plan); }
std::string asm_text(const Compilation& c) { return c.options.wanted ? c.executable->listings() : ""; }

enum PassIndex : size_t {
#define PASS(name, ...) k_##name,
#include "jit/passes/passes.def"
};

}  // namespace

const Stage kStages[] = {
    {"graph", renumber, graph_text, Stage::kAlways, true},
#define PASS(name, when, for_eager) {#name, run_pass<k_##name>, graph_text, Stage::when, for_eager},
#include "jit/passes/passes.def"
    {"lower", lower_graph, lowered_text, Stage::kNative, true},
    {"schedule", make_plan, plan_text, Stage::kNative, true},
    {"fusion", nullptr, fusion_text, Stage::kNative, false},
    {"loop", nullptr, loop_text, Stage::kNative, false},
    {"codegen", make_code, nullptr, Stage::kNative, true},
    {"asm", nullptr, asm_text, Stage::kNative, false},
};
const size_t kStageCount = std::size(kStages);

// The backend "eager" takes the captured graph; "aot_eager" takes the graph after the passes.
bool goes_through(const Stage& stage, const CompileOptions& options) {
  if (!options.eager.empty() && !stage.for_eager) return false;
  if (options.backend == "eager" && &stage != kStages) return false;
  if (options.backend != "native" && stage.when == Stage::kNative) return false;
  const auto& off = options.disabled_passes;
  return stage.when != Stage::kUnlessOff || std::find(off.begin(), off.end(), stage.name) == off.end();
}

std::string run_between(Compilation& c, const std::string& first, const std::string& last) {
  bool began = false;
  for (const Stage& stage : kStages) {
    began = began || stage.name == first;
    if (!began || !goes_through(stage, c.options)) continue;
    if (stage.run) stage.run(c);
    const std::string wrong = verify(*c.graph);
    if (!wrong.empty()) fail("after ", stage.name, ": ", wrong);
    if (stage.name == last) return stage.text ? stage.text(c) : "";
  }
  fail("stage '", last, "' is left out");
}

KnownNames optional_stages() {
  KnownNames names;
  for (const Stage& stage : kStages) {
    if (stage.when == Stage::kUnlessOff) names.add(stage.name);
  }
  return names;
}

}  // namespace lutra
