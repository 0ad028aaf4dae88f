// Graph text in, text of a later stage out: for reading and testing the compiler without Lua.
//
//   lutra-opt [--pass NAME]... [--stage graph|schedule|loop|artifact|asm] [--isa ISA] FILE|-
//
// --pass runs the named passes in the order given; without it, stages after "graph" run all of them.
#include <fstream>
#include <iostream>
#include <iterator>

#include "jit/compile.h"
#include "jit/passes/passes.h"
#include "jit/runtime/config.h"
#include "jit/schedule/schedule.h"
#include "ops/core/closest.h"

namespace lutra {
namespace {

struct Options {
  std::vector<std::string> passes;
  std::string stage = "graph", file;
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
    } else if (arg == "--isa") {
      runtime_config().isa = value(i);
    } else if (o.file.empty() && (arg == "-" || arg[0] != '-')) {
      o.file = arg;
    } else {
      fail("usage: lutra-opt [--pass NAME]... [--stage graph|schedule|loop|artifact|asm] [--isa ISA] FILE|-");
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

std::string stage_text(GraphPtr graph, const Options& o) {
  for (const std::string& pass : o.passes) graph = run_pass(pass, std::move(graph));
  if (o.stage == "graph") return print(*graph);
  if (!o.passes.empty()) {
    Plan plan = schedule(*graph);
    if (o.stage == "schedule") return print(plan);
    if (o.stage == "loop") return loops_text(plan);
    if (o.stage == "artifact") return print_artifact(plan, describe_constants(constants_of(*graph), {}));
    if (o.stage == "asm") return Executable::build(std::move(plan), constants_of(*graph), true)->listings();
  } else if (o.stage == "artifact") {
    const std::vector<Tensor> given = constants_of(*graph);
    const auto made = compile_graph(std::move(graph)).executable;
    return print_artifact(made->plan(), describe_constants(made->constants(), given));
  } else if (o.stage == "schedule" || o.stage == "loop" || o.stage == "asm") {
    std::string result;
    CompileOptions options;
    options.wanted = [&](const char* stage) { return stage == o.stage; };
    options.log = [&](const char*, const std::string& text) { result = text; };
    compile_graph(std::move(graph), options);
    return result;
  }
  fail("unknown stage '", o.stage, "'", KnownNames{"graph", "schedule", "loop", "artifact", "asm"}.known(o.stage));
}

}  // namespace
}  // namespace lutra

int main(int argc, char** argv) {
  try {
    const lutra::Options options = lutra::parse_options(argc, argv);
    const std::string text = lutra::read_all(options.file);
    const bool artifact = text.starts_with("{");
    std::cout << (artifact ? lutra::artifact_stage(text, options)
                           : lutra::stage_text(lutra::parse_graph(text), options));
    return 0;
  } catch (const std::exception& e) {
    std::cerr << "lutra-opt: " << e.what() << "\n";
    return 1;
  }
}
