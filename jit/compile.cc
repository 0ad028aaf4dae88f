// The road: a captured graph in, an executable out. Also the witness that runs a graph node by node.
#include "jit/compile.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "jit/cache/segment_cache.h"
#include "jit/passes/passes.h"
#include "jit/runtime/profile.h"
#include "jit/schedule/schedule.h"
#include "ops/core/closest.h"
#include "ops/core/interrupt.h"
#include "ops/defs/autocast.h"

namespace lutra {
namespace {

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point t) { return std::chrono::duration<double, std::milli>(Clock::now() - t).count(); }

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

bool is_disabled(const CompileOptions& options, const char* pass) {
  for (const std::string& name : options.disabled_passes) {
    if (name == pass) return true;
  }
  return false;
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

// Who wants to see a stage wants it run.
bool shows_stages(const CompileOptions& options) {
  if (!options.wanted) return options.log != nullptr;
  for (const char* stage : {"graph", "schedule", "loop", "asm"}) {
    if (options.wanted(stage)) return true;
  }
  return std::any_of(kPasses, kPasses + kPassCount, [&](const auto& pass) { return options.wanted(pass.name); });
}

}  // namespace

Compiled compile_graph(std::unique_ptr<Graph> graph, const CompileOptions& options) {
  const CompileScope scope;
  const AutocastOff off;  // casts are in the graph
  const auto start = Clock::now();
  Compiled compiled;
  const auto log = [&](const char* stage, const auto& text) {
    if (options.log && (!options.wanted || options.wanted(stage))) options.log(stage, text());
  };
  const auto done = [&](const char* stage, Clock::time_point since) {
    compiled.stages.push_back({stage, ms_since(since)});
  };

  const auto finished = [&] {
    if (compiled.executable) compiled.kernels = compiled.executable->kernel_count();
    compiled.compile_ms = ms_since(start);
    if (options.wanted) log("perf", [&] { return times_text(compiled); });
    return std::move(compiled);
  };

  graph->renumber();
  check(*graph, "capture");
  log("graph", [&] { return print(*graph); });
  const bool keeps = options.kept && options.backend == "native" && !shows_stages(options);
  const std::string key = keeps ? segment_key(*graph, options.about, options.disabled_passes) : "";
  const std::vector<Tensor> given = key.empty() ? std::vector<Tensor>() : constants_of(*graph);
  if (!key.empty()) {
    compiled.executable = find_segment(key, *graph);
    done("cache", start);
    if (compiled.executable) return finished();
  }
  if (options.backend != "eager") {
    for (size_t i = 0; i < kPassCount; i++) {
      if (is_disabled(options, kPasses[i].name)) continue;
      check_stop();
      const auto since = Clock::now();
      GraphPtr rewritten = kPasses[i].run(*graph);
      check(*rewritten, kPasses[i].name);
      check_sharing(*graph, *rewritten, kPasses[i].name);
      graph = std::move(rewritten);
      done(kPasses[i].name, since);
      log(kPasses[i].name, [&] { return print(*graph); });
    }
  }
  compiled.graph = std::move(graph);
  if (options.backend == "native") {
    auto since = Clock::now();
    Plan plan = schedule(*compiled.graph);
    done("schedule", since);
    log("schedule", [&] { return print(plan); });
    log("loop", [&] { return loops_text(plan); });
    since = Clock::now();
    const bool listing = options.wanted && options.wanted("asm");
    compiled.executable = Executable::build(std::move(plan), constants_of(*compiled.graph), listing);
    done("codegen", since);
    if (listing) log("asm", [&] { return compiled.executable->listings(); });
    if (!key.empty()) keep_segment(key, *compiled.executable, given);
  } else if (options.backend != "eager" && options.backend != "aot_eager") {
    const KnownNames backends = {"native", "eager", "aot_eager"};
    fail("unknown backend '", options.backend, "'", backends.known(options.backend));
  }
  return finished();
}

std::string loops_text(const Plan& plan) {
  std::string text;
  for (const Launch& launch : plan.launches) {
    if (const auto* k = std::get_if<KernelLaunch>(&launch)) text += loop::print(k->kernel);
  }
  return text;
}

std::vector<Value> Compiled::run(const std::vector<Tensor>& inputs, const std::vector<double>& scalars,
                                 const std::vector<Donor>& donors) const {
  return executable ? executable->run(inputs, scalars, donors) : interpret(*graph, inputs, scalars);
}

}  // namespace lutra
