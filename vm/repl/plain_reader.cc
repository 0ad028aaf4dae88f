// Reads lines from standard input without editing.
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "vm/repl/interrupt.h"
#include "vm/repl/line_reader.h"

namespace lutra {
namespace {

class PlainReader : public LineReader {
 public:
  Result read(const std::string& prompt, std::string* line) override {
    std::fputs(prompt.c_str(), stdout);
    std::fflush(stdout);
    line->clear();
    for (;;) {
      const int c = std::getchar();
      if (c == '\n') return kLine;
      if (c != EOF) {
        line->push_back(char(c));
        continue;
      }
      const bool signal = std::ferror(stdin) && errno == EINTR;
      std::clearerr(stdin);
      if (signal && take_interrupt()) return kInterrupt;
      if (!signal) return line->empty() ? kEnd : kLine;
    }
  }
};

}  // namespace

std::unique_ptr<LineReader> open_plain() { return std::make_unique<PlainReader>(); }

}  // namespace lutra
