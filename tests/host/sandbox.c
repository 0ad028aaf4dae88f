/* Escapes from a sandbox: each is tried, none succeeds, and the state goes on. A line of ESCAPES is a chunk of Lua that
 * gives something true where it got what it must not have. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <time.h>

#include "tests/host/check.h"
#include "vm/capi/lutra.h"

typedef struct Escape {
  const char* name;
  const char* chunk;
} Escape;

static const Escape escapes[] = {
    /* libraries */
    {"ffi", "return require 'ffi'"},
    {"io", "return io or _G.io"},
    {"os", "return os or _G['o' .. 's']"},
    {"debug", "return debug or require 'debug'"},
    {"jit", "return jit or require 'jit'"},
    {"jit.util", "return require 'jit.util'"},
    {"package", "return package"},
    {"package.loaded by require", "return require 'package' or require '_G'"},
    {"string.dump", "return string.dump or (''):len() and (''). dump"},
    {"dump as a method", "return ('x'):dump()"},
    {"dofile", "return dofile '/etc/passwd'"},
    {"loadfile", "return loadfile '/etc/passwd'"},
    {"require a file", "return require '/etc/passwd'"},
    {"require a path", "return require '../../etc/passwd'"},
    {"native module", "return require 'lutra._native'"},
    {"require lutra.data.fashion_mnist", "return require 'lutra.FashionMNIST'"},
    {"module", "return module"},
    {"newproxy", "return newproxy(true)"},
    {"gcinfo", "return gcinfo"},
    {"collectgarbage stop", "collectgarbage('stop') return true"},
    {"collectgarbage setpause", "collectgarbage('setpause', 1e9) return true"},
    /* bytecode */
    {"bytecode by load", "return load('\\27LJ\\2\\0\\0')"},
    {"bytecode by loadstring", "return loadstring('\\27LJ\\2\\0\\0')"},
    {"bytecode by mode", "return load('\\27LJ\\2\\0\\0', 'x', 'b')"},
    {"bytecode in parts", "local i = 0 return load(function() i = i + 1 return ({'\\27', 'LJ', '\\2'})[i] end)"},
    {"bytecode by both", "return load('\\27LJ\\2\\10\\0', 'x', 'bt', {})"},
    {"load without environment", "return load('return io')()"},
    {"load with nil", "return load('return io', 'x', 't', nil)()"},
    {"loadstring's globals", "return loadstring('return os or io')()"},
    {"load reads metamethods", "return load('return _G.io', 'x', 't', setmetatable({}, {__index = _G}))()"},
    /* environments */
    {"getfenv", "return getfenv"},
    {"setfenv", "return setfenv"},
    {"getfenv of the thread", "return getfenv(0)"},
    {"environment of a coroutine", "return coroutine.wrap(function() return load('return io')() end)()"},
    {"environment of a callback", "return lt.no_grad(function() return io or load('return io')() end)"},
    {"environment in compiled code", "return lt.compile(function() return io end)()"},
    {"globals by a metatable", "return getmetatable(_G) and getmetatable(_G).__index"},
    /* metatables */
    {"strings", "return getmetatable('')"},
    {"strings, through a method", "local s = string s.rep = nil return not ('x'):rep(2)"},
    {"tensors", "return getmetatable(lt.ones(2))"},
    {"tensors' collector", "return lt.ones(2).__gc"},
    {"tensors' collector by rawget", "return rawget(lt.ones(2), '__gc')"},
    {"numbers", "return getmetatable(1)"},
    {"functions", "return getmetatable(print)"},
    {"nil", "return getmetatable(nil)"},
    {"int64", "return getmetatable(1LL) ~= nil"},
    {"pointers from int64", "local x = 1LL return x[0]"},
    {"settings", "return getmetatable(lt.config)"},
    {"metatable of a tensor", "return setmetatable(lt.ones(2), {})"},
    {"protected", "return setmetatable(lt.config, {})"},
    {"generators", "return getmetatable(lt.Generator('cpu').state)"},
    {"__gc of a table",
     "local ran = false setmetatable({}, {__gc = function() ran = true end}) collectgarbage() return ran"},
    {"tostring", "return tostring(setmetatable({}, {__tostring = function() return io end}))"},
    /* lt */
    {"lt._native", "return lt._native"},
    {"rawget of it", "return rawget(lt, '_native')"},
    {"lt.__index", "return getmetatable(lt).__index({}, '_native') or getmetatable(lt).__index(lt, '_native')"},
    {"lt.from_blob", "return lt.from_blob(4096, {1})"},
    {"lt.from_ffi", "return lt.from_ffi(1LL)"},
    {"lt.from_dlpack", "return lt.from_dlpack(1LL)"},
    {"data_ptr", "return lt.ones(2):data_ptr()"},
    {"to_dlpack", "return lt.ones(2):to_dlpack()"},
    {"lt.save", "return lt.save('/tmp/lutra-escape.npy', lt.ones(2)) or true"},
    {"lt.load of a file", "return lt.load('/etc/passwd')"},
    {"lt.load of a folder", "return lt.load('../secret.safetensors')"},
    {"zeros in names", "return lt.load('model.safetensors\\0.txt')"},
    {"datasets", "return lt.data.FashionMNIST or lt.data.read_idx"},
    {"cache folder", "lt.config.cache_dir = '/tmp' return true"},
    {"name of the cache folder", "return lt.config.cache_dir"},
    {"paths in tables",
     "local seen, found = {}, nil\n"
     "local function walk(t) for k, v in next, t do\n"
     "  if type(v) == 'string' and v:find '^/' then found = v end\n"
     "  if type(v) == 'table' and not seen[v] then seen[v] = true walk(v) end end end\n"
     "walk(lt) walk(_G) return found"},
    {"cache mode", "lt.config.cache = 'on' return true"},
    {"the cache is written", "return lt.config.cache == 'on'"},
    {"verify writes files", "lt.config.verify = 1 return true"},
    {"threads of the process", "lt.config.num_threads = 64 return true"},
    {"threads by lt", "lt.set_num_threads(64) return true"},
    {"precision of the process", "lt.set_float32_matmul_precision('medium') return true"},
    {"instruction set", "lt.config.isa = 'interp' return true"},
    {"passes", "lt.config.passes.cse = false return true"},
    {"backends", "lt.backends.cuda.matmul.allow_tf32 = true return true"},
    /* memory */
    {"as_strided beyond", "return lt.ones(2):as_strided({100}, {1})"},
    {"as_strided offset", "return lt.ones(2):as_strided({1}, {1}, 1000)"},
    {"as_strided negative", "return lt.ones(4):as_strided({2}, {-8})"},
    {"as_strided overflow", "return lt.ones(4):as_strided({2^40, 2^40}, {2^40, 1})"},
    {"compiled as_strided", "return lt.compile(function(x) return x:as_strided({1000}, {1}) + 1 end)(lt.ones(2))"},
    {"index beyond", "return lt.ones(2)[{2}]"},
    {"index list beyond", "return lt.ones(2)[lt.tensor({5}, {dtype = 'int64'})]"},
    {"negative index", "return lt.ones(2)[lt.tensor({-3}, {dtype = 'int64'})]"},
    {"gather", "return lt.ones(2):gather(0, lt.tensor({9}, {dtype = 'int64'}))"},
    {"compiled gather",
     "return lt.compile(function(x, i) return x:gather(0, i) * 2 end)(lt.ones(2), "
     "lt.tensor({-9}, {dtype = 'int64'}))"},
    {"scatter", "return lt.zeros(2):scatter(0, lt.tensor({7}, {dtype = 'int64'}), 1)"},
    {"index_add", "return lt.zeros(2):index_add(0, lt.tensor({7}, {dtype = 'int64'}), lt.ones(1))"},
    {"index_put", "local x = lt.zeros(2) x[lt.tensor({-7}, {dtype = 'int64'})] = 1 return true"},
    {"take", "return lt.take(lt.ones(2), lt.tensor({5}, {dtype = 'int64'}))"},
    {"embedding", "return lt.nn.functional.embedding(lt.tensor({9}, {dtype = 'int64'}), lt.ones(2, 2))"},
    {"narrow", "return lt.ones(2):narrow(0, 1, 5)"},
    {"resize and look", "local x = lt.ones(2) local y = x:detach() x:free() return y:sum():item()"},
    {"view of more", "return lt.ones(2):view(100)"},
    {"expand of more", "return lt.ones(2):expand(100)"},
    {"forged sizes", "return lt.zeros(2^31, 2^31, 2^31)"},
    {"unfold", "return lt.ones(4):unfold(0, 100, 1)"},
    /* forged files; read_file gives them */
    {"forged header", "return lt.load('forged/header.safetensors')"},
    {"forged offsets", "return lt.load('forged/offsets.safetensors')"},
    {"forged sizes in a file", "return lt.load('forged/sizes.safetensors')"},
    {"truncated", "return lt.load('forged/truncated.safetensors')"},
    {"empty", "return lt.load('forged/empty.safetensors')"},
    {"bytecode module", "return require 'forged.bytecode'"},
    /* what the host and the library leave */
    {"error objects", "local ok, e = pcall(error, setmetatable({}, {__index = _G})) return e.io"},
    {"traceback", "local _, e = xpcall(function() error 'x' end, function(m) return debug end) return e"},
    {"a backend's graph",
     "local seen local f = lt.compile(function(x) return x + 1 end, {backend = function(g, e) "
     "seen = g return function(...) return ... end end}) pcall(f, lt.ones(2)) "
     "return seen and (seen._native or seen.io)"},
    {"guards",
     "local f = lt.compile(function(x) return lt.nn.functional.relu(x) end) f(lt.ones(2)) "
     "for _, e in ipairs(lt.guards(f)) do for _, g in ipairs(e) do for k, v in pairs(g) do "
     "if type(v) == 'function' or type(v) == 'table' and rawget(v, '_native') then return k end end end end"},
    {"the argument table", "return arg"},
    /* what is newer: branches, sizes that elements decide, packed weights, hooks, memory that is not initialised */
    {"what others left in empty", "left() return lt.empty(1000):ne(0):sum():item() > 0"},
    {"in empty_like", "left() return lt.empty_like(lt.ones(1000)):ne(0):sum():item() > 0"},
    {"in new_empty", "left() return lt.ones(1):new_empty({1000}):ne(0):sum():item() > 0"},
    {"in resize_", "left() return lt.ones(1):resize_({1000}):narrow(0, 1, 999):ne(0):sum():item() > 0"},
    {"in set_", "left() return lt.ones(1):set_(lt.ones(1), 0, {1000}, {1}):narrow(0, 1, 999):ne(0):sum():item() > 0"},
    {"in empty_permuted", "left() return lt.empty_permuted({10, 100}, {1, 0}):ne(0):sum():item() > 0"},
    {"in empty_strided", "left() return lt.empty_strided({1000}, {1}):ne(0):sum():item() > 0"},
    {"in compiled empty",
     "left() return lt.compile(function(x) return lt.empty(1000) + x end)(lt.zeros(1)):ne(0):sum():item() "
     "> 0"},
    {"in a graph's empty",
     "left() return lt.compile(function(x) return x:new_empty({1000}) end)(lt.zeros(1)):ne(0):sum():item() "
     "> 0"},
    {"a branch's environment",
     "return lt.cond(lt.tensor(true), function() return io or load('return io')() end, function() end)"},
    {"a compiled branch's environment",
     "return lt.compile(function(x) return lt.cond(x:sum():gt(0), function(x) return x * (debug and 2 or "
     "0) end, function(x) return x end, {x}) end)(lt.ones(2)):sum():item() == 4"},
    {"a hook in backward",
     "local got local x = lt.ones(2, {requires_grad = true}) x:register_hook(function(g) got = io or debug "
     "return g end) (x * 2):sum():backward() return got"},
    {"a hook that frees",
     "local x = lt.ones(1000, {requires_grad = true}) local y = x * 2 y:register_hook(function(g) "
     "y:detach():free() return g end) (y * y):sum():backward() return x.grad:ne(8):any():item()"},
    {"forged groups",
     "return lt.weight_int4pack_mm(lt.ones(2, 32), lt.zeros(8, 16, {dtype = 'uint8'}), 1e9, lt.ones(1, 8, "
     "2))"},
    {"groups without scales",
     "return lt.weight_int4pack_mm(lt.ones(2, 64), lt.zeros(8, 32, {dtype = 'uint8'}), 32, lt.ones(1, 8, "
     "2))"},
    {"a size that is a lie",
     "return lt.compile(function(x, m) local n = x[m].shape[1] lt.check_is_size(n, {min = 100}) return "
     "lt.ones(4):narrow(0, 0, n) end)(lt.ones(4), lt.ones(4):gt(0))"},
    {"a size that data tell",
     "return lt.compile(function(x, m) return x[m]:as_strided({100}, {1}) end)(lt.ones(4), "
     "lt.ones(4):gt(0))"},
    {"indices that data tell",
     "return lt.compile(function(m) return lt.ones(3):index_select(0, m:nonzero():view(-1)) "
     "end)(lt.ones(10))"},
    {"a carry of another size",
     "return lt.compile(function(x) return lt.scan(function(c, x) return c:view(100), x end, lt.ones(2), "
     "x) end)(lt.ones(3, 2))"},
    {"code in the background", "lt.config.async = true return true"},
    {"compiled without waiting", "return lt.compile(function(x) return io end, {wait = false})(lt.ones(2))"},
    {"repro files", "lt.config.repro_dir = '/tmp' return true"},
    {"minify", "return lt.minify or lt.repro"},
    {"logs", "lt.config.logs = 'graph' return true"},
    {"lt.special's table", "return lt.special._native or lt.special.io or getmetatable(lt.special)"},
    {"the memory of a smaller one",
     "local x = lt.ones(100) local v = x:view(10, 10) x.data = lt.ones(1) return v:sum():item() ~= 100"},
    {"sizes cut under a view",
     "local x = lt.ones(100) local v = x:view(10, 10) x:resize_({0}) x:free() return v:sum():item()"},
    {"a view in a larger dtype", "return lt.zeros({3}, {dtype = 'uint8'}):view('int64')"},
    {"labels of ctc_loss",
     "return lt.ctc_loss(lt.randn(5, 1, 4):log_softmax(2), lt.tensor({{1, 200}}), lt.tensor({5}), "
     "lt.tensor({2}))"},
    {"a sorter beyond",
     "return lt.searchsorted(lt.ones(3), lt.ones(1), {sorter = lt.tensor({9, 9, 9}, {dtype = 'int64'})})"},
    {"an address by format", "return string.format('%p', {}) or ('%10p'):format(print)"},
    {"CUDA source", "return lt.cuda.compile or lt.cuda.load or lt.cuda.module"},
};
enum { kEscapes = sizeof escapes / sizeof *escapes };

