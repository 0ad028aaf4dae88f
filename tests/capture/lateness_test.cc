// Measures how late ops of many elements notice an interrupt: the longest time between two polls, in CPU time. It runs
// the example of each public name and lines of its own, eager and compiled. Runs that take longer than kEnough are
// stopped then. It is not among the usual tests, because it takes minutes. LUTRA_TEST_FILTER runs only lines that
// contain it, LUTRA_TEST_VERBOSE prints each line.
#include <pthread.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "ops/core/interrupt.h"
#include "tests/host/lutra_state.h"

namespace lutra {
namespace {

constexpr int64_t kEndless = int64_t(1) << 60;
constexpr double kLongest = 0.05;  // seconds between two looks
constexpr double kEnough = 0.25;   // seconds of a line; then it shall end at its next look

// The inputs of the examples (stdlib/meta/examples.lua), grown, and lines that the table below adds to them.
const char* const kInputs = R"lua(
  local lt = require "lutra"
  local use = lt._native.use
  local names, examples = use "meta.names", use "meta.examples"
  env = setmetatable({lt = lt}, {__index = _G})
  env.x, env.y, env.p = lt.rand(4096, 4096), lt.rand(4096, 4096), lt.rand(4096, 4096)
  env.v, env.n, env.k = lt.rand(4096), lt.rand(4096), lt.rand(4096)
  env.m, env.a = lt.rand(2048, 2048), lt.rand(4, 1536, 1536)
  env.image = lt.rand(4, 4, 1024, 1024)
  env.i = lt.randint(0, 2000, {2e7})
  env.j = lt.randint(0, 2000, {4096, 4096})
  env.w, env.labels = lt.rand(2e7), lt.randint(0, 2000, {4096})
  env.signs, env.mask = lt.ones(4096), lt.rand(4096, 4096):gt(0.5)
  env.z, env.leaf = lt.complex(lt.rand(1e7), lt.rand(1e7)), lt.rand(1e7, {requires_grad = true})
  env.path = os.tmpname() .. ".npy"
  env.large, env.ints, env.doubles = lt.rand(1e7), lt.randint(0, 1e9, {1e7}), lt.rand(1e7, {dtype = "float64"})
  env.wide = lt.rand(2, 1e7)
  env.row, env.column = lt.rand(1, 2e7) + 0.5, lt.rand(4e6, 5) + 0.5
  env.rows, env.bytes = lt.rand(4, 4e6), lt.randint(0, 200, {4e7}):to "uint8"
  env.batch, env.filter = lt.rand(16, 32, 128, 128), lt.rand(32, 32, 3, 3)
  env.list = {} for i = 1, 1e6 do env.list[i] = i end
  lines = {}
  local skipped = {backward = true, grad = true, register_hook = true, free = true, cuda = true, pin_memory = true}
  for _, d in ipairs(names.list) do
    if not skipped[d.name] then lines[#lines + 1] = examples.example(d) end
  end
  -- What is reduced, or needs a whole row: of one row, of few columns, with other ops around, and backward.
  local reducing = {"sum(D)", "mean(D)", "prod(D)", "max(D)", "min(D)", "amax(D)", "amin(D)", "argmax(D)", "argmin(D)",
    "gt(2):any(D)", "gt(0):all(D)", "std(D)", "var(D)", "var_mean(D)", "aminmax {dim = D}", "norm(2, D)", "norm(1, D)",
    "logsumexp(D)", "softmax(D)", "log_softmax(D)", "softmin(D)", "nansum(D)", "nanmean(D)", "count_nonzero(D)",
    "cumsum(D)", "cumprod(D)", "cummax(D)", "logcumsumexp(D)", "median(D)", "nanmedian(D)", "mode(D)", "sort(D)",
    "argsort(D)", "topk(3, D)", "kthvalue(3, D)", "quantile(0.5, D)", "flip(D)", "roll(3, D)", "diff(1, D)",
    "renorm(2, D, 1)", "unique_consecutive()", "half():softmax(D)", "double():softmax(D)", "bfloat16():sum(D)",
    "long():sum(D)", "to('uint8'):amax(D)"}
  for _, op in ipairs(reducing) do
    lines[#lines + 1] = "row:" .. op:gsub("D", "1")
    lines[#lines + 1] = "column:" .. op:gsub("D", "0")
  end
  for _, op in ipairs {"sum", "mean", "prod", "std", "logsumexp", "softmax", "log_softmax", "norm", "amax", "cumsum"} do
    local call = op == "norm" and "norm(2, %d)" or op .. "(%d)"
    for _, of in ipairs {{"row", 1}, {"column", 0}} do
      local forward = ("(%s:detach():requires_grad_() * 2):sin():"):format(of[1]) .. call:format(of[2])
      lines[#lines + 1] = forward
      lines[#lines + 1] = ("%s:exp():sum():backward()"):format(forward)
    end
  end
  for _, line in ipairs {"layer_norm(row, {2e7})", "rms_norm(row, {2e7})", "normalize(row)", "glu(row)",
      "group_norm(row:view(1, 2, -1), 1)", "instance_norm(row:view(1, 2, -1))", "batch_norm(column, nil, nil, nil, "
      .. "nil, true)", "cross_entropy(row, lt.zeros(1, {dtype = 'int64'}))", "cosine_similarity(row, row)",
      "pairwise_distance(row, row)", "mse_loss(row, row)", "kl_div(row, row)", "gumbel_softmax(row)",
      "adaptive_avg_pool1d(row:view(1, 1, -1), 1)", "avg_pool1d(row:view(1, 1, -1), 1000000)",
      "max_pool1d(row:view(1, 1, -1), 1000000)", "linear(row, lt.ones(1, 2e7))"} do
    lines[#lines + 1] = "lt.nn.functional." .. line
  end
  local given = {}
  for name, value in pairs(env) do given[name] = value end
  -- A line may leave its inputs changed: x:set_().
  function renew()
    for name, value in pairs(given) do
      env[name] = lt.is_tensor(value) and not value.requires_grad and value:detach() or value
    end
  end
  function eager(line) return setfenv(assert(loadstring("return " .. line, "=line")), env) end
  function compiled(line) return lt.compile(eager(line)) end
)lua";

const char* const kLines[] = {
    "(function(x) for i = 1, 40 do x = (x:sin() + x:cos()):exp():log1p() end return x end)(rows:narrow(1, 0, 125000))",
    "large:sort()",
    "rows:sort(1)",
    "rows:sort(0)",
    "large:topk(5)",
    "large:topk(1e6)",
    "rows:topk(5)",
    "rows:topk(1e5)",
    "large:kthvalue(7)",
    "large:median()",
    "large:mode()",
    "ints:unique()",
    "rows:unique(true)",
    "ints:mode()",
    "rows:kthvalue(5)",
    "large:cumsum(0)",
    "large:cumprod(0)",
    "large:cummax(0)",
    "large:logcumsumexp(0)",
    "rows:cumsum(1)",
    "rows:cummax(1)",
    "doubles:cumsum(0)",
    "large:quantile(0.5)",
    "large:histc(100)",
    "bytes:bincount()",
    "(ints % 1000):bincount()",
    "large:nonzero()",
    "large:gt(0.5):nonzero()",
    "large:masked_select(large:gt(0.5))",
    "large[large:gt(0.5)]",
    "large:index_select(0, ints % 1e7)",
    "large:scatter(0, ints % 1e7, large)",
    "large:scatter_add(0, ints % 1e7, large)",
    "large:index_add(0, ints % 1e7, large)",
    "large:index_put({ints % 1e7}, large)",
    "large:index_copy(0, ints % 1e7, large)",
    "large:scatter_reduce(0, ints % 1e7, large, 'amax')",
    "large:take(ints % 1e7)",
    "large:put(ints % 1e7, large)",
    "large:searchsorted(large)",
    "large:isin(large)",
    "large:multinomial(1000)",
    "large:multinomial(1000, true)",
    "large:bernoulli()",
    "lt.randperm(1e7)",
    "lt.conv2d(batch, filter)",
    "lt.conv2d(batch, lt.rand(32, 1, 3, 3), nil, 1, 1, 1, 32)",
    "lt.conv1d(lt.rand(1, 4, 4e6), lt.rand(4, 4, 9))",
    "lt.conv_transpose2d(batch, filter)",
    "m:mm(m)",
    "m:double():mm(m:double())",
    "m:half():mm(m:half())",
    "m:long():mm(m:long())",
    "lt.rand(4, 5e6):mm(lt.rand(5e6, 4))",
    "lt.rand(1, 2e7):mm(lt.rand(2e7, 1))",
    "large:dot(large)",
    "lt.rand(4000, 4000):mv(lt.rand(4000))",
    "lt.rand(1, 1, 4096, 64):scaled_dot_product_attention(lt.rand(1, 1, 4096, 64), lt.rand(1, 1, 4096, 64))",
    "large:tolist()",
    "lt.tensor(list)",
    "tostring(large)",
    "lt.save(path, large)",
    "lt.save(path, {a = large})",
    "lt.load(path)",
    "large:clone():sort()",
    "lt.cdist(lt.rand(3000, 500), lt.rand(3000, 500))",
    "large:equal(large:clone())",
    "large:allclose(large)",
    "lt.combinations(lt.rand(4000))",
    "large:to('float16'):sort()",
    "(ints % 10):unique_consecutive()",
    "lt.lgamma(large)",
    "lt.polygamma(3, large)",
    "lt.igamma(large + 1, large)",
    "large:repeat_interleave(3)",
    "large:repeat_interleave(ints % 3)",
    "lt.embedding(ints % 2048, m:narrow(1, 0, 4))",
    "large:view(2, -1):std(1)",
    "large:renorm(2, 0, 1)",
    "large:histogram(100)",
    "lt.histogramdd(large:view(-1, 2), 10)",
    "large:view(100, -1):t():contiguous():sum(0)",
    "lt.unique(rows:narrow(1, 0, 1e5):t(), {dim = 0})",
    "lt.ctc_loss(lt.randn(1000, 64, 100):log_softmax(2), "
    "lt.randint(1, 100, {64, 200}), lt.full({64}, 1000, {dtype = 'int64'}), lt.full({64}, 200, {dtype = 'int64'}))",
    "lt.weight_int8pack_mm(lt.rand(256, 4096), lt.randint(-100, 100, {8192, 4096}):to('int8'), lt.rand(8192))",
    "lt.from_dlpack(large:to_dlpack())",
    "large:to_dlpack()",
    "lt.stack({large, large})",
    "lt.cat({large, large})",
    "large:flip(0)",
    "large:roll(3)",
    "lt.kron(lt.rand(2000), lt.rand(5000))",
    "lt.rand(3000, 3000):tril()",
    "lt.einsum('ij,jk,kl->il', m, m, m)",
    "lt.bilinear(lt.rand(512, 256), lt.rand(512, 256), lt.rand(128, 256, 256))",
    "rows:narrow(1, 0, 3.9e6):lgamma()",
    "wide:narrow(1, 0, 9.9e6):sin()",
    "wide:narrow(1, 0, 9.9e6):sin() * 2 + wide:narrow(1, 0, 9.9e6):cos():exp()",
    "wide:softmax(1)",
    "wide:sum(1)",
    "wide:std(1)",
    "lt.nn.functional.layer_norm(wide, {1e7})",
    "wide:cumsum(1)",
    "lt.im2col(image, {5, 5})",
    "lt.local_response_norm(image, 9)",
    "lt.col2im(lt.rand(4, 36, 1022 * 1022), {1024, 1024}, {3, 3})",
    "lt.nn.functional.avg_pool2d(image, 7, 1)",
    "lt.nn.functional.max_pool2d(image, 7, 1)",
    "lt.nn.functional.interpolate(image, {scale_factor = 2, mode = 'bicubic'})",
    "lt.nn.functional.interpolate(image, {scale_factor = 3, mode = 'nearest'})"};

// The thread's looks, counted down in looks_to_pass, as another thread sees them.
class Watcher {
 public:
  Watcher() : left_(&looks_to_pass) {
    pthread_getcpuclockid(pthread_self(), &clock_);
    *left_ = kEndless;
    begin_ = now();
    thread_ = std::thread([this] {
      double last = begin_;
      int64_t seen = kEndless;
      while (!done_) {
        timespec pause = {0, 500'000};
        nanosleep(&pause, nullptr);
        const int64_t here = std::atomic_ref<int64_t>(*left_).load();
        const double t = now();
        if (here > 0) looks = kEndless - here;
        if (here != seen) seen = here, last = t;
        longest_ = std::max(longest_, t - last);
        // Again, where the thread has counted down meanwhile.
        if (t - begin_ > kEnough && here > 0) std::atomic_ref<int64_t>(*left_).store(seen = 0);
      }
    });
  }
  // Seconds of the longest time between two looks.
  double stop() {
    total = now() - begin_;
    done_ = true;
    thread_.join();
    return longest_;
  }
  double total = 0;
  int64_t looks = 0;

 private:
  double now() const {
    timespec t;
    clock_gettime(clock_, &t);
    return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
  }
  int64_t* left_;
  clockid_t clock_;
  double begin_ = 0, longest_ = 0;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// The longest time without a look of a call of the function on the stack, which stays.
double lateness_of_call(LutraState& s, const std::string& what) {
  lua_pushvalue(s.L, -1);
  stop_reason = "never";
  Watcher watcher;
  const int status = lua_pcall(s.L, 0, 0, 0);
  const double longest = watcher.stop();
  stop_reason = nullptr;
  looks_to_pass = 0;
  const std::string error = status && lua_isstring(s.L, -1) ? lua_tostring(s.L, -1) : "";
  if (status) lua_pop(s.L, 1);
  if (getenv("LUTRA_TEST_VERBOSE")) {
    fprintf(stderr, "%6.3f of %6.3f s, %7lld looks: %s: %.90s\n", longest, watcher.total, (long long)watcher.looks,
            what.c_str(), error.c_str());
  }
  return longest;
}

// Returns the least lateness over a few tries of a line. A try is two calls, since the first call of a compiled
// function is its capture.
double lateness(LutraState& s, const char* how, const std::string& line) {
  double best = INFINITY;
  for (int run = 0; run < 3 && best > kLongest; run++) {
    s.run("renew()");
    lua_getglobal(s.L, how);
    lua_pushstring(s.L, line.c_str());
    if (lua_pcall(s.L, 1, 1, 0) != 0) {
      WARN(lua_tostring(s.L, -1));
      lua_settop(s.L, 0);
      return 0;
    }
    double longest = lateness_of_call(s, std::string(how) + " " + line);
    if (std::string(how) == "compiled") longest = std::max(longest, lateness_of_call(s, "again    " + line));
    lua_settop(s.L, 0);
    lua_gc(s.L, LUA_GCCOLLECT, 0);
    best = std::min(best, longest);
  }
  return best;
}

}  // namespace

TEST_CASE("no op goes on for long without a look", "[.lateness]") {
  LutraState s(kInputs);
  std::vector<std::string> lines(std::begin(kLines), std::end(kLines));
  const int count = int(s.number("return #lines"));
  for (int i = 1; i <= count; i++) {
    s.run("return lines[" + std::to_string(i) + "]");
    lines.push_back(lua_tostring(s.L, -1));
    lua_settop(s.L, 0);
  }
  const char* filter = getenv("LUTRA_TEST_FILTER");
  for (const std::string& line : lines) {
    if (filter && line.find(filter) == std::string::npos) continue;
    INFO(line);
    for (const char* how : {"eager", "compiled"}) CHECK(lateness(s, how, line) <= kLongest);
  }
}

}  // namespace lutra
