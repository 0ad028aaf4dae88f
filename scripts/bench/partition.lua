-- Times a train step of the char GPT on the CPU of which only the model is compiled (step_ms), beside a step that is
-- one graph (whole_ms). Prints a line of JSON per activation memory budget, {case, threads, step_ms, whole_ms, ratio,
-- saved_bytes, all_bytes, saved, held_bytes}. Times are the least of alternating samples. saved_bytes is what the
-- forward saves for the backward; all_bytes adds what the backward recomputes; saved is their ratio; held_bytes is what
-- the allocator holds after a forward.
--   lutra scripts/bench/partition.lua [--threads N] [--seconds S] [BUDGET...]
local lt = require "lutra"
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")(arg, {threads = 2, seconds = 4})
local threads, seconds = common.options.threads, common.options.seconds
lt.config.num_threads = threads

local input, target = lt.randint(0, 96, {16, 128}), lt.randint(0, 96, {16, 128})

-- Returns the loss function and the optimiser of a new model.
local function model()
  lt.manual_seed(0)
  local net = common.models.chargpt()
  local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-3})
  local function loss(x, y) return lt.nn.functional.cross_entropy(net(x):view(-1, 96), y:view(-1)) end
  return loss, opt
end

local function whole()
  local loss, opt = model()
  local step = lt.compile(function(x, y)
    local l = loss(x, y)
    opt:zero_grad()
    l:backward()
    opt:step()
    return l
  end, {fullgraph = true})
  return function() return step(input, target) end
end

local function parts(budget)
  local loss, opt = model()
  local forward, update = lt.compile(loss, {fullgraph = true}), lt.compile(function() opt:step() end)
  local function step()
    lt.config.activation_memory_budget = budget -- the backward is compiled at its first call
    local l = forward(input, target)
    opt:zero_grad()
    l:backward()
    update()
    return l
  end
  return step, function() return forward(input, target) end
end

local function allocated()
  collectgarbage()
  collectgarbage()
  return lt.memory().allocated
end

local function time(f)
  local start = lt.perf_counter()
  f()
  return (lt.perf_counter() - start) * 1e3
end

for _, budget in ipairs {1, 0.5, 0.25} do
  if common.is_wanted(tostring(budget)) then
    lt.config.activation_memory_budget = budget
    lt.reset()
    local report = lt.explain((model()))(input, target)
    local saved, all = report.saved_bytes, report.saved_bytes + report.recomputed_bytes
    report = nil
    lt.reset()
    local step, forward = parts(budget)
    local steps, least = {step, whole()}, {math.huge, math.huge}
    for k = 1, 4 do assert(step():allclose(steps[2](), {rtol = 1e-3}), "step " .. k) end
    local before = allocated()
    local kept = forward()
    local held = allocated() - before
    kept = nil
    local start = lt.perf_counter()
    repeat
      for k = 1, 2 do least[k] = math.min(least[k], time(steps[k])) end
    until lt.perf_counter() - start > seconds
    common.emit("budget_" .. budget, {{"step_ms", least[1]}, {"whole_ms", least[2]}, {"ratio", least[1] / least[2]},
      {"saved", saved / all}}, {{"threads", threads}, {"saved_bytes", saved}, {"all_bytes", all}, {"held_bytes", held}})
  end
end
