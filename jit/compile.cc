// Compiles a captured graph: runs the stages, uses the disk cache, reports errors.
#include "jit/compile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <span>

#include "jit/cache/segment_cache.h"
#include "jit/inject/inject.h"
#include "jit/runtime/profile.h"
#include "jit/stages.h"
#include "ops/core/closest.h"
#include "ops/core/interrupt.h"
#include "ops/defs/autocast.h"

namespace lutra {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

bool is_wanted(const CompileOptions& options, const char* stage) {
  return options.log && (!options.wanted || options.wanted(stage));
}

// compiled in 12.3 ms: cse 0.4, schedule 5.1, codegen 6.8; 14 kernels
std::string times_text(const Compiled& compiled) {
  char number[32];
  auto ms = [&](double t) {
    std::snprintf(number, sizeof number, "%.1f", t);
    return std::string(number);
  };
  std::string text = str("compiled in ", ms(compiled.compile_ms), " ms:");
  for (const auto& stage : compiled.stages)
    text += str(&stage == &compiled.stages[0] ? " " : ", ", stage.name, " ", ms(stage.ms));
  return str(text, "; ", compiled.kernels, " kernels\n");
}

// A cached executable skips the stages, so the cache is not used if the caller logs the text of one.
bool takes_kept(const CompileOptions& options) {
  return options.kept && keeps_segments() && !any_bug_is_on() && options.backend == "native" &&
         std::none_of(kStages, kStages + kStageCount,
                      [&](const Stage& s) { return s.text && is_wanted(options, s.name); });
}

void run_stages(Compilation& c, Compiled& compiled) {
  const CompileOptions& options = c.options;
  const bool spoils = any_bug_is_on() && options.eager.empty();
  for (const Stage& stage : std::span(kStages, kStageCount)) {
    if (!goes_through(stage, options)) continue;
    check_stop();
    const auto since = Clock::now();
    if (stage.run) stage.run(c), compiled.stages.push_back({stage.name, ms_since(since)});
    if (spoils) spoil(stage.name, c.graph.get(), &c.plan);
    if (stage.text && is_wanted(options, stage.name)) {
      const std::string text = stage.text(c);
      if (!text.empty()) options.log(stage.name, text);
    }
  }
}

// Runs the stages. Appends the answer of CompileOptions::failed to the text of an internal error.
void go_the_road(Compilation& c, Compiled& compiled) {
  const auto with_answer = [&](const char* what) {
    const auto failed = c.options.failed;
    return what + (failed ? failed(c.captured ? *c.captured : *c.graph, what, c.options) : "");
  };
  try {
    run_stages(c, compiled);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::kInternal) throw;
    fail_internal(with_answer(e.what()));
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& e) {
    fail_internal(with_answer(e.what()));
  }
}

void check_backend(const std::string& backend) {
  const KnownNames backends = {"native", "eager", "aot_eager"};
  if (!backends.have(backend)) fail("unknown backend '", backend, "'", backends.known(backend));
}

}  // namespace

namespace {

SegmentKey key_of(const Graph& graph, const CompileOptions& options) {
  if (!takes_kept(options)) return {};
  return segment_key(graph, options.text ? *options.text : print(graph), options.about, options.disabled_passes);
}

// Completes a compilation, whether its graph was compiled or found in the disk cache.
void finish(Compilation& c, Compiled& compiled, Clock::time_point start) {
  const CompileOptions& options = c.options;
  compiled.executable = std::move(c.executable);
  if (compiled.executable) compiled.kernels = compiled.executable->kernel_count();
  if (compiled.executable && options.autotune) compiled.executable->set_autotune();
  if (options.watch && compiled.executable) {
    std::unique_ptr<Graph>& captured = c.captured ? c.captured : c.graph;  // a cached graph has run no pass
    compiled.watch = options.watch(std::move(captured), options);
  }
  compiled.compile_ms = ms_since(start);
  if (options.wanted && is_wanted(options, "perf")) options.log("perf", times_text(compiled));
}

// Inputs and scalars like those of a run of a captured graph: FakeTensors and hints.
struct RunLike {
  std::vector<Tensor> inputs;
  std::vector<double> scalars;
  explicit RunLike(const Graph& graph) {
    for (const GraphInput& in : graph.inputs) {
      if (!in.constant) inputs.push_back(in.value);
    }
    for (const ScalarInput& s : graph.scalars) scalars.push_back(s.hint);
  }
};

}  // namespace

Compiled compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options) {
  check_backend(options.backend);
  const CompileScope scope;
  const AutocastOff off;  // casts are in the graph
  const auto start = Clock::now();
  Compilation c{options, std::move(graph)};
  Compiled compiled;
  const RunLike like(*c.graph);
  const SegmentKey key = key_of(*c.graph, options);
  if (!key.text.empty()) c.executable = find_segment(key, *c.graph);
  if (c.executable) {
    compiled.stages.push_back({"cache", ms_since(start)});
  } else {
    const std::vector<Tensor> given = key.text.empty() ? std::vector<Tensor>() : constants_of(*c.graph);
    go_the_road(c, compiled);
    compiled.graph = std::move(c.graph);
    if (!key.text.empty()) keep_segment(key, *c.executable, given);
  }
  finish(c, compiled, start);
  if (options.background && compiled.executable) compiled.executable->prepare(like.inputs, like.scalars);
  return compiled;
}

std::string loops_text(const Plan& plan) {
  std::string text;
  for (const Launch& launch : plan.launches) {
    if (const auto* k = std::get_if<KernelLaunch>(&launch)) text += loop::print(k->kernel);
  }
  for (const Plan& function : plan.functions) text += loops_text(function);
  return text;
}

std::vector<Value> Compiled::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                 const std::vector<Donor>& donors, std::vector<InputView>* views) const {
  if (watch) return watch->run(*this, inputs, scalars, donors);
  if (executable) return executable->run(inputs, scalars, donors, views);
  return run_alone(inputs, scalars, donors);
}

std::vector<Value> Compiled::run_alone(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                       const std::vector<Donor>& donors) const {
  return executable ? executable->run(inputs, scalars, donors) : interpret_apart(*graph, inputs, scalars);
}

}  // namespace lutra
