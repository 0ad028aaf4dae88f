-- Measures how long a process takes until its first compiled train step has ended, with an empty disk cache and with
-- one that an earlier process filled. Prints a line of JSON per case, minima over processes.
--   lutra scripts/bench/first_step.lua [--runs N] [CASE...]
-- process: the time from the start of the process to the end of the first step; cpu: its CPU time until then; model:
-- making net, optimiser and data; first: the first call; later: one of the next calls.
local lt = require "lutra"
local bench = dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "./") .. "common.lua")(arg,
  {runs = 10, child = 0})
local functional, models = lt.nn.functional, bench.models

local function language_loss(net, x, y)
  local logits = net(x)
  return functional.cross_entropy(logits:view(-1, logits:size(2)), y:view(-1))
end

local function tokens(vocabulary, sizes, device)
  return function()
    return lt.randint(0, vocabulary, sizes, {device = device}), lt.randint(0, vocabulary, sizes, {device = device})
  end
end

local function gpt2()
  return models.GPT {d = 768, heads = 12, layers = 12, vocabulary = 50257, length = 1024, tied = true}
end

local function digits(device)
  return function()
    return lt.randn({128, 784}, {device = device}), lt.randint(0, 10, {128}, {device = device})
  end
end

-- Name, how the net is made, its data, its loss; a device.
local cases = {
  {"mlp", models.mlp, digits, function(net, x, y) return functional.cross_entropy(net(x), y) end},
  {"chargpt_b1_t8", models.chargpt, function(device) return tokens(96, {1, 8}, device) end, language_loss},
  {"chargpt_b16_t128", models.chargpt, function(device) return tokens(96, {16, 128}, device) end, language_loss},
  {"gpt2_b8_t512", gpt2, function(device) return tokens(50257, {8, 512}, device) end, language_loss, only = "cuda"},
}

local function run_child(name, device)
  for _, case in ipairs(cases) do
    if case[1] == name then
      local start = lt.perf_counter()
      local function make_net() return case[2]():to(device) end
      local step = bench.train_step(make_net, case[3](device), 1e-3, case[4])(lt.compile)
      local made = lt.perf_counter()
      local loss = step():item()
      local first, cpu, later = lt.perf_counter(), os.clock(), math.huge
      for _ = 1, 3 do
        local begin = lt.perf_counter()
        step():item()
        later = math.min(later, lt.perf_counter() - begin)
      end
      print(string.format("%.17g %.9g %.9g %.9g %.9g %d %.9g", first, made - start, first - made, later, cpu,
        lt.counters().disk_cache.hits, loss))
    end
  end
end

if bench.options.child > 0 then return run_child(arg[#arg - 1], arg[#arg]) end

local lutra = io.popen("readlink /proc/$PPID/exe"):read("*l")

local function run_process(name, device, folder)
  local command = string.format("LUTRA_CACHE_DIR='%s' exec '%s' '%s' --child 1 %s %s", folder, lutra, arg[0], name,
    device)
  local start = lt.perf_counter()
  local child, numbers = io.popen(command), {}
  local line = child:read("*a")
  child:close()
  for word in line:gmatch("%S+") do numbers[#numbers + 1] = tonumber(word) end
  if #numbers ~= 7 then error(name .. ": " .. line) end
  return {process = numbers[1] - start, model = numbers[2], first = numbers[3], later = numbers[4], cpu = numbers[5],
          hits = numbers[6], loss = numbers[7]}
end

for _, device in ipairs(lt.cuda.is_available() and {"cpu", "cuda"} or {"cpu"}) do
  for _, case in ipairs(cases) do
    local name = case[1] .. "_" .. device
    if bench.is_wanted(name) and (not case.only or case.only == device) then
      local best = {cold = {}, warm = {}}
      for _ = 1, bench.options.runs do
        local folder = os.tmpname()
        os.remove(folder)
        local losses = {}
        for _, kind in ipairs {"cold", "warm"} do
          local found = run_process(case[1], device, folder)
          losses[#losses + 1] = found.loss
          if (found.hits > 0) ~= (kind == "warm") then error(name .. ": a cache that does not do as it should") end
          for key, value in pairs(found) do best[kind][key] = math.min(best[kind][key] or math.huge, value) end
        end
        if losses[1] ~= losses[2] then error(name .. ": the cache changes the loss") end
        os.execute("rm -r '" .. folder .. "'")
      end
      for _, kind in ipairs {"cold", "warm"} do
        local b = best[kind]
        bench.emit(name .. "_" .. kind, {{"process_ms", b.process * 1e3}, {"cpu_ms", b.cpu * 1e3},
          {"model_ms", b.model * 1e3}, {"first_ms", b.first * 1e3}, {"later_ms", b.later * 1e3}})
      end
    end
  end
end
