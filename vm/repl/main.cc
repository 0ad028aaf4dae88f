// The `lutra` executable: options, scripts, standard input and the REPL, as a client of lutra.h. Options are those of
// luajit and the others in kHelp. Errors are "lutra: message" on standard error.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <lua.hpp>
#include <string>
#include <vector>

#include "ops/core/closest.h"
#include "ops/core/error.h"
#include "vm/capi/lutra.h"
#include "vm/repl/interrupt.h"
#include "vm/repl/repl.h"
#include "vm/repl/script_files.h"

namespace lutra {
namespace {

const char kHelp[] =
    "usage: lutra [options]... [script [args]...]\n"
    "       lutra explain [--json] script [args]...\n"
    "             run a script; report graphs, breaks, guards, recompiles, kernels\n"
    "       lutra tune [script [args]...]\n"
    "             find the fastest way of each library call that a script makes,\n"
    "             and use it from now on\n"
    "       lutra tune --limits\n"
    "             measure the memory and arithmetic rates of this machine once;\n"
    "             reports of kernels compare with them\n"
    "       lutra cache list|clear\n"
    "             list or remove the compiled code that earlier runs kept on disk\n"
    "       lutra repro FILE\n"
    "             run a graph that lt.config.verify kept, compiled and eagerly;\n"
    "             the exit code is 1 if the results differ\n"
    "       lutra minify FILE [-o OUT]\n"
    "             find the fewest ops of such a graph whose results still differ;\n"
    "             write them to another such file\n"
    "       lutra docs DIR\n"
    "             write a page for each op (DIR/ops) and annotations for editors\n"
    "             (DIR/meta)\n"
    "  -e chunk   execute string 'chunk'        -l name   require library 'name'\n"
    "  -i         run the REPL after the script -v        show version information\n"
    "  -E         ignore environment variables\n"
    "  -j cmd     LuaJIT control (-joff, -jv)   -O[opt]   its optimiser (-O3)\n"
    "  --auto     compile every hot frame that runs tensor ops\n"
    "  --device D make tensors on D by default (cpu, cuda, cuda:0)\n"
    "  --sandbox  the script can only read files beneath its folder, by require and lt.load;\n"
    "             it has no ffi, io, os, debug, bytecode\n"
    "  --version  --help\n"
    "  --         stop handling options         -         execute standard input\n"
    "Without a script: run the REPL, or standard input if that is not a terminal.\n"
    "Exit codes: 1 if a script fails, 2 if options or the environment are wrong.\n"
    "Environment: LUTRA_LOGS=NAME,... logs stages to standard error (help lists them);\n"
    "LUTRA_<NAME> sets lt.config.<name>: LUTRA_NUM_THREADS, LUTRA_ISA, LUTRA_CACHE,\n"
    "LUTRA_CACHE_DIR, LUTRA_ASYNC, LUTRA_COMPILED_AUTOGRAD, LUTRA_PROFIT,\n"
    "LUTRA_RECOMPILE_LIMIT, LUTRA_STRESS, LUTRA_VERIFY.\n"
    "LUTRA_TAILCALLS=keep: tail calls drop their callers from tracebacks, as in luajit.\n";

constexpr int kFailed = 1, kWrongUsage = 2;

int usage_error(const std::string& message) {
  std::fprintf(stderr, "lutra: %s (lutra --help lists the options)\n", message.c_str());
  return kWrongUsage;
}

struct Action {
  char kind;  // 'e', 'l', 'j', 'O'
  std::string text;
};

struct Options {
  std::vector<Action> actions;
  bool interactive = false, version = false, ignore_env = false, auto_compile = false;
  bool found = false;  // --version also prints what was found on this machine
  bool sandbox = false;
  bool json = false;
  std::string command;  // explain, tune, cache, docs, repro, minify
  bool help = false;
  std::string device, error;
  int script = 0;  // index in argv, or argc
};

// Reads the value of -eX or -e X. Returns false if it is missing.
bool take_value(int argc, char** argv, int& i, std::string* out) {
  if (argv[i][2]) {
    *out = argv[i] + 2;
    return true;
  }
  if (i + 1 >= argc) return false;
  *out = argv[++i];
  return true;
}

// Reads an option that starts with "--". Returns false if it is unknown.
bool read_long(int argc, char** argv, int& i, Options& out) {
  const std::string name = argv[i];
  if (name == "--version") {
    out.version = out.found = true;
  } else if (name == "--help") {
    out.help = true;
  } else if (name == "--auto") {
    out.auto_compile = true;
  } else if (name == "--sandbox") {
    out.sandbox = true;
  } else if (name == "--device" && i + 1 < argc) {
    out.device = argv[++i];
  } else if (name.rfind("--device=", 0) == 0) {
    out.device = name.substr(9);
  } else {
    return false;
  }
  return true;
}

bool read_short(int argc, char** argv, int& i, Options& out) {
  const char kind = argv[i][1];
  const bool alone = argv[i][2] == 0;
  Action action{kind, ""};
  switch (kind) {
    case 'i': out.interactive = true; return alone;
    case 'v': out.version = true; return alone;
    case 'E': out.ignore_env = true; return alone;
    case 'O': action.text = argv[i] + 2; break;
    case 'e':
    case 'l':
    case 'j':
      if (!take_value(argc, argv, i, &action.text)) return false;
      break;
    default: return false;
  }
  out.actions.push_back(action);
  return true;
}

// Reads the arguments of the command; i is the index of the first one.
void read_command(int argc, char** argv, int& i, Options& out) {
  if (out.command == "tune") {
    const bool limits = i + 1 == argc && std::strcmp(argv[i], "--limits") == 0;
    if (!limits && i < argc && argv[i][0] == '-') out.error = "tune: usage: lutra tune [--limits | SCRIPT [ARGS]]";
    return;
  }
  if (out.command == "cache") {
    const KnownNames actions = {"list", "clear"};
    if (i + 1 != argc || !actions.have(argv[i])) {
      out.error = "cache: usage: lutra cache list|clear" + (i < argc ? actions.question(argv[i]) : "");
    }
    return;
  }
  if (out.command == "docs") {
    if (i + 1 != argc || argv[i][0] == '-') out.error = "docs: usage: lutra docs DIR";
    return;
  }
  if (out.command == "repro" || out.command == "minify") {
    const bool named = i + 3 == argc && out.command == "minify" && std::strcmp(argv[i + 1], "-o") == 0;
    if ((i + 1 != argc && !named) || argv[i][0] == '-') {
      out.error =
          out.command == "repro" ? "repro: usage: lutra repro FILE" : "minify: usage: lutra minify FILE [-o OUT]";
    }
    return;
  }
  for (; i < argc && argv[i][0] == '-' && argv[i][1]; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) {
      out.json = true;
    } else if (std::strcmp(argv[i], "--help") == 0) {
      out.help = true;
    } else {
      out.error = str("explain: unrecognized option '", argv[i], "'", KnownNames{"--json", "--help"}.question(argv[i]));
      return;
    }
  }
  if (i >= argc && !out.help) out.error = "explain: a script is needed";
}

bool is_file(const char* path) {
  struct stat found;
  return stat(path, &found) == 0 && !S_ISDIR(found.st_mode);
}

// Checks the options of --sandbox. A sandbox is for scripts only; the rest of the executable is not confined.
void check_sandbox(int argc, Options& out) {
  const bool loads = std::any_of(out.actions.begin(), out.actions.end(), [](const Action& a) { return a.kind != 'e'; });
  if (!out.command.empty() || out.interactive || out.auto_compile || loads) {
    out.error = "--sandbox goes with a script and -e only";
  } else if (out.script >= argc && out.actions.empty() && isatty(0)) {
    out.error = "--sandbox: a script is needed";
  }
}

Options read_options(int argc, char** argv) {
  Options out;
  int i = 1;
  for (; i < argc && argv[i][0] == '-' && argv[i][1]; ++i) {
    if (std::strcmp(argv[i], "--") == 0) {
      ++i;
      break;
    }
    const bool known = argv[i][1] == '-' ? read_long(argc, argv, i, out) : read_short(argc, argv, i, out);
    if (!known) {
      const char* given = argv[i < argc ? i : argc - 1];
      const KnownNames longs = {"--version", "--help", "--auto", "--device", "--sandbox"};
      out.error = str("unrecognized or incomplete option '", given, "'", longs.question(given));
      return out;
    }
  }
  // If a file with a command's name exists, it is a script.
  for (const char* command : {"explain", "tune", "cache", "docs", "repro", "minify"}) {
    if (i < argc && std::strcmp(argv[i], command) == 0 && !is_file(command)) out.command = command;
  }
  if (!out.command.empty()) read_command(argc, argv, ++i, out);
  out.script = i;
  if (out.sandbox) check_sandbox(argc, out);
  return out;
}

// -- what the options do, written in Lua: each chunk is called with the option's text

const char kLuaJitControl[] =
    "local cmd, args = (...):match('^([^=]*)=?(.*)$')\n"
    "local f = require('jit')[cmd]\n"
    "if type(f) == 'function' then return f() end\n"
    "local ok, m = pcall(require, 'jit.' .. cmd)\n"
    "if not ok then error('unknown LuaJIT command or jit.* modules not installed: ' .. cmd, 0) end\n"
    "local list = {}\n"
    "for a in args:gmatch('[^,]+') do list[#list + 1] = a end\n"
    "return m.start(unpack(list))";
const char kOptimiser[] =
    "local list = {}\n"
    "for a in (...):gmatch('[^,]+') do list[#list + 1] = a end\n"
    "return require('jit.opt').start(unpack(list))";
const char kAuto[] = "require('lutra').auto(true)";
const char kFound[] = "require('lutra')._native.use('version')()";
const char kCommand[] = "return require('lutra')._native.use(...)";

int report(const char* message, int status) {
  std::fprintf(stderr, "lutra: %s\n", message);
  return status;
}

// Reports the error of a script, with its traceback.
int report_script(const lutra_State* S, int code) { return code == LUTRA_OK ? 0 : report(lutra_error(S), kFailed); }

// Calls the function beneath nargs arguments. Reports its error without a traceback, since a position in this program
// does not help users. Returns 0 or `status`.
int call_plain(lua_State* L, int nargs, int nresults, int status) {
  if (lua_pcall(L, nargs, nresults, 0) == 0) return 0;
  const char* message = lua_tostring(L, -1);
  return report(message ? message : "unknown error", status);
}

// Runs chunk(text).
int run_chunk(lua_State* L, const char* chunk, const std::string& text) {
  luaL_loadbuffer(L, chunk, std::strlen(chunk), "=lutra");
  lua_pushlstring(L, text.data(), text.size());
  return call_plain(L, 1, 0, kWrongUsage);
}

int run_action(lutra_State* S, const Action& action) {
  lua_State* L = lutra_lua(S);
  switch (action.kind) {
    case 'e': return report_script(S, lutra_do_string(S, action.text.c_str(), "=(command line)"));
    case 'j': return run_chunk(L, kLuaJitControl, action.text);
    case 'O': return run_chunk(L, kOptimiser, action.text.empty() ? "3" : action.text);  // -O alone is -O3
    default:                                                                             // 'l'
      lua_getglobal(L, "require");
      lua_pushlstring(L, action.text.data(), action.text.size());
      return call_plain(L, 1, 0, kFailed);
  }
}

// Commands are written in Lua: stdlib/COMMAND.lua.
int run_command(lua_State* L, const Options& options, int argc, char** argv) {
  const int top = lua_gettop(L);
  luaL_loadbuffer(L, kCommand, sizeof kCommand - 1, "=lutra");
  lua_pushstring(L, options.command.c_str());
  if (const int status = call_plain(L, 1, 1, kFailed)) return status;
  if (options.command == "explain") lua_pushboolean(L, options.json);
  for (int i = options.script; i < argc; ++i) lua_pushstring(L, argv[i]);
  return call_plain(L, lua_gettop(L) - top - 1, 0, kFailed);
}

// Sets arg[-1] and below: the program and its options, as in luajit.
void set_arguments(lutra_State* S, char** argv, int script) {
  lua_State* L = lutra_lua(S);
  lua_createtable(L, 0, script);
  for (int i = 0; i < script; ++i) {
    lua_pushstring(L, argv[i]);
    lua_rawseti(L, -2, i - script);
  }
  lua_setglobal(L, "arg");
}

int run_all(lutra_State* S, const Options& options, int argc, char** argv) {
  lua_State* L = lutra_lua(S);
  open_script_interrupts(L);
  if (options.found && !options.sandbox && run_chunk(L, kFound, "")) return kFailed;
  if (options.auto_compile && run_chunk(L, kAuto, "")) return kFailed;
  for (const Action& action : options.actions) {
    const RunScope scope;
    if (const int status = run_action(S, action)) return status;
  }
  if (!options.command.empty()) {
    const RunScope scope;
    return run_command(L, options, argc, argv);
  }
  const bool given = options.script < argc, dash = given && std::strcmp(argv[options.script], "-") == 0;
  if (given) {
    const char* path = dash ? nullptr : argv[options.script];
    const RunScope scope;
    const int code = lutra_do_file(S, path, argc - options.script - 1, argv + options.script + 1);
    if (const int status = report_script(S, code)) return status;
  }
  const bool idle = !given && options.actions.empty() && !options.version;
  if (options.interactive || (idle && isatty(0))) return run_repl(S);
  if (!idle) return 0;
  const RunScope scope;
  return report_script(S, lutra_do_file(S, nullptr, 0, nullptr));
}

}  // namespace
}  // namespace lutra

int main(int argc, char** argv) {
  using namespace lutra;
  const Options options = read_options(argc, argv);
  if (!options.error.empty()) return usage_error(options.error);
  if (options.help) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (options.version) {
    std::printf("Lutra %s (%s)\n", lutra_version(), LUAJIT_VERSION);
    std::fflush(stdout);
  }
  lutra_Options open = {};
  open.size = sizeof open;
  open.device = options.device.empty() ? nullptr : options.device.c_str();
  open.ignore_env = options.ignore_env;
  open.no_interrupt = 1;  // this program handles Control-C itself
  std::string folder = folder_of_script(options.script < argc ? argv[options.script] : nullptr);
  open.sandbox = options.sandbox;
  open.read_file = read_script_file;
  open.read_file_arg = &folder;
  lutra_State* S = lutra_open(&open);
  if (!S) return report(lutra_error(nullptr), kWrongUsage);
  set_arguments(S, argv, options.script);
  const int status = run_all(S, options, argc, argv);
  lutra_close(S);
  return status;
}
