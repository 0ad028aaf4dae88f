// Limits on the time that the scheduler, and the compiler of its kernels, may take. They affect no bit of a result.
#pragma once
#include <cstddef>
#include <cstdint>

namespace lutra::compile_limits {

// Of a fused kernel. With more instructions registers run out, and compiling takes 50 ms.
inline constexpr int kInstructions = 300;
// The statements that are inlined into a fused kernel. Some become instructions that it has already.
inline constexpr size_t kInlinedStmts = 16 * kInstructions;
inline constexpr size_t kPointers = 28;
// A merge is not tried if its units have this many times kInstructions.
inline constexpr int kHopeless = 4;
// The units that fusion looks at at a time. The order of groups takes a bit for each pair of units.
inline constexpr int32_t kUnits = 8192;
// The pairs of unconnected groups that are tried.
inline constexpr int kPairs = 400;
// The attempts with untried merges. After these, every merge is tried.
inline constexpr int kAttempts = 2;
// The length of a chain of inlined units; kJoinedChain: if a join reads it.
inline constexpr int kInlinedChain = 6, kJoinedChain = 24;
// The large values that an inlined operand of a split reduction may read.
inline constexpr size_t kCutOperands = 3;
// The views in a chain. A value behind a longer chain is read from memory.
inline constexpr int kViews = 64;
// The kernels in one fork and join, and how many groups back such a group is sought.
inline constexpr size_t kBeside = 64, kFarthest = 64;

}  // namespace lutra::compile_limits
