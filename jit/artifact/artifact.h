// An artifact: a plan with the machine code of its kernels. It is a value: bytes that another process reads, links
// (jit/runtime/executable.h) and runs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/schedule/plan.h"

namespace lutra {

// The machine code of a plan's kernels. Each piece is stored once.
struct Codes {
  std::vector<std::string> images;
  std::vector<int32_t> of_launch;  // index in images; -1: no code, the kernel is compiled when the artifact is linked
  std::vector<Codes> functions;    // of the plan's functions
};

// A constant of the plan: one of the captured graph's constants, or a tensor that a pass made.
struct Constant {
  int32_t given = -1;  // index among the captured graph's constants; -1: a pass made it
  DType dtype = DType::kNone;
  std::vector<int64_t> sizes, strides;
  std::string bytes;  // from its first element to its last
};

// Returns codes without code: all kernels of the plan are compiled later.
Codes no_codes(const Plan& plan);

struct Artifact {
  Plan plan;
  Codes codes;
  std::vector<Constant> constants;  // one for each constant of the plan
};

// given: the constants of the captured graph.
std::vector<Constant> describe_constants(const std::vector<Tensor>& constants, const std::vector<Tensor>& given);
std::vector<Tensor> make_constants(const Artifact& artifact, const std::vector<Tensor>& given);

// Only the build of Lutra that wrote an artifact can read it. target: what its code is compiled for
// (Backend::target_key).
std::string write_artifact(const Plan& plan, const Codes& codes, const std::vector<Constant>& constants,
                           const std::string& target);
// Throws Error(kUser) if the bytes are not a valid artifact of this build for this target.
Artifact read_artifact(std::string_view bytes, const std::string& target);

// The same as JSON, for people and for other builds. It has kernels as loop IR without machine code; linking compiles
// them. Printing a parsed artifact gives the same text. Throws Error(kUser) with the place in the text that is wrong.
std::string print_artifact(const Plan& plan, const std::vector<Constant>& constants);
Artifact parse_artifact(const std::string& text);

// Returns "", or which reference within the plan is invalid: an index out of range, or an operand that comes later.
std::string verify(const Plan& plan);
// Throws Error(kUser) with what is wrong in the plan, the codes or the constants.
void check_artifact(const Artifact& artifact);
// Throws Error(kUser) if the artifact cannot be the code of the captured graph: it reads inputs that do not exist, or
// its results differ.
void check_serves(const Artifact& artifact, const Graph& graph);

}  // namespace lutra
