-- lutra scripts/bench/cliffs.lua [NAME...]: runs ordinary programs that once lost their compiled code. Prints a line
-- per program: its graphs, graph breaks and recompiles, and the CPU time of a compiled and of an eager call in us. The
-- times are medians of alternating blocks, over all argument values. LuaJIT's JIT is off.
local clock = os.clock
local lt = require "lutra"
local started = clock()
lt.ones(64, 64):mm(lt.ones(64, 64))
local first_product = (clock() - started) * 1e3
local nn, F = lt.nn, lt.nn.functional
jit.off()
lt.config.num_threads = 1  -- CPU time is that of all threads

local wanted = {}
for _, name in ipairs(arg) do wanted[name] = true end

local kBlocks = 15

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local median = dofile(here .. "../models/common.lua").median

-- Returns the number of rounds over all values with which a block takes about 5 ms.
local function rounds_of(f, values)
  local start = clock()
  for i = 1, #values do f(values[i]) end
  return math.max(1, math.floor(0.005 / math.max(clock() - start, 1e-7)))
end

local function block(f, values, rounds)
  local start = clock()
  for _ = 1, rounds do
    for i = 1, #values do f(values[i]) end
  end
  return (clock() - start) / rounds / #values * 1e6
end

local function total(counts)
  local n = 0
  for _, count in pairs(counts) do n = n + count end
  return n
end

local function line(name, what, counters, compiled, eager, eager_is)
  print(("%-4s %-46s %7d %7d %10d %10.2f %10.2f %6.2f%s"):format(name, what, counters.stats.unique_graphs,
    total(counters.graph_break), total(counters.recompiles), compiled, eager, compiled / eager, eager_is or ""))
  io.stdout:flush()
end

-- make(frame) returns a new function of one value, whose frames to compile are passed through frame(f). options: those
-- of lt.compile.
local function measure(name, what, make, values, options)
  if next(wanted) and not wanted[name] then return end
  lt.reset()
  lt.manual_seed(1)
  local eager = make(function(f) return f end)
  local compiled = make(function(f) return lt.compile(f, options) end)
  for _ = 1, 3 do
    for i = 1, #values do compiled(values[i]) eager(values[i]) end
  end
  local counters = lt.counters()
  local rounds, a, b = rounds_of(eager, values), {}, {}
  for i = 1, kBlocks do a[i], b[i] = block(compiled, values, rounds), block(eager, values, rounds) end
  line(name, what, counters, median(a), median(b))
end

