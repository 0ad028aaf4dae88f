-- lutra scripts/bench/calls.lua: measures what a compiled call costs without its kernels: a tiny graph, guards,
-- parameters of a module, many entries. Then times a training loop in a main chunk under lt.auto, beside the same loop
-- around a compiled step. Prints minima in ns of CPU time. LuaJIT's JIT is off.
local lt = require "lutra"
local nn = lt.nn
jit.off()

local function fastest(calls, run)
  local best = math.huge
  for _ = 1, 25 do
    local start = os.clock()
    run(calls)
    best = math.min(best, (os.clock() - start) / calls)
  end
  return best * 1e9
end

local function report(what, ns) print(("%-58s %8.0f"):format(what, ns)) end

local function time_calls(what, f, ...)
  local a, b = ...
  for _ = 1, 100 do f(a, b) end
  report(what, fastest(1000, function(n) for _ = 1, n do f(a, b) end end))
end

local x = lt.randn(3)
time_calls("a tiny graph", lt.compile(function(y) return y + 1 end), x)

for _, n in ipairs {50, 400} do
  local config, lines = {}, {"local c = ... return function(x) local s = 0"}
  for i = 1, n do
    config["f" .. i] = "v" .. i
    lines[#lines + 1] = ("if c.f%d ~= 'v%d' then s = s + 1 end"):format(i, i)
  end
  lines[#lines + 1] = "return x + s end"
  local f = loadstring(table.concat(lines, "\n"))(config)
  time_calls(("the same with %d guards of fields"):format(n), lt.compile(f), x)
end

do
  local Wide = nn.Module:extend("Wide")
  local lines = {"return function(self, x) local s = x"}
  for i = 1, 100 do lines[#lines + 1] = ("s = s + self.p%d"):format(i) end
  Wide.forward = loadstring(table.concat(lines, "\n") .. " return s end")()
  function Wide:init() for i = 1, 100 do self["p" .. i] = nn.Parameter(lt.randn(3)) end end
  local wide = Wide()
  local f = lt.compile(function(y) return wide(y) end)
  lt.no_grad(function() time_calls("100 parameters of a module", f, x) end)
  time_calls("the same with gradients", f, x)
end

lt.config.recompile_limit = 5000
local function entries(what, make)
  for _, n in ipairs {1, 100, 1000} do
    lt.reset()
    local f, calls = make(n)
    for _ = 1, 12 do
      for i = 1, n do f(calls[i], x) end
    end
    time_calls(("%s: %d entries, the same one"):format(what, n), f, calls[1], x)
    report(("%s: %d entries in turn"):format(what, n), fastest(n * math.ceil(1000 / n), function(total)
      for at = 0, total - 1 do f(calls[at % n + 1], x) end
    end))
  end
end
entries("sizes", function(n)
  local calls = {}
  for i = 1, n do calls[i] = lt.ones(i + 1) end
  return lt.compile(assert(loadstring("return function(y) return y + 1 end"))(), {dynamic = false}), calls
end)
-- The same tensors with one entry. They are cold in the caches, too: the difference is the cost of the entries.
entries("sizes of one entry", function(n)
  local calls = {}
  for i = 1, n do calls[i] = lt.ones(i + 1) end
  return lt.compile(assert(loadstring("return function(y) return y + 1 end"))(), {dynamic = true}), calls
end)
entries("functions", function(n)
  local calls = {}
  for i = 1, n do calls[i] = assert(loadstring("return function(y) return y + " .. i .. " end"))() end
  return lt.compile(assert(loadstring("return function(f, y) return f(y) end"))()), calls
end)

do  -- A thousand functions in turn, without a search for an entry: the cost of cold segments.
  local functions = {}
  for i = 1, 1000 do
    functions[i] = lt.compile(assert(loadstring("return function(y) return y + " .. i .. " end"))())
  end
  for _ = 1, 12 do
    for i = 1, 1000 do functions[i](x) end
  end
  report("1000 functions of one entry in turn", fastest(1000, function(n) for i = 1, n do functions[i](x) end end))
end

-- Returns the time of a step in ns, from the fastest epoch.
local loop = [[
  local lt, wrap = ...
  local nn, F = lt.nn, lt.nn.functional
  lt.manual_seed(1)
  local net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 4))
  local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-3})
  local data, labels = lt.randn(512, 32), lt.randint(0, 4, {512})
  %s
  local best = math.huge
  for epoch = 1, 300 do
    local start = os.clock()
    for b = 0, 15 do
      local x, y = data:narrow(0, b * 32, 32), labels:narrow(0, b * 32, 32)
      %s
    end
    best = math.min(best, os.clock() - start)
  end
  return best / 16 * 1e9]]
local body = "local loss = F.cross_entropy(net(x), y) opt:zero_grad() loss:backward() opt:step()"
local function train(head, step) return assert(loadstring(loop:format(head, step), "=train")) end
local as_step = ("local step = wrap(function(x, y) %s end)"):format(body)
local function as_it_is(f) return f end
report("a train step, eager", train("", body)(lt))
report("the same, annotated", train(as_step, "step(x, y)")(lt, lt.compile))
lt.auto(true)
report("the same in a main chunk, lt.auto", train("", body)(lt))
report("the same as a function of its own, lt.auto", train(as_step, "step(x, y)")(lt, as_it_is))
