-- Times lt.scan, lt.while_loop and lt.cond beside the same program unrolled by hand. Forward and backward are one
-- graph. Prints a line of JSON per case, {case, threads, region_ms, unrolled_ms, ratio, region_compile_ms,
-- unrolled_compile_ms}. Times are the least of alternating samples.
--   lutra scripts/bench/regions.lua [--threads N] [--seconds S] [CASE...]     a CASE stands for all that begin with it
local lt = require "lutra"
local nn = lt.nn

local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")(arg, {threads = 2, seconds = 1})
local threads, seconds = common.options.threads, common.options.seconds
lt.config.num_threads, lt.config.recompile_limit = threads, 100 -- steps of all cases are closures of one function

local function sample(f, calls)
  local start = lt.perf_counter()
  for _ = 1, calls do f() end
  return (lt.perf_counter() - start) / calls * 1e3
end

-- region() and unrolled() are step functions of the same loss. Their results and the gradients of `leaves` must agree.
-- before(), if given, runs before the first call of each side, and may return a function that runs after it.
local function both(name, calls, leaves, region, unrolled, before)
  if not common.is_wanted(name) then return end
  local sides, compile, least = {region, unrolled}, {}, {math.huge, math.huge}
  for i, step in ipairs(sides) do
    sides[i] = lt.compile(step, {fullgraph = true})
    local after = before and before()
    compile[i] = sample(sides[i], 1)
    if after then after() end
    sample(sides[i], calls)
  end
  local gradients, loss = {}, sides[1]()
  for i, leaf in ipairs(leaves) do gradients[i] = leaf.grad end
  assert(loss:allclose(sides[2](), {rtol = 1e-4}), name)
  for i, leaf in ipairs(leaves) do assert(leaf.grad:allclose(gradients[i], {rtol = 1e-3, atol = 1e-4}), name) end
  local start = lt.perf_counter()
  repeat
    for i = 1, 2 do least[i] = math.min(least[i], sample(sides[i], calls)) end
  until lt.perf_counter() - start > seconds
  common.emit(name, {{"region_ms", least[1]}, {"unrolled_ms", least[2]}, {"ratio", least[1] / least[2]},
    {"region_compile_ms", compile[1]}, {"unrolled_compile_ms", compile[2]}}, {{"threads", threads}})
end

-- loss(), and its backward, as one step. What it does not read has zeros, as what only the other branch of a cond
-- reads.
local function step_of(leaves, loss)
  return function()
    for _, leaf in ipairs(leaves) do leaf.grad = nil end
    local l = loss()
    l:backward()
    for _, leaf in ipairs(leaves) do leaf.grad = leaf.grad or lt.zeros_like(leaf) end
    return l
  end
end

do
  lt.manual_seed(0)
  local w, u = lt.randn({128, 128}, {requires_grad = true}), lt.randn({64, 128}, {requires_grad = true})
  lt.no_grad(function() w:mul_(0.05) end)
  local xs, h0 = lt.randn(32, 32, 64), lt.zeros(32, 128)
  local function cell(h, x)
    h = (h:mm(w) + x:mm(u)):tanh()
    return h, h
  end
  both("rnn", 4, {w, u}, step_of({w, u}, function()
    local h, ys = lt.scan(cell, h0, xs)
    return h:sum() + ys:square():mean()
  end), step_of({w, u}, function()
    local h, ys = h0, {}
    for i = 0, 31 do h, ys[i + 1] = cell(h, xs[i]) end
    return h:sum() + lt.stack(ys, 0):square():mean()
  end))
end

-- Steps that a constant tells, a number or the element of a tensor of an outer variable, and one that has varied.
local steps, most, varied = 6, lt.tensor(6), lt.tensor(6)
for name, goes_on in pairs {
  newton = function(i) return i:lt(6) end, newton_number = function(i) return i:lt(steps) end,
  newton_data = function(i) return i:lt(most) end, newton_varied = function(i) return i:lt(varied) end,
} do
  lt.manual_seed(0)
  local a = (lt.rand({256, 256}) + 1):requires_grad_()
  local function improve(x) return (x + a / x) * 0.5 end
  both(name, 8, {a}, step_of({a}, function()
    local _, x = lt.while_loop(goes_on, function(i, x) return i + 1, improve(x) end,
      lt.tensor(0), a * 1)
    return x:sum()
  end), step_of({a}, function()
    local x = a * 1
    for _ = 1, 6 do x = improve(x) end
    return x:sum()
  end), name == "newton_varied" and function()
    varied:fill_(5)
    return function() varied:fill_(6) end
  end)
end

do
  lt.manual_seed(0)
  local function make()
    return nn.Sequential(nn.Linear(128, 512), nn.ReLU(), nn.Linear(512, 128))
  end
  local first, second, x = make(), make(), lt.randn(64, 128)
  local leaves = {}
  for _, m in ipairs {first, second} do
    for _, p in ipairs(m:parameters()) do leaves[#leaves + 1] = p end
  end
  both("experts", 8, leaves, step_of(leaves, function()
    local y = lt.cond(x:sum():gt(-1e9), function(x) return first(x) end, function(x) return second(x) end, x)
    return y:square():mean()
  end), step_of(leaves, function() return first(x):square():mean() end))
end

do
  lt.manual_seed(0)
  local k = (lt.rand({64, 64}) + 0.5):requires_grad_()
  local y0 = lt.randn(64, 64)
  local function slope(y) return y:mm(k) * -0.02 end
  local function try(y, h)
    local whole, half = y + h * slope(y), y + h / 2 * slope(y)
    local twice = half + h / 2 * slope(half)
    return twice * 2 - whole, (whole - twice):abs():max()
  end
  -- Steps that are all taken, so that both sides make as many.
  both("ode", 8, {k}, step_of({k}, function()
    local _, y = lt.while_loop(function(t) return t:lt(1) end, function(t, y, h)
      local next, err = try(y, h)
      return lt.cond(err:gt(1e3), function() return t, y, h / 2 end, function() return t + h, next, h * 1 end)
    end, lt.zeros({}), y0, lt.full({}, 0.125))
    return y:square():mean()
  end), step_of({k}, function()
    local y, h = y0, lt.full({}, 0.125)
    for _ = 1, 8 do
      local next, err = try(y, h)
      y = lt.where(err:gt(1e3), y, next)
    end
    return y:square():mean()
  end))
end
