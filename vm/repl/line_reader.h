// Readers of input lines: a line editor on a terminal, or plain standard input.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lutra {

// Candidates that may replace the last `partial` bytes of the text before the cursor.
struct Completion {
  size_t partial = 0;
  std::vector<std::string> candidates;
};
using Completer = std::function<Completion(const std::string& before)>;

class LineReader {
 public:
  enum Result { kLine, kEnd, kInterrupt };
  virtual ~LineReader() = default;
  // Reads a line without its newline. A pasted block is one line with newlines inside.
  virtual Result read(const std::string& prompt, std::string* line) = 0;
  virtual void remember(const std::string&) {}  // adds an entry, perhaps of several lines, to the history
};

// Opens a reader that uses libedit, loaded at run time. Returns null if libedit is not installed or the terminal cannot
// move its cursor.
std::unique_ptr<LineReader> open_editline(Completer completer, const std::vector<std::string>& history);
std::unique_ptr<LineReader> open_plain();

}  // namespace lutra
