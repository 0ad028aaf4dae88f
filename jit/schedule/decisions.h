// The scheduler's decisions as lines of text: the candidate, what it saves, what it costs, and whether it was taken or
// why it was refused.
#pragma once
#include <string>

#include "jit/device/cost.h"

namespace lutra {

// Limits on the cost of compiling. They affect neither bits nor the choice of the faster kernel.
namespace budget {
inline constexpr int kInstructions = 300;  // of a fused kernel: with more, registers run out, and compiling takes 50 ms
inline constexpr size_t kPointers = 28;    // of a fused kernel
inline constexpr int kHopeless = 4;        // a merge is not tried if its units have this many times kInstructions
inline constexpr int32_t kUnits = 8192;    // units that fusion looks at at once: the order of groups takes a bit for
                                           // each pair of units
inline constexpr int kPairs = 400;         // pairs of unconnected groups that are tried
inline constexpr int kAttempts = 2;        // attempts with untried merges; after these, every merge is tried
inline constexpr int kInlinedChain = 6, kJoinedChain = 24;  // length of a chain of units that are inlined
inline constexpr size_t kCutOperands = 3;              // large values that an inlined operand of a split reduction may
                                                       // read
inline constexpr int kViews = 64;                      // in a chain; longer ones are read from memory
inline constexpr size_t kBeside = 64, kFarthest = 64;  // kernels in one fork and join; how many groups back one is
                                                       // sought
}  // namespace budget

std::string time_text(double seconds);
std::string bytes_text(double bytes);
std::string count_text(double n);

// The work of two kernels, and of one kernel that replaces both.
struct Score {
  Work a, b, both;
  double before, after;  // seconds
  Score(const Machine& machine, const Work& a, const Work& b, const Work& both)
      : a(a), b(b), both(both), before(seconds(machine, a) + seconds(machine, b)), after(seconds(machine, both)) {}
  double again() const { return both.additions - a.additions - b.additions; }
  double saved() const { return before - after; }
  bool gains() const { return saved() >= 0; }
  // "saves 8.0 MB, a launch; costs 1.0 M additions; 12.3 us, not 20.1 us"
  std::string text() const;
};

// Collects lines of text if the caller wants them.
class Decisions {
 public:
  explicit Decisions(std::string* text) : text_(text) {}
  bool wanted() const { return text_; }
  void add(const std::string& line) {
    if (text_) *text_ += line + "\n";
  }

 private:
  std::string* text_;
};

}  // namespace lutra
