// What the scheduler weighed, as lines of text: the candidate, what it saves, what it costs, taken or refused because.
#pragma once
#include <string>

#include "jit/device/cost.h"

namespace lutra {

// What compiling may take; no bit and no kernel's speed is judged by these.
namespace budget {
inline constexpr int kInstructions = 300;  // of a kernel that is fused: beyond, registers run out, and code takes 50 ms
inline constexpr size_t kPointers = 28;    // of the same
inline constexpr int kHopeless = 4;        // times kInstructions, by the sum of the units': not even tried
inline constexpr int32_t kUnits = 8192;    // that fusion sees at once: the order between groups is a bit a pair
inline constexpr int kPairs = 400;         // of unconnected groups that are tried
inline constexpr int kAttempts = 2;        // then every merge is tried
inline constexpr int kInlinedChain = 6, kJoinedChain = 24;  // units that are written into their reader
inline constexpr size_t kCutOperands = 3;              // large values that what is written into a cut reduction reads
inline constexpr int kViews = 64;                      // in a chain; longer ones are read from memory
inline constexpr size_t kBeside = 64, kFarthest = 64;  // kernels of one fork and join, and how far back one is sought
}  // namespace budget

std::string time_text(double seconds);
std::string bytes_text(double bytes);
std::string count_text(double n);

// Two kernels, or one that does the work of both.
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

// Lines are made only where somebody wants them.
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
