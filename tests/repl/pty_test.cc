// Tests the REPL as a user sees it: runs `lutra` on a pseudo-terminal, sends keys and checks the screen.
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>

namespace {

namespace fs = std::filesystem;

std::string program() { return (fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lutra").string(); }

void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// A folder that goes with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("lutra-repl-" + std::to_string(getpid()) + "-" + std::to_string(made++));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  static inline int made = 0;
};

class Terminal {
 public:
  explicit Terminal(const fs::path& home, const char* term = "xterm") {
    winsize size{24, 80, 0, 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      setenv("TERM", term, 1);
      setenv("HOME", home.c_str(), 1);
      setenv("XDG_STATE_HOME", (home / "state").c_str(), 1);
      setenv("LC_ALL", "C.UTF-8", 1);
      if (chdir(home.c_str()) != 0) _exit(126);
      execl(program().c_str(), "lutra", nullptr);
      _exit(127);
    }
    expect("> ");
  }
  ~Terminal() {
    if (pid_ > 0) kill(pid_, SIGKILL), waitpid(pid_, nullptr, 0);
    close(fd_);
  }

  void send(const std::string& keys) { REQUIRE(write(fd_, keys.data(), keys.size()) == ssize_t(keys.size())); }
  // Waits until the text is seen, and forgets what came before it.
  void expect(const std::string& text, double seconds = 20) {
    INFO("waiting for: " << text);
    const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      const std::string seen = plain(raw_);
      const size_t at = seen.find(text);
      if (at != std::string::npos) {
        last_ = seen.substr(0, at + text.size());
        raw_ = seen.substr(at + text.size());
        return;
      }
      INFO("seen: " << seen);
      REQUIRE(std::chrono::steady_clock::now() < until);
      REQUIRE(receive(100));
    }
  }
  // A line, and the prompt after it.
  void line(const std::string& text, const std::string& answer, const std::string& prompt = "\r\n> ") {
    send(text + "\n");
    expect(text + "\r\n" + answer + prompt);
  }
  int wait_for_exit() {
    int status = 0;
    for (int i = 0; i < 1000; i++) {
      if (!receive(20)) pause(20);
      if (waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = 0;
        return status;
      }
    }
    FAIL("lutra does not leave");
    return -1;
  }
  bool line_mode() const {
    termios t;
    REQUIRE(tcgetattr(fd_, &t) == 0);
    return (t.c_lflag & (ICANON | ECHO)) == (ICANON | ECHO);
  }
  pid_t pid() const { return pid_; }
  const std::string& last() const { return last_; }

 private:
  bool receive(int milliseconds) {
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, milliseconds) <= 0) return true;
    char buffer[4096];
    const ssize_t n = read(fd_, buffer, sizeof buffer);
    if (n <= 0) return false;
    raw_.append(buffer, size_t(n));
    return true;
  }

  // Without what moves cursors and sets modes.
  static std::string plain(const std::string& raw) {
    std::string out;
    for (size_t i = 0; i < raw.size(); i++) {
      if (raw[i] != '\033') {
        out += raw[i];
      } else if (i + 1 < raw.size() && raw[i + 1] == '[') {
        for (i += 2; i < raw.size() && !(raw[i] >= '@' && raw[i] <= '~');) i++;
      }
    }
    return out;
  }

  int fd_ = -1;
  pid_t pid_ = 0;
  std::string raw_, last_;
};

