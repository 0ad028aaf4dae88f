// Prints a later stage of a graph, a lowered graph or an artifact, given as text. It reads and tests the compiler
// without Lua.
//
//   lutra-opt [--stage STAGE] [--pass NAME]... [--without NAME]... [--device cpu|cuda] [--isa ISA] FILE|-
//
// STAGE is a row of jit/stages.cc (graph, a pass, lower, schedule, fusion, loop, asm), mapping or artifact.
//
// It runs the stages as LUTRA_LOGS shows them, up to STAGE, except those named by --without. --pass runs only the named
// passes, in the given order, then the stages after the passes up to STAGE. fusion prints what the scheduler weighed,
// mapping how each kernel is mapped to a GPU. Choices are made for a stated machine, so cuda needs no GPU. Compiled
// code is neither read from the disk cache nor stored in it.
#include <fstream>
#include <iostream>
#include <iterator>

#include "jit/device/backend.h"
#include "jit/graph/text.h"
#include "jit/passes/passes.h"
#include "jit/stages.h"
#include "ops/core/settings.h"

namespace lutra {
namespace {

struct Options {
  std::vector<std::string> passes, without;
  std::string stage = "graph", file;
  std::optional<Device> device;  // none: the text's device
};

KnownNames stages() {
  KnownNames names;
  for (size_t i = 0; i < kStageCount; i++) {
    if (kStages[i].text) names.add(kStages[i].name);
  }
  names.add("mapping");
  names.add("artifact");
  return names;
}

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
    } else if (arg == "--without") {
      o.without.push_back(value(i));
    } else if (arg == "--stage") {
      o.stage = value(i);
    } else if (arg == "--device") {
      o.device = parse_device(value(i));
    } else if (arg == "--isa") {
      settings().isa = value(i);
    } else if (o.file.empty() && (arg == "-" || arg[0] != '-')) {
      o.file = arg;
    } else {
      fail("usage: lutra-opt [--stage STAGE] [--pass NAME]... [--without NAME]... [--device cpu|cuda] [--isa ISA] ",
           "FILE|-; STAGE is one of ", stages().list());
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

// Prints a stage of an artifact's text.
std::string artifact_stage(const std::string& text, const Options& o) {
  const Artifact a = parse_artifact(text);
  if (!o.passes.empty()) fail("an artifact goes through no pass");
  if (o.stage == "graph" || o.stage == "artifact") return print_artifact(a.plan, a.constants);
  if (o.stage == "schedule") return print(a.plan);
  if (o.stage == "loop") return loops_text(a.plan);
  fail("unknown stage of an artifact '", o.stage, "'", KnownNames{"artifact", "schedule", "loop"}.known(o.stage));
}

// Prints a stage of a lowered graph's text.
std::string lowered_stage(const std::string& text, const Options& o) {
  if (!o.passes.empty() || (o.stage != "graph" && o.stage != "lower")) fail("a lowered graph is only read and printed");
  const ParsedLowering p = parse_lowered(text);
  return print(*p.graph, p.lowered);
}

KnownNames passes() {
  KnownNames names;
  for (size_t i = 0; i < kPassCount; i++) names.add(kPasses[i].name);
  return names;
}

std::string mappings_text(const Plan& plan) {
  std::string text;
  for (const Launch& l : plan.launches) {
    const auto* k = std::get_if<KernelLaunch>(&l);
    if (!k) continue;
    std::vector<int64_t> hints;
    for (ExprId e : k->ints) hints.push_back(plan.exprs[size_t(e)].i);
    text += backend_of(plan.device).mapping(k->kernel, hints);
  }
  for (const Plan& function : plan.functions) text += mappings_text(function);
  return text;
}

std::string stage_text(GraphPtr graph, const Options& o) {
  if (!stages().have(o.stage)) fail("unknown stage '", o.stage, "'", stages().known(o.stage));
  const auto check = [](const std::vector<std::string>& names, const KnownNames& known, const char* what) {
    for (const std::string& name : names) {
      if (!known.have(name)) fail(what, " '", name, "'", known.known(name));
    }
  };
  check(o.passes, passes(), "unknown pass");
  check(o.without, optional_stages(), "no pass that may be left out:");
  if (o.device) move_to(*graph, *o.device);
  const std::vector<Tensor> given = constants_of(*graph);
  const bool of_plan = o.stage == "mapping" || o.stage == "artifact";
  CompileOptions options;
  options.stated_machine = true;
  options.disabled_passes = o.without;
  options.wanted = [&](const char* stage) { return o.stage == stage; };
  options.log = [](const char*, const std::string&) {};
  Compilation c{options, std::move(graph)};
  std::string first = "graph", text;
  for (const std::string& pass : o.passes) text = run_between(c, pass, pass), first = "lower";
  const bool ends = !o.passes.empty() && o.stage == "graph";
  if (!ends) text = run_between(c, first, of_plan ? "schedule" : o.stage);
  if (o.stage == "mapping") return mappings_text(c.plan);
  if (o.stage == "artifact") return print_artifact(c.plan, describe_constants(constants_of(*c.graph), given));
  return text;
}

}  // namespace
}  // namespace lutra

int main(int argc, char** argv) {
  try {
    lutra::settings().cache = lutra::CacheMode::kOff;
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
