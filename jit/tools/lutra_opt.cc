// Text of a graph, a lowered graph or an artifact in, text of a later stage out: for reading and testing the compiler
// without Lua.
//
//   lutra-opt [--pass NAME]... [--stage STAGE] [--device cpu|cuda] [--isa ISA] FILE|-
//
// STAGE is one of graph|lower|fusion|schedule|mapping|loop|artifact|asm.
//
// --pass runs the named passes in the order given; without it, stages after "graph" run all of them. fusion tells what
// the scheduler weighed, mapping what the mapping of each kernel to a GPU did. For cuda there need be no GPU: choices
// are made for a stated one.
#include <fstream>
#include <iostream>
#include <iterator>

#include "jit/compile.h"
#include "jit/device/backend.h"
#include "jit/graph/text.h"
#include "jit/passes/passes.h"
#include "jit/runtime/config.h"
#include "jit/schedule/schedule.h"
#include "ops/core/closest.h"

namespace lutra {
namespace {

struct Options {
  std::vector<std::string> passes;
  std::string stage = "graph", file;
  Device device;
};

Options parse_options(int argc, char** argv) {
  Options o;
  const auto value = [&](int& i) -> std::string {
    if (i + 1 >= argc) fail(argv[i], " needs a value");
    return argv[++i];
  };
  for (int i = 1; i < argc; i++) {
    const std::string arg = argv[i];
    if (arg == "--pass") {
      o.passes.push_back(value(i));
    } else if (arg == "--stage") {
      o.stage = value(i);
    } else if (arg == "--device") {
      o.device = parse_device(value(i));
    } else if (arg == "--isa") {
      runtime_config().isa = value(i);
    } else if (o.file.empty() && (arg == "-" || arg[0] != '-')) {
      o.file = arg;
    } else {
      fail("usage: lutra-opt [--pass NAME]... [--stage graph|lower|fusion|schedule|mapping|loop|artifact|asm] ",
           "[--device cpu|cuda] [--isa ISA] FILE|-");
    }
  }
  if (o.file.empty()) fail("no input file ('-' is standard input)");
  return o;
}

std::string read_all(const std::string& file) {
  using Chars = std::istreambuf_iterator<char>;
  if (file == "-") return std::string(Chars(std::cin), Chars());
  std::ifstream in(file, std::ios::binary);
  if (!in) fail("cannot open ", file);
  return std::string(Chars(in), Chars());
}

GraphPtr run_pass(const std::string& name, GraphPtr graph) {
  for (size_t i = 0; i < kPassCount; i++) {
    if (name != kPasses[i].name) continue;
    GraphPtr result = kPasses[i].run(*graph);
    const std::string wrong = verify(*result);
    if (!wrong.empty()) fail("after ", name, ": ", wrong);
    return result;
  }
  KnownNames known;
  for (size_t i = 0; i < kPassCount; i++) known.add(kPasses[i].name);
  fail("unknown pass '", name, "'", known.known(name));
}

// Of an artifact's text.
std::string artifact_stage(const std::string& text, const Options& o) {
  const Artifact a = parse_artifact(text);
  if (!o.passes.empty()) fail("an artifact goes through no pass");
  if (o.stage == "graph" || o.stage == "artifact") return print_artifact(a.plan, a.constants);
  if (o.stage == "schedule") return print(a.plan);
  if (o.stage == "loop") return loops_text(a.plan);
  fail("unknown stage of an artifact '", o.stage, "'", KnownNames{"artifact", "schedule", "loop"}.known(o.stage));
}

// Of a lowered graph's text.
std::string lowered_stage(const std::string& text, const Options& o) {
  if (!o.passes.empty() || (o.stage != "graph" && o.stage != "lower")) fail("a lowered graph is only read and printed");
  const ParsedLowering p = parse_lowered(text);
  return print(*p.graph, p.lowered);
}

std::string mappings_text(const Plan& plan) {
  std::string text;
  for (const Launch& l : plan.launches) {
    const auto* k = std::get_if<KernelLaunch>(&l);
    if (!k) continue;
    std::vector<int64_t> hints;
    for (ExprId e : k->ints) hints.push_back(plan.exprs[size_t(e)].i);
    text += backend_of(plan.device).weighed(k->kernel, hints);
  }
  for (const Plan& function : plan.functions) text += mappings_text(function);
  return text;
}

std::string stage_text(GraphPtr graph, const Options& o) {
  move_to(*graph, o.device);
  for (const std::string& pass : o.passes) graph = run_pass(pass, std::move(graph));
  if (o.stage == "graph") return print(*graph);
  const std::vector<Tensor> given = o.passes.empty() ? constants_of(*graph) : std::vector<Tensor>{};
  for (size_t i = 0; o.passes.empty() && i < kPassCount; i++) graph = run_pass(kPasses[i].name, std::move(graph));
  LoweredGraph lowered = lower(*graph);
  if (o.stage == "lower") return print(*graph, lowered);
  std::string decisions;
  Plan plan = schedule(*graph, std::move(lowered), {.decisions = &decisions});
  if (o.stage == "fusion") return decisions;
  if (o.stage == "schedule") return print(plan);
  if (o.stage == "mapping") return mappings_text(plan);
  if (o.stage == "loop") return loops_text(plan);
  if (o.stage == "artifact") return print_artifact(plan, describe_constants(constants_of(*graph), given));
  if (o.stage == "asm") return Executable::build(std::move(plan), constants_of(*graph), true)->listings();
  fail("unknown stage '", o.stage, "'",
       KnownNames{"graph", "lower", "fusion", "schedule", "mapping", "loop", "artifact", "asm"}.known(o.stage));
}

}  // namespace
}  // namespace lutra

int main(int argc, char** argv) {
  try {
    const lutra::Options options = lutra::parse_options(argc, argv);
    const std::string text = lutra::read_all(options.file);
    std::cout << (text.starts_with("{")         ? lutra::artifact_stage(text, options)
                  : text.starts_with("lowered") ? lutra::lowered_stage(text, options)
                                                : lutra::stage_text(lutra::parse_graph(text), options));
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "lutra-opt: " << e.what() << "\n";
    return 1;
  }
}
