// A misspelt name and the known ones in, the one that was meant out.
#pragma once
#include <string>
#include <string_view>

namespace lutra {

class Closest {
 public:
  explicit Closest(std::string_view name) : name_(name), least_(name.size() / 3 + 1) {}  // so far apart is another word
  void look(std::string_view known);
  const std::string& best() const { return best_; }  // empty where none is close
  std::string question() const;                      // the end of an error: "; did you mean 'dim'?", or ""

 private:
  std::string_view name_;
  size_t least_;
  std::string best_;
};

}  // namespace lutra
