// A repro: a file with a captured graph and the inputs of one run in which compiled code and eager differed.
//
// Invariants:
// 1. A repro is one plain file: a header for people, the graph's text, then the memory of the inputs. Inputs that
//    shared memory share it again.
// 2. A reader trusts nothing: a damaged or invalid file, or one of another version, is an error that says so.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/compile.h"

namespace lutra {

struct Repro {
  std::string kind;    // "differs", "fails" (the compiler threw), "guard" (entered although a guard does not hold)
  std::string about;   // the place in the program
  std::string what;    // what was observed, one line
  std::string device;  // of the graph
  std::string isa;     // of the CPU's kernels
  std::vector<std::string> without;  // disabled passes
  std::string bugs;                  // LUTRA_INJECT
  std::string guards, graph;         // as text
  std::vector<Tensor> inputs;        // one for each graph input, constants included; empty: the elements are not known
  std::vector<double> scalars;
  uint64_t seed = 0, next_call = 0;
};

// codec.cc
std::string write_repro(const Repro& repro);
Repro read_repro(const std::string& bytes);  // throws Error(kUser)

// store.cc
// Stores the repro in the folder `repro` of the cache directory, which keeps the newest kMaxRepros. Returns the file's
// name, or "(not written: why)".
constexpr size_t kMaxRepros = 32;
std::string keep_repro(const Repro& repro);
Repro load_repro(const std::string& path);
void save_repro(const std::string& path, const Repro& repro);

// replay.cc
// The outcome of running both sides again.
struct Replay {
  std::string kind;  // "" (the same), "differs", "fails"
  std::string what;
};
// A graph that can run, with inputs and constants. A run does not change them.
struct Runnable {
  std::unique_ptr<Graph> graph;
  std::vector<Tensor> inputs;  // without constants
  std::vector<double> scalars;
  uint64_t seed = 0, next_call = 0;
  std::vector<std::string> without;
  Device device;  // of the graph
};
Runnable runnable(const Repro& repro);
Replay replay(const Runnable& run);
Replay replay(const Repro& repro);

// minify.cc
// Returns the smallest repro found that fails in the same way. Throws Error(kUser) if the repro does not fail.
Repro minify(const Repro& repro);
size_t ops_of(const Repro& repro);

// shadow.cc: watches compiled segments.
struct ShadowCounts {
  uint64_t calls = 0, mismatches = 0, repros = 0;
};
// Returns the counts of the process.
ShadowCounts shadow_counts();
// For CompileOptions: makes a watch that runs one of options.verify runs eagerly, too.
std::shared_ptr<Watch> watch_runs(std::unique_ptr<Graph> captured, const CompileOptions& options);
// For CompileOptions: keeps a repro of a graph that the compiler fails on. Returns "\nrepro: FILE".
std::string keep_failure(const Graph& captured, const std::string& what, const CompileOptions& options);
// Reports an entry that was run although one of its guards does not hold, and keeps a repro of it.
void report_guard(const std::string& about, const std::string& what, const std::string& guards,
                  const std::string& graph);

}  // namespace lutra
