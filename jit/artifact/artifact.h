// An artifact: a plan with the machine code of its kernels. It is a value: bytes that another process reads, links
// (jit/runtime/executable.h) and runs.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "jit/schedule/plan.h"

namespace lutra {

// Machine code of a plan's kernels, each piece once.
struct Codes {
  std::vector<std::string> images;
  std::vector<int32_t> of_launch;  // place in images; -1: there is none, the kernel is compiled when it is linked
};

struct Artifact {
  Plan plan;
  Codes codes;
};

// Only the build of Lutra that wrote an artifact reads it.
std::string write_artifact(const Plan& plan, const Codes& codes);
// Throws Error(kUser) where the bytes are no artifact of this build, or lie.
Artifact read_artifact(std::string_view bytes);

// Empty, or what is wrong with what a plan says of itself: places that do not exist, operands that come later.
std::string verify(const Plan& plan);

}  // namespace lutra
