// The road as a table: each stage takes what those before it left of a compilation, and adds its own.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "jit/compile.h"
#include "jit/lower/lower.h"
#include "ops/core/closest.h"

namespace lutra {

// What there is of a compilation: a graph, what it is lowered to, then its plan, then its code.
struct Compilation {
  const CompileOptions& options;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Graph> captured{};      // once a pass has made another of it
  std::optional<LoweredGraph> lowered{};  // until it is scheduled
  Plan plan{};
  std::string decisions{};  // of fusion, where they are shown
  std::shared_ptr<Executable> executable{};
};

struct Stage {
  const char* name;
  void (*run)(Compilation&);                                  // null: it only shows what is there
  std::string (*text)(const Compilation&);                    // what a log of its name prints
  enum When : uint8_t { kAlways, kUnlessOff, kNative } when;  // kUnlessOff: may be switched off; kNative: no backend's
  bool for_eager;                                             // an eager op goes through it, too
};
extern const Stage kStages[];  // in the order they run
extern const size_t kStageCount;

bool goes_through(const Stage& stage, const CompileOptions& options);
// Runs the rows from `first` to `last`, verifies each graph on the way, and gives the text of the last.
std::string run_between(Compilation& c, const std::string& first, const std::string& last);

// Those that may be switched off.
KnownNames optional_stages();

}  // namespace lutra