/* Bombs: each ends by a limit or an error. */
static const Escape bombs[] = {
    {"a loop", "while true do end"},
    {"loops in pcall", "while true do pcall(function() while true do end end) end"},
    {"memory", "local t = {} while true do t[#t + 1] = {} end"},
    {"memory in pcall", "local t = {} while true do pcall(function() while true do t[#t + 1] = {} end end) end"},
    {"a string", "local s = 'x' while true do s = s .. s end"},
    {"string.rep", "return ('x'):rep(1e9):rep(1e9)"},
    {"tensors", "local t = {} while true do t[#t + 1] = lt.ones(1e6) end"},
    {"one tensor", "return lt.ones(1e9)"},
    {"empty tensor", "return lt.empty(1e12)"},
    {"expand, then copy", "return lt.ones(1):expand(1e12):clone()"},
    {"recursion", "local function f() return 1 + f() end return f()"},
    {"recursion of coroutines", "local function f() return coroutine.wrap(f)() end return f()"},
    {"recursion of metamethods",
     "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k] end"
     " return t.x"},
    {"recursion of pcall", "local function f() return pcall(f) end while true do f() end"},
    {"nested text", "return load(('('):rep(1e6))"},
    {"long text", "return load(('x = 1 '):rep(1e6))() or load(('x = {1} '):rep(1e5))"},
    {"compilations",
     "while true do load('return lt.compile(function(x) return x * ' .. math.random() .. ' end)')()"
     "(lt.ones(2)) end"},
    {"a large graph", "return lt.compile(function(x) for i = 1, 1e9 do x = x + i end return x end)(lt.ones(2))"},
    {"randperm", "return lt.randperm(1e9)"},
    {"sort", "while true do lt.randn(1e6):sort() end"},
    {"a pattern", "return ('a'):rep(40):find(('a*'):rep(30) .. 'b')"},
    {"a format", "return string.format('%' .. ('0'):rep(5000))"},
    {"formats of a long text", "return string.format(('%0.'):rep(3e6), 1)"},
    {"signs that are none", "return string.format(('%'):rep(4e6) .. 'd', 1)"},
    {"a pattern's set", "return ('b'):rep(5e4):find('[' .. ('a'):rep(2e5) .. ']')"},
    {"gsub", "return ('a'):rep(1e5):gsub('a*b', '')"},
    {"gmatch", "for _ in ('a'):rep(1e5):gmatch('.-b') do end"},
    {"find of text", "return ('a'):rep(1e6):find(('a'):rep(5e5) .. 'b', 1, true)"},
    {"concat", "local t = {} for i = 1, 1e6 do t[i] = ('x'):rep(1000) end return table.concat(t)"},
    {"unpack", "return unpack({}, 1, 1e8)"},
    {"select", "return select('#', unpack({}, 1, 1e7))"},
    {"coroutines", "local t = {} while true do t[#t + 1] = coroutine.create(print) end"},
    {"backward", "local x = lt.ones(10, {requires_grad = true}) local y = x while true do y = y * 1.01 end"},
    {"print", "while true do print(('x'):rep(1000)) end"},
};
enum { kBombs = sizeof bombs / sizeof *bombs };

