-- Shared by the benchmarks in Lua: reads options and names of cases, prints a line of JSON per case, has the models of
-- cpu.lua and gpu.lua. The caller passes its options with their defaults, which are numbers:
--   local bench = dofile(folder .. "common.lua")(arg, {seconds = 1}); bench.options.seconds, bench.is_wanted(name) ...
local lt = require "lutra"
local nn, functional = lt.nn, lt.nn.functional

local folder = (debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "../models/"
local programs, models = dofile(folder .. "common.lua"), {GPT = dofile(folder .. "gpt.lua")}
local median = programs.median

function models.mlp() return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(),
  nn.Linear(256, 10)) end

models.Convnet = nn.Module:extend("Convnet")
function models.Convnet:init()
  self.a, self.b = nn.Conv2d(1, 32, 3, {padding = 1}), nn.Conv2d(32, 64, 3, {padding = 1})
  self.f, self.g = nn.Linear(64 * 49, 128), nn.Linear(128, 10)
end
function models.Convnet:forward(x)
  x = functional.max_pool2d(self.a(x):relu(), 2)
  x = functional.max_pool2d(self.b(x):relu(), 2)
  return self.g(self.f(x:flatten(1)):relu())
end

function models.chargpt() return models.GPT {d = 128, heads = 4, layers = 4, vocabulary = 96, length = 128} end

-- Returns make(compile), which returns a train step (forward, backward, AdamW) on a new net and its data. The step is
-- eager without `compile`.
local function train_step(make_net, make_data, rate, loss_of)
  return function(compile)
    local net = make_net()
    local opt = lt.optim.AdamW(net:parameters(), {lr = rate})
    local input, target = make_data()
    local step = programs.train_step(loss_of, net, opt)
    local f = compile and compile(step) or step
    return function() return f(input, target) end
  end
end

local function usage(out)
  for line in io.lines(arg[0]) do
    local text = line:match("^%-%- ?(.*)")
    if not text then break end
    out:write(text, "\n")
  end
end

local function refuse(...)
  io.stderr:write("bench: ", table.concat({...}), "\n")
  usage(io.stderr)
  os.exit(2)
end

return function(arg, options)
  local M, wanted = {options = options, median = median, models = models, train_step = train_step}, {}
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(.*)$")
    if name == "help" then
      usage(io.stdout)
      os.exit(0)
    elseif name then
      if not options[name] then refuse("unknown option --", name) end
      options[name], i = tonumber(arg[i + 1]) or refuse(arg[i], " takes a number"), i + 1
    else
      wanted[#wanted + 1] = arg[i]
    end
    i = i + 1
  end

  -- Returns true if an argument is a prefix of the case's name, or if there are no arguments.
  function M.is_wanted(name)
    for _, start in ipairs(wanted) do
      if name:sub(1, #start) == start then return true end
    end
    return #wanted == 0
  end

  -- Returns the median GPU time of a call of f in ms, between two events. A sample is how.calls calls; there are at
  -- least how.samples of them, for how.seconds, after how.warmup calls.
  function M.gpu_ms(f, how)
    for _ = 1, how.warmup do f() end
    lt.cuda.synchronize()
    local times, start = {}, lt.perf_counter()
    local first, last = lt.cuda.Event({enable_timing = true}), lt.cuda.Event({enable_timing = true})
    repeat
      first:record()
      for _ = 1, how.calls do f() end
      last:record()
      last:synchronize()
      times[#times + 1] = first:elapsed_time(last) / how.calls
    until lt.perf_counter() - start > how.seconds and #times >= how.samples
    return median(times)
  end

  -- Prints a case. fields: {name, number}, rounded to five decimals; whole: {name, integer}.
  function M.emit(name, fields, whole)
    local row = {case = name}
    for _, field in ipairs(whole or {}) do row[field[1]] = math.floor(field[2]) end
    for _, field in ipairs(fields) do row[field[1]] = tonumber(string.format("%.5f", field[2])) end
    print(lt._native.json(row))
    io.stdout:flush()
  end
  return M
end
