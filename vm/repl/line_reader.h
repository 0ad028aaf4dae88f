// Lines of input: from an editor on a terminal, or plainly.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lutra {

// What may stand for the last `partial` bytes of the text before the cursor.
struct Completion {
  size_t partial = 0;
  std::vector<std::string> candidates;
};
using Completer = std::function<Completion(const std::string& before)>;

class LineReader {
 public:
  enum Result { kLine, kEnd, kInterrupt };
  virtual ~LineReader() = default;
  // A line without its end; what was pasted as a block is one line with ends inside.
  virtual Result read(const std::string& prompt, std::string* line) = 0;
  virtual void remember(const std::string&) {}  // an entry of the history, perhaps of several lines
};

// libedit, loaded when the program runs; null where it is not installed or the terminal cannot move its cursor.
std::unique_ptr<LineReader> open_editline(Completer completer, const std::vector<std::string>& history);
std::unique_ptr<LineReader> open_plain();

}  // namespace lutra