static size_t written;
static void count(void* arg, const char* text, size_t length) { (void)arg, (void)text, written += length; }

static void put(lutra_Writer sink, void* to, const char* header, size_t announced, size_t bytes) {
  unsigned char size[8];
  char zeros[64] = {0};
  int i;
  for (i = 0; i < 8; i++) size[i] = (unsigned char)(announced >> (8 * i) & 255);
  sink(to, (const char*)size, 8);
  sink(to, header, strlen(header));
  sink(to, zeros, bytes);
}

/* The host's files: a module, a model, forged ones. Paths that lead out are none. */
static int read_file(void* arg, const char* name, lutra_Writer sink, void* to) {
  static const char good[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  static const char far[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,80000]}}";
  static const char big[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,8]}}";
  (void)arg;
  if (strcmp(name, "net.lua") == 0) return sink(to, "return {answer = 42, io = io}", 29), LUTRA_OK;
  if (strcmp(name, "model.safetensors") == 0) return put(sink, to, good, strlen(good), 8), LUTRA_OK;
  if (strcmp(name, "forged/header.safetensors") == 0) return put(sink, to, good, (size_t)-1, 8), LUTRA_OK;
  if (strcmp(name, "forged/offsets.safetensors") == 0) return put(sink, to, far, strlen(far), 8), LUTRA_OK;
  if (strcmp(name, "forged/sizes.safetensors") == 0) return put(sink, to, big, strlen(big), 8), LUTRA_OK;
  if (strcmp(name, "forged/truncated.safetensors") == 0) return put(sink, to, good, strlen(good), 3), LUTRA_OK;
  if (strcmp(name, "forged/empty.safetensors") == 0) return LUTRA_OK;
  if (strcmp(name, "forged/bytecode.lua") == 0) return sink(to, "\033LJ\002\000\000", 6), LUTRA_OK;
  return LUTRA_ERROR_FILE;
}

