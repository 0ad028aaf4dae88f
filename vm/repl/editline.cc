// The line editor of the REPL on a terminal, by libedit. Invariants:
// 1. Keys are read here, one byte at a time. SIGINT is unblocked only while waiting, so Control-C at the prompt is
//    never lost and always clears the line.
// 2. libedit controls the terminal only within read(); the user's program prints and reads between the calls. If the
//    process dies within read(), a signal handler restores the terminal.
// 3. A bracketed paste becomes part of the line with its line ends; if it ends with one, the line is entered.
#include <dlfcn.h>
#include <histedit.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cwchar>

#include "vm/repl/interrupt.h"
#include "vm/repl/line_reader.h"

namespace lutra {
namespace {

constexpr char kPasteOn[] = "\033[?2004h", kPasteOff[] = "\033[?2004l";
constexpr char kPasteEnd[] = "\033[201~";
constexpr size_t kMaxShown = 120;

// clang-format off
#define LUTRA_EDITLINE(X)                                                                              \
  X(el_init) X(el_end) X(el_gets) X(el_set) X(el_wset) X(el_get) X(el_line) X(el_insertstr) X(el_push) \
  X(el_resize) X(el_source) X(history_init) X(history_end) X(history)
// clang-format on

// libedit's functions, by their names in the header.
struct Api {
#define X(name) decltype(&::name) name = nullptr;
  LUTRA_EDITLINE(X)
#undef X
  bool load() {
    void* library = dlopen("libedit.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
    bool all = true;
#define X(name) name = reinterpret_cast<decltype(name)>(dlsym(library, #name)), all = all && name;
    LUTRA_EDITLINE(X)
#undef X
    return all;
  }
};
Api api;

// -- the terminal after a crash

termios saved_terminal;
volatile sig_atomic_t resized = 0;

void give_terminal_back(int number) {
  tcsetattr(0, TCSANOW, &saved_terminal);
  if (write(1, kPasteOff, sizeof kPasteOff - 1) < 0) number += 0;
  raise(number);  // runs the default action, since the handler was installed for one signal
}

void on_resize(int) { resized = 1; }

void set_handler(int number, void (*handler)(int), int flags) {
  struct sigaction old, action = {};
  action.sa_handler = handler, action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_DFL) sigaction(number, &action, nullptr);
}

const int kDeadly[] = {SIGTERM, SIGHUP, SIGQUIT, SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL};

// -- the editor

class Editline : public LineReader {
 public:
  Editline(Completer completer, const std::vector<std::string>& history) : completer_(std::move(completer)) {
    el_ = api.el_init("lutra", stdin, stdout, stderr);
    history_ = api.history_init();
    HistEvent event;
    api.history(history_, &event, H_SETSIZE, 20000);
    api.history(history_, &event, H_SETUNIQUE, 1);
    for (const std::string& entry : history) remember(entry);
    api.el_set(el_, EL_CLIENTDATA, this);
    api.el_set(el_, EL_PROMPT, &Editline::prompt);
    api.el_set(el_, EL_EDITOR, "emacs");
    api.el_set(el_, EL_HIST, api.history, history_);
    api.el_wset(el_, EL_GETCFN, &Editline::get_key);
    api.el_set(el_, EL_ADDFN, "lutra-complete", "completes names", &Editline::complete);
    api.el_set(el_, EL_ADDFN, "lutra-paste", "reads a pasted block", &Editline::paste);
    for (const auto& [key, name] : {std::pair{"^I", "lutra-complete"},
                                    {"\033[200~", "lutra-paste"},
                                    {"^R", "em-inc-search-prev"},
                                    {"\033[3~", "ed-delete-next-char"},
                                    {"\033[1;5D", "ed-prev-word"},
                                    {"\033[1;5C", "em-next-word"},
                                    {"\033[H", "ed-move-to-beg"},
                                    {"\033[F", "ed-move-to-end"}}) {
      api.el_set(el_, EL_BIND, key, name, nullptr);
    }
    api.el_source(el_, nullptr);
    for (int number : kDeadly) set_handler(number, give_terminal_back, int(SA_RESETHAND | SA_NODEFER));
    set_handler(SIGWINCH, on_resize, SA_ONSTACK);
    set_handler(SIGCONT, on_resize, SA_RESTART | SA_ONSTACK);
  }
  ~Editline() override {
    api.history_end(history_);
    api.el_end(el_);
  }

  Result read(const std::string& prompt, std::string* line) override {
    prompt_ = prompt;
    interrupted_ = false;
    line->clear();
    tcgetattr(0, &saved_terminal);
    show(kPasteOn);
    sigset_t interrupt, before;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, &before);
    int count = 0;
    const char* text = api.el_gets(el_, &count);
    sigprocmask(SIG_SETMASK, &before, nullptr);
    show(kPasteOff);
    if (interrupted_ || take_interrupt()) {
      show("^C\n");
      return kInterrupt;
    }
    if (!text || count <= 0) return kEnd;
    line->assign(text, size_t(count));
    if (!line->empty() && line->back() == '\n') line->pop_back();
    return kLine;
  }

  void remember(const std::string& entry) override {
    HistEvent event;
    api.history(history_, &event, H_ENTER, entry.c_str());
  }

 private:
  static Editline& self(EditLine* el) {
    void* data = nullptr;
    api.el_get(el, EL_CLIENTDATA, &data);
    return *static_cast<Editline*>(data);
  }
  static char* prompt(EditLine* el) { return self(el).prompt_.data(); }
  static int get_key(EditLine* el, wchar_t* out) { return self(el).next_key(out); }
  static unsigned char complete(EditLine* el, int) { return self(el).complete_line(); }
  static unsigned char paste(EditLine* el, int) { return self(el).paste_block(); }

