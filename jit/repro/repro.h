// A repro: a captured graph with the inputs of one run, where compiled code and eager differed, as a file.
//
// Invariants:
// 1. A repro is one plain file: a header that people read, the graph's text, then the memory of the inputs. Memory that
//    inputs shared they share again.
// 2. A reader trusts nothing: what is damaged, of another version or lies is an error that says so.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "jit/compile.h"

namespace lutra {

struct Repro {
  std::string kind;    // "differs", "fails" (the compiler raised), "guard" (entered although a guard does not hold)
  std::string about;   // where the program has it
  std::string what;    // what was seen, a line
  std::string device;  // of the graph
  std::string isa;     // of the CPU's kernels
  std::vector<std::string> without;  // passes that were off
  std::string bugs;                  // LUTRA_INJECT
  std::string guards, graph;         // texts
  std::vector<Tensor> inputs;        // one a graph input, constants too; empty: the elements are not known
  std::vector<double> scalars;
  uint64_t seed = 0, next_call = 0;
};

// codec.cc
std::string write_repro(const Repro& repro);
Repro read_repro(const std::string& bytes);  // throws Error(kUser)

// store.cc
// The repro as a file of the folder `repro` in the cache directory, where the newest kMostRepros stay. How the file is
// called, or "(not written: why)".
constexpr size_t kMostRepros = 32;
std::string keep_repro(const Repro& repro);
Repro load_repro(const std::string& path);
void save_repro(const std::string& path, const Repro& repro);

// replay.cc
// What both sides do now.
struct Replay {
  std::string kind;  // "" (the same), "differs", "fails"
  std::string what;
};
// A graph that can run: inputs made, constants filled in. A run changes none of it.
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
// The smallest repro found that fails in the same way. Throws Error(kUser) where it does not fail.
Repro minify(const Repro& repro);
size_t ops_of(const Repro& repro);

// shadow.cc: what watches compiled segments.
struct ShadowCounts {
  uint64_t calls = 0, mismatches = 0, repros = 0;
};
// Of the process.
ShadowCounts shadow_counts();
// For CompileOptions: runs one of options.verify runs eagerly, too.
std::shared_ptr<Watch> watch_runs(std::unique_ptr<Graph> captured, const CompileOptions& options);
// For CompileOptions: keeps a graph that the compiler fails at; "\nrepro: FILE" in answer.
std::string keep_failure(const Graph& captured, const std::string& what, const CompileOptions& options);
// Tells of an entry that was run although a guard of it does not hold, and keeps a repro of it.
void report_guard(const std::string& about, const std::string& what, const std::string& guards,
                  const std::string& graph);

}  // namespace lutra
