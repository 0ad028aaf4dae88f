-- Tests random long loops in main chunks, as scripts have them. With lt.auto they give the same as without, and each
-- prototype is captured only a few times. LUTRA_TEST_SEED=n runs one program and prints it.
local lt = require "lutra"
local h = require "harness"
local test, truthy = h.test, h.truthy

-- A program's text: functions, then a loop that calls them and keeps what it sees in `out`.
local function program(seed)
  math.randomseed(seed)
  local random, lines, names = math.random, {}, {}
  local function line(...) lines[#lines + 1] = string.format(...) end
  local function pick(list) return list[random(#list)] end
  local function number() return pick {"1", "0.5", "-2", "3.25", "i", "i % 5", "acc % 3", "k"} end
  local function tensor() return pick {"x", "x * " .. number(), "x + y", "(x - y):tanh()", "x:relu()", "y * "
    .. number(), "lt.tensor({i, 1, 2, acc % 7})", "x:narrow(0, 0, 4)"} end
  line("local lt, out, yield = lt, {}, coroutine.yield")
  line("local x, y, k, acc, i, list = lt.ones(4), lt.arange(0, 4, 1, {dtype = 'float32'}), 2, 0, 1, {}")
  line("local w = lt.ones(4, {requires_grad = true})")
  for n = 1, random(1, 4) do
    local name = "f" .. n
    line("local function %s(x, i)", name)
    for _ = 1, random(1, 4) do
      local kind = random(9)
      if kind <= 3 then line("  x = %s", tensor())
      elseif kind == 4 then line("  if i %% %d == 0 then x = %s end", random(2, 40), tensor())
      elseif kind == 5 then line("  for j = 1, %s do x = x * 0.5 + j end", pick {"2", "i % 4", "3"})
      elseif kind == 6 then line("  acc = acc + x:sum():item() %% 5")
      elseif kind == 7 then line("  list[i %% 9] = %s", pick {"x", "i", "{i}"})
      elseif kind == 8 then line("  k = (k * 3 + i) %% 4")
      elseif #names > 0 then line("  x = %s(x, i)", pick(names)) end
    end
    line("  return x")
    line("end")
    names[#names + 1] = name
  end
  local closures, threads = random(4) == 1, random(4) == 1
  if threads then
    line("local co = coroutine.wrap(function() local x = x while true do x = yield(%s(x, 3)) end end)", pick(names))
  end
  line("for step = 1, %d do", random(100, 900))
  line("  i = step")
  for _ = 1, random(2, 6) do
    local kind = random(11)
    if kind <= 4 then line("  acc = acc + %s(%s, i):sum():item() %% 11", pick(names), pick {"x", "y", "x + i"})
    elseif kind == 5 then line("  x = (%s(x, i) * 0.01):sin()", pick(names))
    elseif kind == 6 then line("  acc = acc + (%s):sum():item() %% 3", tensor())
    elseif kind == 7
      and closures then line("  local g = function(x) return x * i + k end  acc = acc + g(x):sum():item() %% 13")
    elseif kind == 8 and threads then line("  acc = acc + co(x):sum():item() %% 7")
    elseif kind == 9 then line("  local ok, m = pcall(%s, i %% 50 == 0 and 'no tensor' or x, i) out[#out + 1] = not ok and tostring(m):match(':%%d+: .*') or nil", pick(names))
    elseif kind == 10 then line("  if i %% 97 == 0 then collectgarbage() lt.unpatch(%s) end", pick(names))
    elseif kind == 11 then
      line("  if i %% 10 == 0 then local loss = (w * %s):sum() loss:backward() out[#out + 1] = w.grad:sum():item() w.grad = nil end", tensor())
    end
  end
  line("  if step %% 25 == 0 then out[#out + 1] = acc acc = acc %% 100 out[#out + 1] = x:sum():item() end")
  line("end")
  line("return out")
  return table.concat(lines, "\n"), #names + 8
end

local function run(text)
  lt.manual_seed(1)
  local chunk = assert(loadstring("local lt = ... " .. text, "=loop"))
  local ok, out = pcall(chunk, lt)
  if not ok then return tostring(out) end
  for i, v in ipairs(out) do out[i] = type(v) == "number" and ("%.17g"):format(v) or v end
  return table.concat(out, "\n")
end

local function check(seed)
  local text, prototypes = program(seed)
  local start = os.clock()
  local want = run(text)
  local eager = os.clock() - start
  lt.reset()
  lt.config.profit = "always" -- they are too short to pay for their captures
  lt.auto(true)
  start = os.clock()
  local got = run(text)
  local took = os.clock() - start
  lt.auto(false)
  lt.config.profit = nil
  local captures = lt.counters().frames.total
  local where = "seed " .. seed .. "\n"
  truthy(got == want, where .. text .. "\n-- got\n" .. got .. "\n-- want\n" .. want)
  truthy(captures <= 12 * prototypes, where .. captures .. " captures")
  truthy(took < 4 * eager + 2, where .. ("%.2f s instead of %.2f s"):format(took, eager))
end

local only = tonumber(os.getenv("LUTRA_TEST_SEED") or "")
if only then print((program(only))) end
test("random loops", function()
  for seed = only or 1, only or 60 * h.scale do check(seed) end
end)

h.finish()
