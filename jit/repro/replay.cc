// Runs a repro again, compiled and eagerly, on copies of the same inputs with the same random numbers.
#include "jit/repro/compare.h"
#include "jit/repro/repro.h"

namespace lutra {
namespace {

struct GeneratorAt {
  Generator before = default_generator();
  GeneratorAt(uint64_t seed, uint64_t next_call) { default_generator() = {seed, next_call}; }
  ~GeneratorAt() { default_generator() = before; }
};

// Makes a tensor of zeros for an input whose elements are not known. A failure of the compiler does not depend on them.
Tensor made_up(const Tensor& fake) {
  Sizes sizes, strides;
  for (SymInt s : fake->sizes) sizes.push_back(SymInt(s.hint));
  for (SymInt s : fake->strides) strides.push_back(SymInt(s.hint));
  Tensor t = make_tensor(sizes, strides, fake->dtype, fake->device());
  const std::string zeros(t->storage->nbytes, '\0');
  if (!zeros.empty()) copy_bytes(t->storage->data, t->device(), zeros.data(), Device(), zeros.size());
  return t;
}

Device device_of(const Repro& repro) { return repro.device.empty() ? Device() : parse_device(repro.device); }

RunResult run_eager(const Runnable& run) {
  Copies copies;
  RunResult result{copies.of(run.inputs), {}};
  const GeneratorAt random(run.seed, run.next_call);
  const GradModeScope no_grad(false);
  result.outputs = interpret(*run.graph, result.inputs, run.scalars);
  return result;
}

}  // namespace

Runnable runnable(const Repro& repro) {
  const Device device = device_of(repro);
  check_device(device);
  Runnable run{parse_graph(repro.graph, device), {}, repro.scalars, repro.seed, repro.next_call, repro.without, device};
  Graph& g = *run.graph;
  if (!repro.inputs.empty() && repro.inputs.size() != g.inputs.size()) {
    fail("repro: the file has ", repro.inputs.size(), " inputs, its graph ", g.inputs.size());
  }
  for (size_t i = 0; i < g.inputs.size(); i++) {
    GraphInput& in = g.inputs[i];
    const Tensor real = repro.inputs.empty() || !repro.inputs[i] ? made_up(in.value) : repro.inputs[i];
    if (real->dtype != in.value->dtype || real->sizes.size() != in.value->sizes.size()) {
      fail("repro: input ", i, " is ", describe(real), " in the file, ", describe(in.value), " in its graph");
    }
    in.value->storage->device = real->device();
    if (in.constant) {
      in.constant = real;
    } else {
      run.inputs.push_back(real);
    }
  }
  run.scalars.resize(g.scalars.size());
  for (size_t i = repro.scalars.size(); i < run.scalars.size(); i++) run.scalars[i] = g.scalars[i].hint;
  return run;
}

Replay replay(const Runnable& run) {
  const RunResult eager = run_eager(run);
  const std::vector<GraphInput>& inputs = run.graph->inputs;
  // The compiler consumes its graph.
  const std::string text = print(*run.graph);
  auto mine = parse_graph(text, run.device);
  for (size_t i = 0; i < inputs.size(); i++) {
    mine->inputs[i].constant = inputs[i].constant;
    mine->inputs[i].value->storage->device = inputs[i].value->device();
  }
  Compiled compiled;
  CompileOptions options;
  options.disabled_passes = run.without;
  try {
    compiled = compile_graph(std::move(mine), options);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::kInterrupt) throw;
    return {"fails", e.what()};
  }
  Copies copies;
  RunResult result{copies.of(run.inputs), {}};
  spoil_free_memory(eager.outputs);
  try {
    const GeneratorAt random(run.seed, run.next_call);
    const GradModeScope no_grad(false);
    result.outputs = compiled.run(result.inputs, run.scalars);
  } catch (const Error& e) {
    if (e.kind == ErrorKind::kInterrupt) throw;
    return {"differs", str("compiled code raises: ", e.what())};
  }
  const auto found = difference(*run.graph, result, eager);
  return found ? Replay{"differs", *found} : Replay{};
}

Replay replay(const Repro& repro) { return replay(runnable(repro)); }

size_t ops_of(const Repro& repro) { return parse_graph(repro.graph, device_of(repro))->nodes.size(); }

}  // namespace lutra