std::string read_file(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace

TEST_CASE("repl: expressions, blocks, errors, the end") {
  Folder home;
  Terminal t(home.path);
  t.line("1 + 1", "2");
  t.line("_ * 21", "42");
  t.line("= 3", "3");
  t.line("x = lt.ones(2)", "", "> ");
  t.line("x, 'two'", "tensor([1., 1.])\t\"two\"");
  t.line("{1, {a = {b = {c = {d = 1}}}}, 'x'}", "{1, {a = {b = {c = {...}}}}, \"x\"}");
  t.line("t = {} t.t = t", "", "> ");
  t.line("t", "{t = <the table itself, 1 up>}");
  t.line("for i = 1, 2 do", "", ">> ");
  t.line("print(i)", "", ">> ");
  t.line("end", "1\r\n2");
  t.line("{1,", "", ">> ");
  t.line("2}", "{1, 2}");
  t.line("error('bad')", "stdin:1: bad\r\nstack traceback:", "");
  t.expect("> ");
  t.line("x = = 1", "stdin:1: unexpected symbol near '='");
  t.line("io.write('abc') return", "abc");
  t.line("return 5, nil", "5\tnil");
  t.line("do return end", "", "> ");
  t.line("2 ^ 53, 0.5, -1", "9007199254740992\t0.5\t-1");
  t.line("lt", "Lutra ", "");
  t.expect("help(lt) lists what it has\r\n> ");
  t.line("'open", "stdin:1: unfinished string near ''open'");
  t.line("[[long", "", ">> ");
  t.line("]]", "\"long\\n\"");
  t.line("x;", "", "> ");
  t.line("{setmetatable({}, {__tostring = error})}", "{<a table whose __tostring fails>}");
  t.line("lt.config.recompile_limit", "8");
  t.line("lt.config", "{", "");
  t.expect("recompile_limit = 8");
  t.expect("\r\n> ");
  t.line("s = ('long'):rep(16) many = {}", "", "> ");
  t.line("for i = 1, 50 do many['k' .. i] = {s, s, s, s} end", "", "> ");
  t.line("many", "{", "");
  t.expect(" more lines\r\n> ");
  t.line("exit", "exit() or Control-D leaves");
  t.line("local y, z = 41", "", "> ");  // locals stay, as in a program that is entered line by line
  t.line("y + 1, z", "42\tnil");
  t.line("local function twice(f)", "", ">> ");
  t.line("return 2 * f", "", ">> ");
  t.line("end", "", "> ");
  t.line("local a = y; do local hidden = 1 end", "", "> ");
  t.line("twice(a), hidden", "82\tnil");
  t.line("local print = 1", "(print stays Lua's own: the local ends with its input)");
  t.line("print(2)", "2");
  t.line("local b = 3 return b", "3");
  t.line("help(lt.matmul)", "The product of matrices or vectors", "");
  t.expect("lt.matmul(input, other, *, out=nil)\r\n");
  t.expect("also a method: x:matmul(...)");
  t.line("help()", "Lutra is a tensor language", "");
  t.expect("\r\n> ");  // a Control-D before the prompt would meet the terminal in line mode
  pause(100);
  t.send("\004");
  const int status = t.wait_for_exit();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}

TEST_CASE("repl: what errors and freed tensors show") {
  Folder home;
  Terminal t(home.path);
  const std::string traceback = "\r\nstack traceback:\r\n\t[C]: in function 'error'\r\n\tstdin:1: in main chunk";
  t.line("error()", "error: nil" + traceback);
  t.line("error({code = 3})", "error: {code = 3}" + traceback);
  t.line("error(setmetatable({}, {__tostring = function() return 'a text' end}))", "a text" + traceback);
  t.line("error(setmetatable({}, {__tostring = function() return {} end}))",
         "an object whose __tostring fails: {}" + traceback);
  t.line("x = lt.ones(9) x:free()", "", "> ");
  t.line("x", "tensor(<freed>)");
  t.line("{x}", "{tensor(<freed>)}");
  t.line("help(lt.exp)", "e to the power of each element.\r\nlt.exp(input, *, out=nil)\r\n", "");
  t.expect("> ");
  t.line("help(lt.exp_)", "e to the power of each element.\r\nlt.exp_(input)\r\n", "");
  t.expect("> ");
}

TEST_CASE("repl: completion") {
  Folder home;
  std::ofstream(home.path / "weights.npy") << "x";
  Terminal t(home.path);
  t.line("x = lt.ones(2, 3)", "", "> ");
  t.line("long_name = {inner = {field_one = 7}}", "", "> ");
  const std::map<std::string, std::string> cases = {
      {"long_n\t.inn\t.fie\t", "7"},       // globals and fields
      {"x:numé\010e\t()", "6"},            // a method
      {"x:sum{ke\t=true}:dim()", "2"},     // a keyword
      {"lt.sum(x, {di\t=0}):dim()", "1"},  // and in a trailing table
      {"lt.nn.LayerNorm(3, {elementwise_aff\t=false}).weight", "nil"},
      {"lt.config.recompile_l\t", "8"},
      {"lt.nn.Conv2d(3, 4, 3, {padd\t=1}).padding[1]", "1"},
      {"type(lt.compile(function() end, {fullg\t=true}))", "\"function\""},
      {"#'weigh\t'", "11"},  // a file
  };
  for (const auto& [keys, answer] : cases) {
    INFO(keys);
    t.send(keys);
    pause(150);
    t.send("\n");
    t.expect("\r\n" + answer + "\r\n> ");
  }
  t.send("x:masked\t\t");
  t.expect("masked_fill");
  t.send("\003");
  t.expect("^C\r\n> ");
  t.send("if true then\n");
  t.expect(">> ");
  t.send("\tprint(x:nume\t())\n");  // a tab that indents
  t.expect(">> ");
  t.line("end", "6");
}

TEST_CASE("repl: history is kept, shared and private") {
  Folder home;
  const fs::path file = home.path / "state/lutra/history";
  {
    Terminal a(home.path), b(home.path);
    a.line("'from a'", "\"from a\"");
    b.line("'from b'", "\"from b\"");
    a.send("for i = 1, 1 do\nprint('block \\\\ of a')\nend\n");
    a.expect("block \\ of a\r\n> ");
    a.send("\033[A\033[A\n");
    a.expect("\"from a\"\r\n> ");
    struct stat s;
    REQUIRE(stat(file.c_str(), &s) == 0);
    CHECK((s.st_mode & 0777) == 0600);
  }
  CHECK(read_file(file) == "'from a'\n'from b'\nfor i = 1, 1 do\\nprint('block \\\\\\\\ of a')\\nend\n'from a'\n");
  Terminal c(home.path);
  c.send("\033[A\033[A\n");
  c.expect("block \\ of a\r\n> ");
}

TEST_CASE("repl: Control-C") {
  Folder home;
  Terminal t(home.path);
  t.send("half a line");
  t.expect("half a line");
  t.send("\003");
  t.expect("^C\r\n> ");
  t.send("for i = 1, 2 do\n");
  t.expect(">> ");
  t.send("\003");
  t.expect("^C\r\n> ");
  const char* const loops[] = {
      "while true do end",
      "n = 0; while true do n = n + 1 end",
      "repeat until false",
      "(function() local function f(n) return f(n + 1) end return f(1) end)()",
      "s = 0; for i = 1, 1e15 do s = s + i % 7 end",
      "x = lt.ones(1000); while true do x = x * 1.5 end",
      "f = lt.compile(function(x) return x * 2 + 1 end); while true do f(x) end",
      "f = lt.compile(function(x) while true do x = x + 1 end end); f(lt.ones(3))",
      "lt.no_grad(function() while true do x = x + 1 end end)",
      "coroutine.wrap(function() while true do end end)()",
  };
  for (const char* loop : loops) {
    INFO(loop);
    t.send(std::string(loop) + "\n");
    t.expect("\r\n");
    pause(300);
    t.send("\003");
    t.expect("interrupted!");
    t.expect("\r\n> ");
    t.line("6 * 7", "42");
  }
  t.line("lt.is_grad_enabled()", "true");
  // Programs that catch errors are left by one press, too, and clean up.
  const char* const catching[] = {
      "while true do pcall(function() while true do end end) end",
      "while true do pcall(error) end",
      "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
      "x = lt.randn(300, 300); while true do pcall(function() x = x:mm(x) end) end",
      "lt.no_grad(function() while true do pcall(function() while true do pcall(error) end end) end end)",
  };
  for (const char* loop : catching) {
    INFO(loop);
    t.send(std::string(loop) + "\n");
    t.expect("\r\n");
    pause(300);
    t.send("\003");
    t.expect("interrupted!");
    t.expect("\r\n> ");
    t.line("6 * 7", "42");
  }
  t.line("lt.is_grad_enabled()", "true");
}

// A signal's frame on the program's stack would be written over what a library's kernels keep there.
TEST_CASE("repl: Control-C within matrix products") {
  Folder home;
  for (int i = 0; i < 4; i++) {
    Terminal t(home.path);
    t.line("x = lt.randn(1000, 1000)", "", "> ");
    t.send("while true do x = x:mm(x) end\n");
    t.expect("\r\n");
    pause(500);
    t.send("\003");
    t.expect("interrupted!");
    t.expect("\r\n> ");
    t.line("lt.eye(2):mm(lt.ones(2, 1)):sum():item()", "2");
  }
}

TEST_CASE("repl: pasted blocks") {
  Folder home;
  Terminal t(home.path);
  t.send("\033[200~local a = 20\r\nlocal function f(x)\r\n\treturn x + 1\r\nend\r\nprint(f(a) * 2)\r\n\033[201~");
  t.expect("\r\n42\r\n> ");
  t.send("\033[200~local x = 3\rx + 1\r\033[201~");  // as the lines would one by one
  t.expect("\r\n4\r\n> ");
  t.send(
      "\033[200~y = lt.ones(2) -- two\ry\ry\r  :sum() -- of them\r\rfor i = 1, 2 do\r  "
      "print(i)\rend\r'last'\r\033[201~");
  t.expect("\r\ntensor([1., 1.])\r\ntensor(2.)\r\n1\r\n2\r\n\"last\"\r\n> ");
  t.send("\033[200~y\rfor i = 1, 2 do\r\033[201~");
  t.expect(">> ");
  t.line("end", "tensor([1., 1.])");
  t.send("\033[200~y\rerror('here')\r\033[201~");
  t.expect("\r\nstdin:2: here");
  t.expect("> ");
  t.send("\033[200~y\rx = = 1\r\033[201~");
  t.expect("\r\nstdin:2: ");
  t.expect("> ");
  t.send("\033[200~1 +\n1\033[201~");  // no end of line: waits
  pause(200);
  t.send(" + 1\n");
  t.expect("\r\n3\r\n> ");
  // A terminal without bracketed paste: lines, with tabs.
  t.send("function g(x)\n\tif x then\n\t\treturn 'yes'\n\tend\nend\ng(1)\n");
  t.expect("\"yes\"\r\n> ");
}

TEST_CASE("repl: the terminal is given back") {
  Folder home;
  std::vector<int> numbers = {SIGTERM, SIGHUP};
#ifndef __SANITIZE_ADDRESS__  // which reports a fault itself, and exits
  numbers.push_back(SIGSEGV);
#endif
  for (const int number : numbers) {
    Terminal t(home.path);
    pause(100);
    CHECK_FALSE(t.line_mode());
    kill(t.pid(), number);
    const int status = t.wait_for_exit();
    CHECK(WIFSIGNALED(status));
    CHECK(t.line_mode());
  }
  Terminal t(home.path);
  t.send("os.exit(3)\n");
  const int status = t.wait_for_exit();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 3));
  CHECK(t.line_mode());
}

TEST_CASE("repl: without an editor") {
  Folder home;
  Terminal t(home.path, "dumb");
  t.line("1 + 1", "2");
  t.send("while true do end\n");
  t.expect("\r\n");
  pause(200);
  t.send("\003");
  t.expect("interrupted!");
  t.expect("> ");
  t.send("\003");
  pause(100);
  t.line("2 + 2", "4");
  t.send("\004");
  const int status = t.wait_for_exit();
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
