-- Runs many compilations in the background while other things happen: calls, forgotten functions, resets, limits,
-- errors, program ends, interrupts. No call may hang, all bits are the same, and nothing is kept alive.
-- LUTRA_TEST_SCALE=20 makes a thousand.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local lutra, base = h.program(), h.folder()
local seed = tonumber(os.getenv("LUTRA_TEST_SEED") or os.time())
local draw = math.random
math.randomseed(seed)

-- A function of a prototype of its own.
local function body(n, kind)
  return assert(load(("return function(x, w) for i = 1, %d do x = (x * i):sin() + %s end return x:tanh() end"):format(n,
    kind == 1 and "x:matmul(w)" or "x:cos():sum(1, {keepdim = true})")))()
end

-- Compiles one function in the background, while calls and other events happen.
local function round()
  local n, kind, size = draw(2, 12), draw(2), draw(2, 6)
  local x, w = lt.randn(size, size), lt.randn(size, size):requires_grad_(draw(2) == 1)
  local plain = body(n, kind)
  local f, want = lt.compile(plain, {wait = false}), plain(x, w)
  local function call()
    local y = f(x, w)
    truthy(y:equal(want), "seed " .. seed)
    if y.requires_grad then y:sum():backward() end
  end
  call()
  local fate = draw(8)
  if fate == 1 then
    lt.reset()
  elseif fate == 2 then
    f, call = nil, nil
    return collectgarbage()
  elseif fate == 3 then
    pcall(lt.limits({seconds = draw() * 0.005}), function()
      while true do call() end
    end)
  elseif fate == 4 then
    f(lt.randn(size + 1, size + 1), lt.randn(size + 1, size + 1)) -- another entry
  elseif fate == 5 then
    lt.wait_compiled(f)
  elseif fate == 6 then
    pcall(f, lt.randn(size, size), lt.randn(size + 1, size)) -- an error of the program's
  elseif fate == 7 then
    lt.config.passes.cse = draw(2) == 1
  end
  for _ = 1, draw(0, 4) do call() end
end

local function kilobytes()
  for _ = 1, 3 do collectgarbage() end
  return tonumber(h.read("/proc/self/status"):match("VmRSS:%s*(%d+)"))
end

test("compilations in one process", function()
  local rounds = math.ceil(40 * h.scale)
  for _ = 1, 20 do round() end
  lt.reset()
  local before = kilobytes()
  for i = 1, rounds do
    round()
    if i % 50 == 0 then lt.reset() end
  end
  lt.wait_compiled()
  lt.reset()
  -- Kernels stay with the process: some 30 KB each round.
  local grown = kilobytes() - before
  truthy(grown < 20000 + 100 * rounds + h.quarantine, grown .. " KB after " .. rounds .. " rounds")
end)

local program = h.write(base .. "/program.lua", [[
local seed = tonumber(arg[1])
math.randomseed(seed)
local x = lt.ones(4, 4)
for i = 1, math.random(3) do
  local n = math.random(3, 40)
  local f = lt.compile(function(x)
    for i = 1, n do x = (x * i):sin() + x:cos():sum(1, {keepdim = true}) end
    return x
  end, {wait = false})
  for _ = 1, math.random(2) do f(x) end
end
local pause = math.random(4)
local start = lt.perf_counter()
while lt.perf_counter() - start < pause * 0.004 do end
local fate = math.random(5)
if fate == 1 then os.exit(7) end
if fate == 2 then os.exit(7, true) end
if fate == 3 then error("an error of the program's") end
if fate == 4 then
  os.execute("kill -INT $PPID &")
  lt.wait_compiled()
  while lt.perf_counter() - start < 10 do end
end
]])

test("compilations that outlive their programs", function()
  for i = 1, math.ceil(10 * h.scale) do
    local out = h.shell(("env LUTRA_CACHE=off timeout -s KILL 120 %s %s %d 2>&1; echo \"rc $?\""):format(lutra, program,
      seed + i))
    local code = tonumber(out:match("rc (%d+)%s*$"))
    truthy(code ~= 137 and code < 128 or code == 130, "seed " .. seed + i .. ": " .. out)
    equal(out:find("internal error", 1, true), nil, out)
    equal(out:find("Sanitizer", 1, true), nil, out)
  end
end)

h.finish()