  static void show(const char* text) {
    std::fputs(text, stdout);
    std::fflush(stdout);
  }

  // Reads a byte. Returns 1, 0 at the end of the input, or -1 after Control-C.
  int next_byte(char* out) {
    sigset_t waiting;
    sigprocmask(SIG_SETMASK, nullptr, &waiting);
    sigdelset(&waiting, SIGINT);
    for (;;) {
      pollfd input{0, POLLIN, 0};
      const int ready = ppoll(&input, 1, nullptr, &waiting);
      if (take_interrupt()) {
        interrupted_ = true;
        return -1;
      }
      if (resized) redraw();
      if (ready <= 0) continue;
      const ssize_t n = ::read(0, out, 1);
      if (n >= 0) return int(n);
      if (errno != EINTR && errno != EAGAIN) return 0;
    }
  }

  // Redraws the line after the window was resized, or after the process was stopped and continued.
  void redraw() {
    resized = 0;
    api.el_resize(el_);
    api.el_set(el_, EL_PREP_TERM, 1);
    api.el_set(el_, EL_REFRESH);
  }

  int next_key(wchar_t* out) {
    std::mbstate_t state = {};
    for (int i = 0; i < 8; i++) {
      char byte = 0;
      const int got = next_byte(&byte);
      if (got <= 0) return got;
      const size_t n = std::mbrtowc(out, &byte, 1, &state);
      if (n == size_t(-2)) continue;
      if (n == size_t(-1)) {  // not a character in this encoding
        *out = L'?';
        return 1;
      }
      if (n == 0) *out = 0;
      return 1;
    }
    *out = L'?';
    return 1;
  }

  std::string before_cursor() {
    const LineInfo* info = api.el_line(el_);
    return {info->buffer, size_t(info->cursor - info->buffer)};
  }

  unsigned char complete_line() {
    const std::string before = before_cursor();
    const size_t start = before.rfind('\n') + 1;
    if (before.find_first_not_of(" \t", start) == std::string::npos) {  // indentation
      api.el_insertstr(el_, "  ");
      return CC_REFRESH;
    }
    Completion found = completer_(before);
    if (found.candidates.empty()) return CC_REFRESH_BEEP;
    std::string common = found.candidates[0];
    for (const std::string& c : found.candidates) {
      size_t n = 0;
      while (n < common.size() && n < c.size() && common[n] == c[n]) n++;
      common.resize(n);
    }
    while (!common.empty() && (common.size() < found.candidates[0].size()) &&
           (found.candidates[0][common.size()] & 0xC0) == 0x80) {
      common.pop_back();  // do not split a character
    }
    if (common.size() > found.partial) {
      api.el_insertstr(el_, common.c_str() + found.partial);
      return CC_REDISPLAY;  // redraws the whole line, so that the output contains the whole word
    }
    if (found.candidates.size() == 1) return CC_REFRESH;
    list(found.candidates);
    return CC_REDISPLAY;
  }

  static void list(const std::vector<std::string>& names) {
    winsize size = {};
    const size_t width = ioctl(1, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    const size_t count = std::min(names.size(), kMaxShown);
    size_t longest = 0;
    for (size_t i = 0; i < count; i++) longest = std::max(longest, names[i].size());
    const size_t columns = std::max<size_t>(1, width / (longest + 2)), rows = (count + columns - 1) / columns;
    std::fputs("\n", stdout);
    for (size_t r = 0; r < rows; r++) {
      for (size_t i = r; i < count; i += rows) {
        const int pad = i + rows < count ? int(longest + 2) : 0;
        std::fprintf(stdout, "%-*s", pad, names[i].c_str());
      }
      std::fputs("\n", stdout);
    }
    if (names.size() > count) std::fprintf(stdout, "... and %zu more\n", names.size() - count);
    std::fflush(stdout);
  }

  unsigned char paste_block() {
    std::string text;
    const size_t n = sizeof kPasteEnd - 1;
    for (char byte = 0; text.size() < n || text.compare(text.size() - n, n, kPasteEnd) != 0;) {
      if (next_byte(&byte) <= 0) return CC_EOF;
      text += byte;
    }
    text.resize(text.size() - n);
    std::string clean;
    for (size_t i = 0; i < text.size(); i++) {
      const auto c = static_cast<unsigned char>(text[i]);
      if (c == '\n' && i > 0 && text[i - 1] == '\r') continue;
      if (c == '\r') clean += '\n';
      if (c == '\t') clean += "  ";
      if (c == '\n' || (c >= 32 && c != 127)) clean += char(c);
    }
    const bool enter = !clean.empty() && clean.back() == '\n';
    while (!clean.empty() && clean.back() == '\n') clean.pop_back();
    if (!clean.empty()) api.el_insertstr(el_, clean.c_str());
    if (enter) api.el_push(el_, "\n");
    return CC_REFRESH;
  }

  Completer completer_;
  EditLine* el_;
  ::History* history_;
  std::string prompt_;
  bool interrupted_ = false;
};

bool terminal_can_edit() {
  const char* term = std::getenv("TERM");
  return isatty(0) && isatty(1) && term && *term && std::strcmp(term, "dumb") != 0;
}

}  // namespace

std::unique_ptr<LineReader> open_editline(Completer completer, const std::vector<std::string>& history) {
  if (!terminal_can_edit() || !api.load()) return nullptr;
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  return std::make_unique<Editline>(std::move(completer), history);
}

}  // namespace lutra
