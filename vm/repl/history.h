// The history of the REPL: a file of one entry a line, shared by sessions.
#pragma once
#include <string>
#include <vector>

namespace lutra {

// $XDG_STATE_HOME/lutra/history or ~/.local/state/lutra/history; empty where there is no home.
std::string history_path();

// Invariants: the file and its folder are the user's alone (0600, 0700); each entry is appended by one write under a
// lock as it is entered, so that sessions do not lose each other's; a file of more than kMostEntries is cut to its last
// half when it is read.
class History {
 public:
  explicit History(std::string path) : path_(std::move(path)) {}
  std::vector<std::string> load();
  void append(const std::string& entry);  // what cannot be written is forgotten, without a word

 private:
  std::string path_;
};

}  // namespace lutra
