// The stages of the compiler as a table. Each stage reads the fields of a Compilation that earlier stages filled, and
// fills its own.
#pragma once
#include <memory>
#include <optional>
#include <string>

#include "jit/compile.h"
#include "jit/lower/lower.h"
#include "ops/core/closest.h"

namespace lutra {

// The state of a compilation: the graph, then its lowered form, then its plan, then its code.
struct Compilation {
  const CompileOptions& options;
  std::unique_ptr<Graph> graph;
  std::unique_ptr<Graph> captured{};      // the graph before the first pass; null until a pass has rewritten it
  std::optional<LoweredGraph> lowered{};  // set between lowering and scheduling
  Plan plan{};
  std::string decisions{};  // the decisions of fusion as text, if they are logged
  std::shared_ptr<Executable> executable{};
};

struct Stage {
  const char* name;
  void (*run)(Compilation&);                                  // null: the stage only prints
  std::string (*text)(const Compilation&);                    // the text that is logged under the stage's name
  enum When : uint8_t { kAlways, kUnlessOff, kNative } when;  // kUnlessOff: optional; kNative: not in eager backends
  bool for_eager;                                             // true: eager ops run this stage, too
};
extern const Stage kStages[];  // in the order they run
extern const size_t kStageCount;

bool goes_through(const Stage& stage, const CompileOptions& options);
// Runs the rows from `first` to `last`, verifies the graph after each, and returns the text of the last.
std::string run_between(Compilation& c, const std::string& first, const std::string& last);

// Returns the names of the stages that can be switched off.
KnownNames optional_stages();

}  // namespace lutra