static lutra_State* S;
static int escaped;

static int on_escape(lutra_State* state, void* arg, const lutra_Value* in, int n, lutra_Value* out, int* m) {
  (void)state, (void)arg, (void)in, (void)n, (void)out;
  escaped = 1;
  *m = 0;
  return LUTRA_OK;
}

static void goes_on(const char* after) {
  const char* const program =
      "assert((lt.ones(3) * 2):sum():item() == 6) local s = 0 for i = 1, 1e4 do s = s + i end assert(s == 50005000)\n"
      "assert(('x'):rep(3) == 'xxx' and lt.compile(function(x) return x + 1 end)(lt.ones(2)):sum():item() == 4)";
  if (lutra_do_string(S, program, "=after") == LUTRA_OK) return;
  ++failures;
  fprintf(stderr, "FAILED after %s: %s\n", after, lutra_error(S));
}

static void try_escape(const Escape* e) {
  char program[2048];
  sprintf(program,
          "local function left() do local junk = lt.full({1000}, 7) end collectgarbage() end "
          "local ok, got = pcall(function() %s end) if ok and got then on_escape() end",
          e->chunk);
  escaped = 0;
  check(lutra_do_string(S, program, "=escape") == LUTRA_OK, lutra_error(S));
  if (escaped) {
    ++failures;
    fprintf(stderr, "FAILED: an escape by %s: %s\n", e->name, e->chunk);
  }
  goes_on(e->name);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void try_bomb(const Escape* e) {
  lutra_Limits limits;
  double start = now();
  int code;
  memset(&limits, 0, sizeof limits);
  limits.size = sizeof limits, limits.seconds = 0.3, limits.bytes = 64 << 20, limits.threads = 1;
  check(lutra_set_limits(S, &limits) == LUTRA_OK, "set_limits");
  code = lutra_do_string(S, e->chunk, "=bomb");
  check(lutra_set_limits(S, NULL) == LUTRA_OK, "no limits");
  if (getenv("LUTRA_TEST_VERBOSE"))
    printf("%s: code %d, %.3f s, %.70s\n", e->name, code, now() - start, lutra_error(S));
  if (now() - start > 5) {
    ++failures;
    fprintf(stderr, "FAILED: the bomb %s took %.2f s (code %d)\n", e->name, now() - start, code);
  }
  goes_on(e->name);
}

static void run(const char* program) { check(lutra_do_string(S, program, "=x") == LUTRA_OK, lutra_error(S)); }

static void no_page_is_both(void) {
  char line[1024];
  FILE* maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps)) {
    if (!strstr(line, "rwx")) continue;
    ++failures;
    fprintf(stderr, "FAILED: writable and executable: %s", line);
  }
  check(maps && fclose(maps) == 0, "/proc/self/maps");
}

