// The watch of a compiled segment: makes one of n runs eagerly, too, and compares the bits.
//
// Invariants:
// 1. In a compared run the program gets eager's results and eager's writes: compiled code runs on copies first, then
//    eager runs on the inputs themselves.
// 2. A segment that was wrong once is not run again: its graph is interpreted from then on.
#include <cstdio>
#include <cstring>
#include <mutex>

#include "jit/inject/inject.h"
#include "jit/repro/compare.h"
#include "jit/repro/repro.h"
#include "jit/runtime/config.h"
#include "ops/core/late_error.h"

namespace lutra {
namespace {

std::atomic<uint64_t> calls, mismatches, repros;

Repro repro_of(const char* kind, const Graph& graph, const std::string& what, const CompileOptions& options) {
  Repro r;
  r.kind = kind, r.about = options.about, r.what = what;
  r.device = to_string(device_of(graph)), r.isa = current_isa();
  r.without = options.disabled_passes, r.bugs = bugs_on();
  if (options.guards) r.guards = *options.guards;
  r.graph = print(graph);
  return r;
}

std::string keep(const Repro& repro) {
  const std::string path = keep_repro(repro);
  repros += path[0] != '(';
  return path;
}

// Keeps the repro and reports it, in one message.
void tell(const Repro& repro, const std::string& message) {
  const std::string path = keep(repro);
  std::fprintf(stderr, "lutra: %s: %s; repro: %s\n", repro.about.empty() ? "a graph" : repro.about.c_str(),
               message.c_str(), path.c_str());
}

// Returns true if the graph writes. Then a run needs copies of its inputs.
bool writes(const Graph& graph) {
  for (const auto& n : graph.nodes) {
    if (n->inplace || n->is_copy()) return true;
  }
  return false;
}

// Drops the history of the traced values, since it would keep the program's tensors alive.
void forget_history(Graph& graph) {
  const auto forget = [](const Tensor& t) {
    t->autograd = nullptr, t->view = nullptr, t->base = Tensor();
    t->requires_grad = false;
  };
  for (const auto& in : graph.inputs) forget(in.value);
  for (const auto& n : graph.nodes) {
    for (const Tensor& t : n->results) forget(t);
  }
}

class Shadow final : public Watch {
 public:
  Shadow(std::unique_ptr<Graph> graph, const CompileOptions& options)
      : graph_(std::move(graph)), options_(options), writes_(writes(*graph_)) {
    options_.text = nullptr;
    options_.wanted = nullptr, options_.log = nullptr;
  }

  bool refused() const override { return refused_; }

  std::vector<Value> run(const Compiled& compiled, const std::vector<Tensor>& inputs,
                         const std::vector<double>& scalars, const std::vector<Donor>& donors) override {
    if (refused_) return interpret_apart(*graph_, inputs, scalars);
    const int every = *options_.verify;
    if (every == 0 || calls_++ % uint64_t(every) != 0) return compiled.run_alone(inputs, scalars, donors);
    calls++;
    return Comparison{*this, compiled, inputs, scalars}.run();
  }

 private:
  struct Comparison {
    Shadow& shadow;
    const Compiled& compiled;
    const std::vector<Tensor>& inputs;
    const std::vector<double>& scalars;
    Generator before = default_generator();
    Copies pristine{};  // copies of the inputs, if the graph writes
    std::vector<Tensor> given = shadow.writes_ ? pristine.of(inputs) : inputs;

    std::vector<Value> run() {
      RunResult mine;
      const std::string raised = run_compiled(mine);
      default_generator() = before;
      std::vector<Value> eager;
      try {
        eager = interpret_apart(*shadow.graph_, inputs, scalars);
      } catch (const Error& e) {
        restore();
        if (raised.empty() && e.kind != ErrorKind::kInterrupt && e.kind != ErrorKind::kMemory) {
          mismatch(str("eager raises '", e.what(), "', compiled code does not"));
        }
        throw;
      }
      if (!raised.empty()) {
        mismatch(str("compiled code raises '", raised, "', eager does not"));
      } else if (const auto found = difference(*shadow.graph_, mine, {inputs, eager})) {
        mismatch(*found);
      }
      return eager;
    }

    // Returns the text of the error that compiled code threw, or "".
    std::string run_compiled(RunResult& out) {
      Copies copies;
      out.inputs = copies.of(inputs);
      try {
        out.outputs = compiled.run_alone(out.inputs, scalars);
      } catch (const Error& e) {
        if (e.kind == ErrorKind::kInterrupt || e.kind == ErrorKind::kMemory || dynamic_cast<const LateError*>(&e))
          throw;
        return e.what();
      }
      return "";
    }

    // Restores the inputs: the original code runs from the segment's start.
    void restore() {
      for (size_t i = 0; shadow.writes_ && i < inputs.size(); i++) {
        const Storage& from = *given[i]->storage;
        if (from.data) copy_bytes(inputs[i]->storage->data, from.device, from.data, from.device, from.nbytes);
      }
    }

    void mismatch(const std::string& what) {
      mismatches++;
      if (shadow.refused_.exchange(true)) return;
      Repro r = repro_of("differs", *shadow.graph_, what, shadow.options_);
      size_t next = 0;
      for (const GraphInput& in : shadow.graph_->inputs) r.inputs.push_back(in.constant ? in.constant : given[next++]);
      r.scalars = scalars;
      r.seed = before.seed, r.next_call = before.next_call;
      tell(r, str("compiled code differs from eager: ", what, "; eager's results are used, and this code no more"));
    }
  };

  std::unique_ptr<Graph> graph_;
  CompileOptions options_;
  bool writes_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<bool> refused_{false};
};

}  // namespace

ShadowCounts shadow_counts() { return {calls, mismatches, repros}; }

std::shared_ptr<Watch> watch_runs(std::unique_ptr<Graph> captured, const CompileOptions& options) {
  forget_history(*captured);
  return std::make_shared<Shadow>(std::move(captured), options);
}

std::string keep_failure(const Graph& captured, const std::string& what, const CompileOptions& options) {
  return "\nrepro: " + keep(repro_of("fails", captured, what.substr(0, what.find('\n')), options));
}

void report_guard(const std::string& about, const std::string& what, const std::string& guards,
                  const std::string& graph) {
  mismatches++;
  Repro r;
  r.kind = "guard", r.about = about, r.what = what, r.guards = guards, r.graph = graph;
  r.isa = current_isa(), r.bugs = bugs_on();
  tell(r, str("compiled code was entered although a guard does not hold: ", what,
              "; the original code runs, and this code no more"));
}

}  // namespace lutra
