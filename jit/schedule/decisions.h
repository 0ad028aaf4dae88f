// The scheduler's decisions as lines of text: the candidate, what it saves, what it costs, and whether it was taken or
// why it was refused.
#pragma once
#include <string>

#include "jit/device/cost.h"

namespace lutra {

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