local function simple(f) return function(frame) return frame(f()) end end
local function numbers(first, last)
  local list = {}
  for i = first, last do list[#list + 1] = i end
  return list
end
local function log() end
lt.disable(log)

print(("%-4s %-46s %7s %7s %10s %10s %10s %6s"):format("", "program", "graphs", "breaks", "recompiles", "compiled us",
  "eager us", "ratio"))

-- C1: a whole number that becomes a size, an index, a bound.
do
  local x, image = lt.randn(64, 8), lt.randn(24, 4)
  local K, k = lt.zeros(2, 4, 64, 8), lt.randn(2, 4, 1, 8)
  local sizes = {}
  for i = 1, 12 do sizes[i] = lt.randn(i + 1, 4) end
  local function one(what, f, values) measure("C1", what, simple(function() return f end), values or numbers(2, 40)) end
  one("K[{':', ':', {pos, pos + 1}}] = k", function(pos)
    K[{":", ":", {pos, pos + 1}}] = k
    return (K * 2):sum()
  end)
  one("x:narrow(0, pos, 1)", function(pos) return x:narrow(0, pos, 1) * 2 + 1 end)
  one("lt.zeros(n, 4)", function(n) return lt.zeros(n, 4) + 1 end)
  one("lt.arange(n)", function(n) return lt.arange(n) * 2 end)
  one("x[i]", function(i) return x[i] * 2 + 1 end)
  one("x:topk(k)", function(n) return (x:view(-1):topk(n)) * 2 end)
  one("x:view(n, -1)", function(n) return image:view(n, -1):sum(1) * 2 end, {2, 3, 4, 6, 8, 12})
  one("for i = 1, n", function(n)
    local y = x
    for i = 1, n do y = y * 0.5 + i end
    return y
  end, numbers(2, 12))
  one("for i = 1, x.shape[1]", function(y)
    local s = 0
    for i = 1, y.shape[1] do s = s + y[i - 1] * i end
    return s
  end, sizes)
  one("math.max(n, 3)", function(n) return lt.zeros(math.max(n, 3)) + 1 end)
  one("'step ' .. n", function(n)
    local y = x * n
    return y, "step " .. n
  end)
  one("x.shape[1] * x.shape[2] / 2", function(y) return lt.zeros(y.shape[1] * y.shape[2] / 2) + y:sum() end, sizes)
end

-- C2: calls past recompile_limit.
do
  local slices = {}
  for i = 1, 40 do slices[i] = lt.randn(2, i + 1) end
  measure("C2", "a decoding step, 40 sizes, dynamic = false", simple(function()
    return function(k) return (lt.cat({k, k}, 0) * k:sum()):softmax(1):sum() end
  end), slices, {dynamic = false})
  measure("C2", "a tiny step, 40 sizes, dynamic = false", simple(function() return function(k) return k + 1 end end),
    slices, {dynamic = false})
end

-- C3: a callee that breaks before its first op.
do
  local x = lt.randn(64, 64)
  measure("C3", "a callee logs first", simple(function()
    local function g(x)
      log("g")
      return ((x * 2 + 1):relu() - x):tanh()
    end
    return function(x) return g(x) end
  end), {x})
  local Logs = nn.Module:extend("Logs")
  function Logs:init() self.a, self.b = nn.Linear(64, 64), nn.Linear(64, 64) end
  function Logs:forward(x)
    log("forward")
    return self.b(self.a(x):relu())
  end
  measure("C3", "a module's forward begins with a log line", function(frame) return frame(Logs()) end, {x})
  local Deep = nn.Module:extend("Deep")
  function Deep:init()
    self.layers = nn.ModuleList()
    for _ = 1, 4 do self.layers:append(nn.Linear(64, 64)) end
  end
  function Deep:forward(x)
    for i, layer in ipairs(self.layers) do
      log(i)
      x = layer(x):relu()
    end
    return x
  end
  measure("C3", "a module logs in its layer loop", function(frame) return frame(Deep()) end, {x})
end

-- Layers of several kinds, of which one logs.
do
  local Logs = nn.Module:extend("Logs")
  function Logs:init() self.linear = nn.Linear(64, 64) end
  function Logs:forward(x)
    local y = self.linear(x)
    log("forward")
    return y:relu()
  end
  measure("C3", "one layer of a Sequential logs", function(frame)
    local m = nn.Sequential()
    for i = 1, 12 do m:append(i == 3 and Logs() or i % 2 == 1 and nn.Linear(64, 64) or nn.Tanh()) end
    return frame(m)
  end, {lt.randn(4, 64)})
end

-- C4: functions that C calls.
do
  local x = lt.randn(64, 64)
  local function heavy(x)
    for i = 1, 5 do x = (x * 0.5 + i):tanh() end
    return x
  end
  measure("C4", "pcall(heavy, x)", simple(function() return function(x) return select(2, pcall(heavy, x)) end end), {x})
  measure("C4", "xpcall(heavy, debug.traceback, x)", simple(function()
    return function(x) return select(2, xpcall(heavy, debug.traceback, x)) end
  end), {x})
  measure("C4", "a coroutine's body", simple(function()
    return function(x) return coroutine.wrap(function(v) return heavy(v) end)(x) end
  end), {x})
  measure("C4", "callbacks of table.sort and gsub", simple(function()
    return function(x)
      local list = {3, 1, 2}
      table.sort(list, function(a, b) return a > b end)
      local y = x
      ;("abc"):gsub("%a", function() y = heavy(y) end)
      return y * list[1]
    end
  end), {x})
end

-- C5: options as a table.
do
  local function layer(frame)
    lt.manual_seed(2)
    local m = nn.TransformerEncoderLayer(32, 4, {dim_feedforward = 64, dropout = 0})
    return frame(m)
  end
  measure("C5", "nn.TransformerEncoderLayer", layer, {lt.randn(10, 2, 32)})
  measure("C5", "nn.MultiheadAttention with two options", function(frame)
    lt.manual_seed(2)
    local m = nn.MultiheadAttention(32, 4, {dropout = 0})
    local mask = lt.zeros(10, 10)
    return frame(function(x) return (m(x, x, x, {need_weights = false, attn_mask = mask})) end)
  end, {lt.randn(10, 2, 32)})
end

-- C6: many entries of one point, round robin.
do
  local limit = lt.config.recompile_limit
  lt.config.recompile_limit = 5000
  local x = lt.randn(3)
  for _, n in ipairs {1, 1000} do
    local calls = {}
    for i = 1, n do calls[i] = {f = loadstring("return function(x) return x + 1 end")()} end
    measure("C6", n .. " entries, round robin", simple(function()
      return function(o) return o.f(x) end
    end), (function()
      for i = 1, n do calls[i].kind = "k" .. i end
      return calls
    end)())
    measure("C6", n .. " entries by a text, round robin", simple(function()
      return function(o)
        if o.kind == "none" then return x end
        return x + #o.kind
      end
    end), calls)
  end
  lt.config.recompile_limit = limit
end

-- C7: a list that grows.
do
  local rows = {}
  for i = 1, 40 do rows[i] = lt.randn(1, 16) end
  local function growing(what, append)
    measure("C7", what, function(frame)
      local cache = {}
      local step = frame(function(k)
        append(cache, k)
        return lt.cat(cache, 0):sum(0) * 2
      end)
      return function(k)
        if #cache >= 40 then
          for i = #cache, 1, -1 do cache[i] = nil end
        end
        return step(k)
      end
    end, rows)
  end
  growing("cache[#cache + 1] = k, lt.cat(cache)", function(cache, k) cache[#cache + 1] = k end)
  growing("table.insert(cache, k), lt.cat(cache)", table.insert)
end

-- C8: a module picked by a number.
do
  local x = lt.randn(8, 32)
  measure("C8", "w[n](x), n = 1 to 20", function(frame)
    local w = nn.ModuleList()
    for _ = 1, 20 do w:append(nn.Linear(32, 32)) end
    return frame(function(n) return w[n](x):relu() end)
  end, numbers(1, 20))
end

-- C9: the time of the first matrix product of a process.
if not next(wanted) or wanted.C9 then print(("C9   first product of the process: %.1f ms"):format(first_product)) end

-- C10: a training loop in the main chunk under lt.auto, beside the same loop around a compiled step.
if not next(wanted) or wanted.C10 then
  local function train(compile, inner)
    lt.manual_seed(3)
    local net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 8))
    local opt = lt.optim.SGD(net:parameters(), {lr = 0.01})
    local x, y = lt.randn(32, 64), lt.randn(32, 8)
    local text = inner and [[
      local net, opt, x, y, F, n = ...
      for _ = 1, n do
        local loss = F.mse_loss(net(x), y)
        opt:zero_grad() loss:backward() opt:step()
      end]] or [[
      local net, opt, x, y, F, n, compile = ...
      local step = compile(function(x, y)
        local loss = F.mse_loss(net(x), y)
        opt:zero_grad() loss:backward() opt:step()
        return loss
      end)
      for _ = 1, n do step(x, y) end]]
    local chunk = assert(loadstring(text))
    return function(n) return chunk(net, opt, x, y, F, n, compile) end
  end
  -- Medians of steps of two loops whose blocks alternate. lt.auto captures after the program has run for a while, so
  -- that its captures cost a small share of the time.
  local function beside(one, other)
    local a, b = {}, {}
    one(10000)
    other(300)
    for i = 1, kBlocks do
      a[i] = block(function() one(200) end, {1}, 1) / 200
      b[i] = block(function() other(200) end, {1}, 1) / 200
    end
    return median(a), median(b)
  end
  local step
  local function once(f)
    step = step or lt.compile(f)
    return step
  end
  lt.reset()
  local annotated, eager = beside(train(once), train(function(f) return f end))
  line("C10", "annotated step", lt.counters(), annotated, eager)
  lt.reset()
  step = nil
  lt.config.async = false
  local head = train(once)
  head(10)
  lt.auto {threshold = 2}
  local auto, again = beside(train(nil, true), head)
  line("C10", "lt.auto, the loop in the main chunk", lt.counters(), auto, again, " of annotated")
  lt.auto(false)
end

-- A decode loop over a preallocated cache: 1,000 positions beside one.
do
  local heads, most, width = 4, 1000, 16
  local function decode(frame)
    local K, V = lt.zeros(1, heads, most, width), lt.zeros(1, heads, most, width)
    local q, k, v = lt.randn(1, heads, 1, width), lt.randn(1, heads, 1, width), lt.randn(1, heads, 1, width)
    return frame(function(pos)
      K[{":", ":", {pos, pos + 1}}] = k
      V[{":", ":", {pos, pos + 1}}] = v
      local mask = lt.arange(most):le(pos)
      local scores = q:matmul(K:transpose(2, 3)) * 0.25
      return scores:masked_fill(mask:logical_not(), -1e9):softmax(-1):matmul(V)
    end)
  end
  measure("KV", "decode, 1,000 positions", decode, numbers(0, most - 1))
  measure("KV", "decode, one position", decode, {500})
end
