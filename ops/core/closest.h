// "Did you mean": finds the known name closest to a misspelt one, for the end of an error message.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "ops/core/small_vec.h"

namespace lutra {

class Closest {
 public:
  explicit Closest(std::string_view name) : name_(name), least_(name.size() / 3 + 1) {}  // more edits: another word
  void look(std::string_view known);
  const std::string& best() const { return best_; }  // empty where none is close
  std::string question() const;                      // "; did you mean 'dim'?", or ""

 private:
  std::string_view name_;
  size_t least_;
  std::string best_;
};

// The known names for an error about an unknown one.
class KnownNames {
 public:
  KnownNames(std::initializer_list<std::string_view> names = {}) : names_(names) {}
  void add(std::string_view name) { names_.push_back(name); }
  bool have(std::string_view name) const;
  std::string list() const;                           // "a, b, c"
  std::string question(std::string_view name) const;  // `question()` of the closest name
  std::string known(std::string_view name) const;     // " (known: a, b, c); did you mean 'b'?"
  std::string expected(std::string_view name) const;  // " (expected 'a', 'b' or 'c'); did you mean 'b'?"

 private:
  SmallVec<std::string_view, 8> names_;  // inline storage, because ops build it at each call
};

}  // namespace lutra
