-- Lutra's side of `ops`. Reads requests from stdin and answers each with a line of JSON. Tabs separate the fields:
--   set NAME EXPRESSION             makes an input
--   case INPUTS EXPRESSION          makes the case, eager and compiled; returns the bytes of its inputs and results
--   time eager|compiled SECONDS     samples for so long; returns the median, in ms per call
--   lutra scripts/bench/ops_lutra.lua THREADS cpu|wall [free]
-- With `free` a case frees its results at once, as PyTorch does. So the times have no share of the garbage collector.
local lt = require "lutra"

lt.config.num_threads = tonumber(arg[1])
lt.set_grad_enabled(false)
lt.manual_seed(0)
-- CPU time does not count the time in which other processes use the core.
local clock = arg[2] == "cpu" and os.clock or lt.perf_counter
local inputs, forms = {}, {}

local frees = arg[3] == "free"

local function expression(parameters, text)
  local chunk = ("local lt, F = ... return function(%s) return %s end"):format(parameters, text)
  return assert(loadstring(chunk, "=case"))(lt, lt.nn.functional)
end

local function bytes_of(...)
  local sum = 0
  for i = 1, select("#", ...) do
    local t = select(i, ...)
    if lt.is_tensor(t) then sum = sum + t:numel() * t:element_size() end
  end
  return sum
end

local function of_names(names)
  local list, count = {}, 0
  for name in names:gmatch "[^,]+" do
    count = count + 1
    list[count] = inputs[name]
  end
  return list, count
end

-- Whether a result may be freed: a view has its input's memory.
local function is_own(t, ...)
  if not lt.is_tensor(t) then return false end
  for i = 1, select("#", ...) do
    local input = select(i, ...)
    if lt.is_tensor(input) and input:data_ptr() == t:data_ptr() then return false end
  end
  return true
end

local serve = {}
function serve.set(name, text)
  inputs[name] = expression("", text)()
  return {}
end
function serve.case(names, text)
  local list, count = of_names(names)
  local eager = expression(names, text)
  local compiled = lt.compile(expression(names, text))
  local a, b, c, d = unpack(list, 1, count)
  local function run(f)
    if not frees then return f(a, b, c, d) end
    local r, s = f(a, b, c, d)
    if is_own(r, a, b, c, d) then r:free() end
    if is_own(s, a, b, c, d) then s:free() end
  end
  forms = {eager = function() return run(eager) end, compiled = function() return run(compiled) end}
  return {bytes = bytes_of(a, b, c, d) + bytes_of(eager(a, b, c, d))}
end
function serve.time(form, seconds)
  local f, calls, times = forms[form], 1, {}
  for _ = 1, 3 do f() end
  local before = clock()
  f()
  -- The collector runs once in a few calls that make large results: a sample has its share.
  calls = math.max(16, math.ceil(0.002 / math.max(clock() - before, 1e-6)))
  calls = math.min(calls, math.max(1, math.ceil(tonumber(seconds) / 3 / math.max(clock() - before, 1e-6))))
  local start = lt.perf_counter()
  repeat
    before = clock()
    for _ = 1, calls do f() end
    times[#times + 1] = (clock() - before) / calls * 1e3
  until lt.perf_counter() - start > tonumber(seconds) and #times >= 3
  table.sort(times)
  return {ms = times[math.floor((#times + 1) / 2)]}
end

for line in io.lines() do
  local what, first, second = line:match "^([^\t]*)\t([^\t]*)\t(.*)$"
  local fine, reply = pcall(serve[what], first, second)
  print(lt._native.json(fine and reply or {error = tostring(reply)}))
  io.stdout:flush()
end
