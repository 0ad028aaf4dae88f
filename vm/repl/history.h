// The history of the REPL: a file with one entry in each line, shared by sessions.
#pragma once
#include <string>
#include <vector>

namespace lutra {

// Returns $XDG_STATE_HOME/lutra/history or ~/.local/state/lutra/history; empty if there is no home directory.
std::string history_path();

// Invariants: only the user can access the file and its folder (0600, 0700). Each entry is appended by one write under
// a lock when it is entered, so that sessions do not lose each other's entries. A file with more than kMaxEntries is
// cut to its last half when it is read.
class History {
 public:
  explicit History(std::string path) : path_(std::move(path)) {}
  std::vector<std::string> load();
  void append(const std::string& entry);  // silently drops an entry that cannot be written

 private:
  std::string path_;
};

}  // namespace lutra
