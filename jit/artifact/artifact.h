// An artifact: a plan with the machine code of its kernels. It is a value: bytes that another process reads, links
// (jit/runtime/executable.h) and runs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "jit/graph/graph.h"
#include "jit/schedule/plan.h"

namespace lutra {

// Machine code of a plan's kernels, each piece once.
struct Codes {
  std::vector<std::string> images;
  std::vector<int32_t> of_launch;  // place in images; -1: there is none, the kernel is compiled when it is linked
  std::vector<Codes> functions;    // of the plan's
};

// What a constant of the plan is: one that the captured graph has, or a tensor that a pass made.
struct Constant {
  int32_t given = -1;  // place among the captured graph's; -1: a pass made it
  DType dtype = DType::kNone;
  std::vector<int64_t> sizes, strides;
  std::string bytes;  // from its first element to its last
};

// Of a plan whose kernels are all to be compiled.
Codes no_codes(const Plan& plan);

struct Artifact {
  Plan plan;
  Codes codes;
  std::vector<Constant> constants;  // one a place of the plan
};

// given: the constants of the captured graph.
std::vector<Constant> describe_constants(const std::vector<Tensor>& constants, const std::vector<Tensor>& given);
std::vector<Tensor> make_constants(const Artifact& artifact, const std::vector<Tensor>& given);

// Only the build of Lutra that wrote an artifact reads it. target: what its code is made for (Backend::target_key).
std::string write_artifact(const Plan& plan, const Codes& codes, const std::vector<Constant>& constants,
                           const std::string& target);
// Throws Error(kUser) where the bytes are no artifact of this build and for this target, or lie.
Artifact read_artifact(std::string_view bytes, const std::string& target);

// The same as JSON, for people and for other builds: kernels as loop IR, without machine code, which whoever links it
// compiles. Printing what was parsed gives the same text. Throws Error(kUser) that says where the text lies.
std::string print_artifact(const Plan& plan, const std::vector<Constant>& constants);
Artifact parse_artifact(const std::string& text);

// Empty, or what is wrong with what a plan says of itself: places that do not exist, operands that come later.
std::string verify(const Plan& plan);
// Throws Error(kUser) with what is wrong with plan, codes or constants.
void check_artifact(const Artifact& artifact);
// Throws Error(kUser) where the artifact cannot be the code of the captured graph: it reads inputs that there are not,
// or gives other results.
void check_serves(const Artifact& artifact, const Graph& graph);

}  // namespace lutra
