-- Measures how long calls of a train step wait while its code is compiled in the background, on the CPU. Prints a line
-- of JSON per case: medians of rounds, each in its own process. worst_ms: by how much the longest call before the code
-- was ready exceeds the median eager call; eager_worst_ms: the same for as many eager calls; first_ms: for the first
-- call, which captures; over_ms: for the first call that runs the compiled code; ready_ms: the time until the code was
-- ready; calls: the number of calls before that.
--   lutra scripts/bench/async.lua [--rounds N] [--threads N] [CASE...]
local lt = require "lutra"
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")(arg, {rounds = 5, threads = 2, round = 0})
local options, median, models = common.options, common.median, common.models
lt.config.num_threads, lt.config.cache = options.threads, "off"
local cross_entropy = lt.nn.functional.cross_entropy

local cases = {
  mlp = common.train_step(models.mlp, function() return lt.randn(128, 784), lt.randint(0, 10, {128}) end, 1e-3,
    function(net, x, y) return cross_entropy(net(x), y) end),
  chargpt = common.train_step(models.chargpt,
    function() return lt.randint(0, 96, {16, 128}), lt.randint(0, 96, {16, 128}) end, 1e-3,
    function(net, x, y) return cross_entropy(net(x):view(-1, 96), y:view(-1)) end),
}

local function timed(f)
  local start = lt.perf_counter()
  f()
  return (lt.perf_counter() - start) * 1e3
end

-- Runs one round. Eager calls come first, so that kernels of eager ops are compiled.
local function measure(make)
  local eager, calls, times = make(), {}, {}
  for _ = 1, 3 do eager() end
  local step = make(function(f) return lt.compile(f, {wait = false}) end)
  local start = lt.perf_counter()
  repeat calls[#calls + 1] = timed(step) until lt.counters().async.ready > 0
  local ready = (lt.perf_counter() - start) * 1e3
  for i = 1, math.max(#calls, 9) do times[i] = timed(eager) end
  local over, first = table.remove(calls), calls[1] or 0
  local worst, eager_worst, usual = math.max(0, unpack(calls)), math.max(unpack(times)), median(times)
  return {worst - usual, eager_worst - usual, first - usual, over - usual, ready, #calls}
end

local names = {"worst_ms", "eager_worst_ms", "first_ms", "over_ms", "ready_ms", "calls"}
for _, case in ipairs {"mlp", "chargpt"} do
  if common.is_wanted(case) and options.round > 0 then print(unpack(measure(cases[case]))) end
  if common.is_wanted(case) and options.round == 0 then
    local link = assert(io.popen("readlink /proc/$PPID/exe")) -- this program
    local command = string.format("exec '%s' '%s' --round 1 --threads %d %s", link:read("*l"), arg[0], options.threads,
      case)
    link:close()
    local columns = {{}, {}, {}, {}, {}, {}}
    for _ = 1, options.rounds do
      local child = assert(io.popen(command))
      local k = 0
      for number in child:read("*a"):gmatch("%S+") do
        k = k + 1
        table.insert(columns[k], tonumber(number))
      end
      child:close()
      assert(k == #columns, "a round failed: " .. command)
    end
    local fields = {}
    for k, name in ipairs(names) do fields[k] = {name, median(columns[k])} end
    common.emit(case, fields, {{"threads", options.threads}})
  end
end