static void files_of_the_host(void) {
  check(lutra_do_string(S,
                        "local net = require 'net' assert(net.answer == 42 and net.io == nil and require 'net' == net)"
                        "assert(lt.load('model.safetensors').x:sum():item() == 0)"
                        "assert(require 'lutra' == lt and require 'lutra.nn' == lt.nn)",
                        "=files") == LUTRA_OK,
        lutra_error(S));
}

/* Wrong calls of coroutine.resume, and limits within coroutines, take no depth from those that come later. */
static void coroutines_stay(void) {
  lutra_Limits limits;
  int i;
  memset(&limits, 0, sizeof limits);
  limits.size = sizeof limits, limits.seconds = 0.001;
  run("for i = 1, 400 do pcall(coroutine.resume, i) pcall(coroutine.resume) end");
  for (i = 0; i < 400; i++) {
    lutra_set_limits(S, &limits);
    lutra_do_string(S, "local function f() end while true do coroutine.resume(coroutine.create(f)) end", "=x");
    lutra_set_limits(S, NULL);
  }
  run("assert(coroutine.wrap(function() return 1 end)() == 1)\n"
      "local deepest = 0 local function f(n) deepest = math.max(deepest, n) "
      "return coroutine.resume(coroutine.create(function() return f(n + 1) end)) end f(0)\n"
      "assert(deepest == 150, deepest) deepest = 0 f(0) assert(deepest == 150, deepest)");
}

