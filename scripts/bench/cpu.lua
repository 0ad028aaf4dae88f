-- Times eager and compiled code on the CPU. Prints a line of JSON per case, {case, threads, eager_ms, compiled_ms,
-- compile_ms}; times are medians. Train steps also have peak_mb, the peak memory of this process since the case began.
-- The line "limits" has this machine's rates: copy_gbps (4 MB in place, in the cache) and gemm_gflops.
--   lutra scripts/bench/cpu.lua [--threads N] [--seconds S] [CASE...]     a CASE stands for all that begin with it
local lt = require "lutra"
local nn = lt.nn

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")(arg, {threads = 2, seconds = 1})
local threads, seconds = common.options.threads, common.options.seconds
local is_wanted, median, models = common.is_wanted, common.median, common.models
local function emit(name, fields) common.emit(name, fields, {{"threads", threads}}) end
lt.config.num_threads = threads
lt.manual_seed(0)

-- With large results the garbage collector runs once in a few calls. Each sample has so many calls that it has its
-- share.
local CALLS = 16

-- Returns the median time of a call of f in ms. A sample is `calls` calls.
local function bench(f, calls)
  calls = calls or 1
  for _ = 1, 3 * calls do f() end
  local times, start = {}, lt.perf_counter()
  repeat
    local before = lt.perf_counter()
    for _ = 1, calls do f() end
    local now = lt.perf_counter()
    times[#times + 1] = (now - before) / calls * 1e3
  until now - start > seconds and #times >= 5
  collectgarbage()
  return median(times)
end

-- The most memory that this process has held since reset_peak.
local function reset_peak()
  local refs = io.open("/proc/self/clear_refs", "w")
  if refs then refs:write("5") refs:close() end
end
local function peak_mb()
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^VmHWM:%s*(%d+)")
    if kb then return tonumber(kb) / 1024 end
  end
  return 0
end

-- f eager, then the same compiled. make() gives f on fresh state, so that both sides do the same work.
local function both(name, make, calls, with_peak)
  if not is_wanted(name) then return end
  local eager_ms = bench(make(), calls)
  collectgarbage()
  collectgarbage()
  reset_peak()
  local compiled = make(lt.compile)
  local start = lt.perf_counter()
  compiled()
  local first = (lt.perf_counter() - start) * 1e3
  local compiled_ms = bench(compiled, calls)
  local fields = {{"eager_ms", eager_ms}, {"compiled_ms", compiled_ms},
    {"compile_ms", math.max(first - compiled_ms, 0)}}
  if with_peak then fields[#fields + 1] = {"peak_mb", peak_mb()} end
  emit(name, fields)
end

-- A case without gradients: op(...) on fixed tensors.
local function plain(name, op, ...)
  local a, b, c = ...
  both(name, function(compile)
    local f = compile and compile(op) or op
    return function() return f(a, b, c) end
  end, CALLS)
end

lt.set_grad_enabled(false)
local x, w, bias = lt.randn(1024, 1024), lt.randn(1024), lt.randn(1024)
do
  local to, a, b = lt.empty(1024, 1024), lt.randn(768, 768), lt.randn(768, 768)
  local copy, gemm = bench(function() to:copy_(x) end), bench(function() a:mm(b):free() end)
  emit("limits", {{"copy_gbps", 8 * 2 ^ 20 / copy / 1e6}, {"gemm_gflops", 2 * 768 ^ 3 / gemm / 1e6}})
end
plain("copy", function(t) return t:clone() end, x)
plain("gelu_bias_res", function(t, scale, shift) return lt.nn.functional.gelu(t * scale + shift, {approximate = "tanh"})
  + t end, x, w, bias)
plain("softmax", function(t) return t:softmax(-1) end, x)
plain("sum_dim0", function(t) return t:sum(0) end, x)
plain("layernorm", function(t, scale, shift)
  local mean = t:mean(-1, true)
  local centred = t - mean
  return centred * ((centred * centred):mean(-1, true) + 1e-5):rsqrt() * scale + shift
end, x, w, bias)
for _, n in ipairs {128, 512, 1024} do
  plain("matmul_" .. n, function(a, b) return a:mm(b) end, lt.randn(n, n), lt.randn(n, n))
end

local tiny_a, tiny_b = lt.randn(3), lt.randn(3)
local function tiny(a, b) return a + b end
both("tiny_graph", function(compile)
  local f = compile and compile(tiny) or tiny
  return function() return f(tiny_a, tiny_b) end
end, 1000)
lt.set_grad_enabled(true)

local function train_step(name, make_net, make_data, loss_of)
  both(name, common.train_step(make_net, make_data, 1e-3, loss_of), 1, true)
end
local function loss_of(net, x, y) return nn.functional.cross_entropy(net(x), y) end
train_step("mlp_b128_adamw", models.mlp, function() return lt.randn(128, 784), lt.randint(0, 10, {128}) end, loss_of)
train_step("chargpt_d128_l4_b16_t128_adamw", models.chargpt, function() return lt.randint(0, 96, {16, 128}),
  lt.randint(0, 96, {16, 128}) end,
  function(net, x, y) return nn.functional.cross_entropy(net(x):view(-1, 96), y:view(-1)) end)
train_step("convnet_b64_adamw", models.Convnet, function() return lt.randn(64, 1, 28, 28), lt.randint(0, 10, {64}) end,
  loss_of)

if is_wanted("startup") then
  local link = assert(io.popen("readlink /proc/$PPID/exe")) -- this program
  local command = string.format("exec '%s' -e ''", link:read("*l"))
  link:close()
  assert(os.execute(command) == 0, "cannot run " .. command)
  emit("startup", {{"eager_ms", bench(function() os.execute(command) end)}})
end
