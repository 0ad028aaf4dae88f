-- Times eager and compiled code on a GPU. Prints a line of JSON per case, {case, eager_ms, compiled_ms, compile_ms,
-- gbps, peak_mb}. Times are medians of GPU time between two events. Products may use TF32. torch_gpu_peer.py runs the
-- same cases in PyTorch.
--   lutra scripts/bench/gpu.lua [--seconds S] [CASE...]     a CASE stands for all that begin with it
local lt = require "lutra"
local functional = lt.nn.functional

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")(arg, {seconds = 0.3})
local seconds, is_wanted, median, emit, models = common.options.seconds, common.is_wanted, common.median, common.emit,
  common.models
if not lt.cuda.is_available() then
  local _, why = pcall(lt.cuda.set_device, 0)
  io.stderr:write("bench: ", (why:gsub("^.-cuda%.set_device: ", "")), "\n")
  os.exit(2)
end
lt.set_default_device("cuda")
lt.set_float32_matmul_precision("high")
lt.manual_seed(0)
-- One function trains all models, so each model is an entry of that function.
lt.config.recompile_limit = 64

-- With large results the garbage collector runs once in a few calls. Each sample has so many calls that it has its
-- share.
local CALLS = 16

local function bench(f, calls)
  local ms = common.gpu_ms(f, {calls = calls, seconds = seconds, warmup = 5, samples = 10})
  collectgarbage()
  return ms
end

-- Returns the median time of the host for a call of f, in us.
local function host(f, calls)
  local times = {}
  for round = 1, 7 do
    lt.cuda.synchronize()
    local before = lt.perf_counter()
    for _ = 1, calls do f() end
    times[round] = (lt.perf_counter() - before) / calls * 1e6
  end
  return median(times)
end

-- make() gives a function on fresh state, make(lt.compile) its compiled form.
local function both(name, make, calls, bytes)
  if not is_wanted(name) then return end
  local ok, problem = pcall(function()
    local eager_ms = bench(make(), calls)
    -- What the cases before have left: LuaJIT's traces hold what they ran, and a GPU keeps working memory.
    jit.flush()
    collectgarbage()
    collectgarbage()
    lt.cuda.empty_cache()
    lt.cuda.reset_peak_memory_stats()
    local compiled = make(lt.compile)
    local start = lt.perf_counter()
    compiled()
    lt.cuda.synchronize()
    local first = (lt.perf_counter() - start) * 1e3
    local compiled_ms = bench(compiled, calls)
    local fields = {{"eager_ms", eager_ms}, {"compiled_ms", compiled_ms},
      {"compile_ms", math.max(first - compiled_ms, 0)},
                    {"peak_mb", lt.cuda.max_memory_allocated() / 2 ^ 20}}
    if bytes then fields[#fields + 1] = {"gbps", bytes / compiled_ms / 1e6} end
    emit(name, fields)
  end)
  if not ok then print(lt._native.json {case = name, error = tostring(problem)}) end
end

local function plain(name, op, bytes, ...)
  local a, b, c = ...
  both(name, function(compile)
    local f = compile and compile(op) or op
    return function() return f(a, b, c) end
  end, CALLS, bytes)
end

lt.set_grad_enabled(false)
if is_wanted("kernel_") then
  local n = 8192
  local x, w, b = lt.randn(n, n), lt.randn(n), lt.randn(n)
  local once = n * n * 4
  plain("kernel_copy", function(x) return x:clone() end, 2 * once, x)
  plain("kernel_gelu_bias_res", function(x, w, b) return functional.gelu(x * w + b, {approximate = "tanh"}) + x end,
    2 * once, x, w, b)
  plain("kernel_softmax", function(x) return x:softmax(-1) end, 2 * once, x)
  plain("kernel_layernorm", function(x, w, b) return functional.layer_norm(x, {8192}, w, b) end, 2 * once, x, w, b)
  plain("kernel_rmsnorm", function(x, w) return x * (x:pow(2):mean(-1, true) + 1e-5):rsqrt() * w end, 2 * once, x, w)
  plain("kernel_sum_all", function(x) return x:sum() end, once, x)
  plain("kernel_sum_dim0", function(x) return x:sum(0) end, once, x)
  plain("kernel_transpose_add", function(x, w) return x:t():contiguous() + w end, 2 * once, x, w)
end
if is_wanted("matmul") then
  for _, n in ipairs {1024, 4096, 8192} do
    plain("matmul_" .. n .. "_float32", function(a, b) return a:mm(b) end, nil, lt.randn(n, n), lt.randn(n, n))
    plain("matmul_" .. n .. "_bfloat16", function(a, b) return a:mm(b) end, nil, lt.randn(n, n):to("bfloat16"),
      lt.randn(n, n):to("bfloat16"))
  end
end
if is_wanted("overhead") then
  local a, b = lt.randn(3), lt.randn(3)
  local compiled = lt.compile(function(a, b) return a + b end)
  for _ = 1, 50 do compiled(a, b) end
  emit("overhead",
    {{"eager_add_us", host(function() return a + b end, 2000)},
    {"compiled_add_us", host(function() return compiled(a, b) end, 2000)}})
end
lt.set_grad_enabled(true)

local function loss_of(net, x, y)
  local out = net(x)
  return functional.cross_entropy(out:view(-1, out:size(-1)), y:view(-1))
end

-- Forward in bfloat16 where `autocast` is given.
local function train_step(name, make_net, make_data, autocast)
  both(name, common.train_step(make_net, make_data, 1e-4, function(net, x, y)
    return lt.autocast("cuda", {dtype = "bfloat16", enabled = autocast or false}, loss_of, net, x, y)
  end), 1)
end
local function tokens(vocabulary, ...)
  local shape = {...}
  return function() return lt.randint(0, vocabulary, shape), lt.randint(0, vocabulary, shape) end
end

train_step("mlp_b128_adamw", models.mlp, function() return lt.randn(128, 784), lt.randint(0, 10, {128}) end)
train_step("convnet_b64_adamw", models.Convnet, function() return lt.randn(64, 1, 28, 28), lt.randint(0, 10, {64}) end)
train_step("chargpt_d128_l4_b16_t128_adamw", models.chargpt, tokens(96, 16, 128))
local nets = dofile(here .. "convnets.lua")
local function images(batch)
  return function() return lt.randn(batch, 3, 224, 224), lt.randint(0, 1000, {batch}) end
end
for _, autocast in ipairs {false, true} do
  local kind = autocast and "_bf16" or ""
  train_step("resnet50_b32_adamw" .. kind, function() return nets.resnet50(1000) end, images(32), autocast)
  train_step("mobilenet_v2_b96_adamw" .. kind, function() return nets.mobilenet_v2(1000) end, images(96), autocast)
  train_step("gpt2_124m_b8_t512_adamw" .. kind, function()
    return models.GPT {d = 768, heads = 12, layers = 12, vocabulary = 50257, length = 1024}
  end, tokens(50257, 8, 512), autocast)
end