/* The program's line, and the text as it is. */
static void errors_of_wrapped_functions(void) {
  run("local function says(text, f) local ok, e = pcall(f) assert(not ok and e == 'x:1: ' .. text, e) end "
      "says('format: %p shows an address: this is a sandbox', function() return (string.format('%% %-3.2p', 1)) end) "
      "says(\"bad argument #2 to 'format' (number expected, got string)\", function() return (string.format('%d', 'a')) "
      "end) "
      "says(\"bad argument #1 to 'resume' (coroutine expected)\", function() return (coroutine.resume(1)) end) "
      "assert(string.format('%%p %5.1f%s%%', 1, '%p') == '%p   1.0%p%')");
}

int main(void) {
  lutra_Options options;
  int i;
  memset(&options, 0, sizeof options);
  options.size = sizeof options, options.sandbox = 1, options.output = count, options.read_file = read_file;
  S = lutra_open(&options);
  if (!S) return fputs(lutra_error(NULL), stderr), 1;
  check(lutra_register(S, "on_escape", on_escape, NULL) == LUTRA_OK, "register");
  check(lutra_do_string(S, "on_escape()", "=x") == LUTRA_OK && escaped, "what tells of an escape");
  files_of_the_host();
  for (i = 0; i < kEscapes; i++) try_escape(&escapes[i]);
  no_page_is_both();
  for (i = 0; i < kBombs; i++) try_bomb(&bombs[i]);
  coroutines_stay();
  errors_of_wrapped_functions();
  no_page_is_both();
  files_of_the_host();
  check(lutra_do_string(S, "\033LJ\002", "=x") == LUTRA_ERROR_SYNTAX, "bytecode as a program");
  printf("%d escapes, %d bombs\n", kEscapes, kBombs);
  lutra_close(S);
  options.lua = (struct lua_State*)&options;
  check(lutra_open(&options) == NULL && strstr(lutra_error(NULL), "a state of its own"), "a sandbox in a host's state");
  return failures;
}
