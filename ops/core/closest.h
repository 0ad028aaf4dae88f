// A misspelt name and the known ones in, what an error that refuses it says at its end out.
#pragma once
#include <initializer_list>
#include <string>
#include <string_view>

#include "ops/core/small_vec.h"

namespace lutra {

class Closest {
 public:
  explicit Closest(std::string_view name) : name_(name), least_(name.size() / 3 + 1) {}  // so far apart is another word
  void look(std::string_view known);
  const std::string& best() const { return best_; }  // empty where none is close
  std::string question() const;                      // "; did you mean 'dim'?", or ""

 private:
  std::string_view name_;
  size_t least_;
  std::string best_;
};

// The names that are known where another one was given.
class KnownNames {
 public:
  KnownNames(std::initializer_list<std::string_view> names = {}) : names_(names) {}
  void add(std::string_view name) { names_.push_back(name); }
  bool have(std::string_view name) const;
  std::string list() const;                           // "a, b, c"
  std::string question(std::string_view name) const;  // that of the closest one
  std::string known(std::string_view name) const;     // " (known: a, b, c); did you mean 'b'?"
  std::string expected(std::string_view name) const;  // " (expected 'a', 'b' or 'c'); did you mean 'b'?"

 private:
  SmallVec<std::string_view, 8> names_;  // most errors of this kind are in ops, which build it at each call
};

}  // namespace lutra
