-- Tests numbers that compiled code depends on: NaN, -0, infinities, 2^53 and beyond. It checks where code specialises
-- on them and where it does not.
local h = require "harness"
local test, equal = h.test, h.equal

local nan, inf = 0 / 0, 1 / 0
local values = {0, -0.0, nan, inf, -inf, 1, -1, 3, 0.5, 2 ^ 53, 2 ^ 53 + 2, -2 ^ 53, 2 ^ 60, 1e308}

local function text(v)
  if type(v) ~= "number" then return tostring(v) end
  return v ~= v and "nan" or v == 0 and (1 / v < 0 and "-0" or "0") or ("%.17g"):format(v)
end

local function outcome(f, ...)
  local results = {pcall(f, ...)}
  for i, v in ipairs(results) do
    if type(v) == "userdata" then
      local list = {}
      for _, x in ipairs(v:to("float64"):reshape(-1):totable()) do list[#list + 1] = text(x) end
      results[i] = "{" .. table.concat(list, " ") .. "}"
    else
      results[i] = text(v)
    end
  end
  return table.concat(results, ", ")
end

-- Each value after each other one: what was specialised on one must not be used for another.
local function each_after_each(name, f)
  test(name, function()
    for _, first in ipairs(values) do
      local compiled = lt.compile(f)
      compiled = (function(c) return function(...) return c(...) end end)(compiled)
      pcall(compiled, first, lt.ones(2))
      for _, second in ipairs(values) do
        equal(outcome(compiled, second, lt.ones(2)), outcome(f, second, lt.ones(2)), text(first) .. ", then "
          .. text(second))
      end
      lt.reset()
    end
  end)
end

local limit = lt.config.recompile_limit
lt.config.recompile_limit = 40

each_after_each("in a list", function(v, x) return 1 / lt.tensor({v}), x + 1 end)
each_after_each("computed, in a list", function(v, x) return 1 / lt.tensor({v * 1, v + 0}), x + 1 end)
each_after_each("as text",
  function(v, x) return string.format("%g %s %s %s", v * 1, tostring(-v), tostring(v), tostring(-v * 1)), x + 1 end)
each_after_each("concatenated", function(v, x) return "v" .. v * 1 .. v, x + 1 end)
each_after_each("as a key", function(v, x)
  local t = {[0] = "zero", [1] = "one", [3] = "three", [2 ^ 53] = "large", [inf] = "infinite"}
  return tostring(t[v * 1]) .. tostring(t[v]), x + 1
end)
each_after_each("compared", function(v, x)
  if v == 0 then return x + 1, 1 / v end
  if v * 1 == v then return x + 2 end
  return x + 3
end)
each_after_each("as arguments", function(v, x) return lt.full({2}, v), lt.where(x:gt(0), v, 0), x * v, x ^ v end)
each_after_each("in a range", function(v, x) return lt.arange(v % 4), x + 1 end)
each_after_each("as a size", function(v, x) return lt.zeros(v % 3), x + 1 end)
-- NaN is skipped, because LuaJIT's own traces run such a loop once.
each_after_each("as a bound of a loop", function(v, x)
  local n = v % 5
  if n ~= n then return x end
  for i = 1, n do x = x + i end
  return x
end)
each_after_each("sign and rounding", function(v, x)
  return -v, 0 * v, v - v, v % 2, v ^ 2, math.floor(v), math.ceil(v), math.abs(v), v / 0, x * (-v)
end)

-- Arithmetic on sizes is arithmetic of doubles.
local function sizes(name, f)
  test(name, function()
    for _, options in ipairs {{dynamic = true}, {}} do
      local compiled = lt.compile(f, options)
      for _, n in ipairs {3, 5, 7, 4, 2, 1, 6, 0} do
        equal(outcome(compiled, lt.ones(n, 2)), outcome(f, lt.ones(n, 2)), ("%d rows"):format(n))
      end
    end
  end)
end

sizes("sizes beyond 2^53", function(x)
  local n = x.shape[1]
  return n * 3e15 * 3e15, n * 2 ^ 53, n * 2 ^ 52 + 1, (n + 2 ^ 53) - 2 ^ 53, n * 1e15 * n * 1e15 * n, x + 1
end)
sizes("zeros of sizes", function(x)
  local n = x.shape[1]
  return 0 * (n - 5), 1 / (0 * (n - 5)), -(n - 5), 1 / -(n - 5), (n - 5) * (n - 4), 1 / ((n - 5) * (3 - n)), -n, 0 * n,
    x + 1
end)
sizes("remainders and quotients of sizes", function(x)
  local n = x.shape[1]
  return n % 3, n % -3, (n - 5) % 3, n % 0, (n - 5) % (n - 4), n % 0.5, math.floor(n / 2), math.floor(n / (n - 4)),
    math.floor((n - 5) / 2), math.floor((5 - n) / -2), n ^ 2, n ^ 0.5, n / 0, (n - 5) / (n - 5), x + 1
end)
sizes("sizes compared", function(x)
  local n, s = x.shape[1], 0
  if n - 5 == 0 then s = s + 1 end
  if n * 2 > 9 then s = s + 2 end
  if 10 - n <= 4.5 then s = s + 4 end
  if n < inf then s = s + 8 end
  if n == nan then s = s + 16 end
  if n ~= 4 then s = s + 32 end
  if -n >= -3 then s = s + 64 end
  if n * n >= 16 then s = s + 128 end
  if math.floor(n / 2) == 2 then s = s + 256 end
  return s, x + 1
end)
sizes("sizes of new tensors", function(x)
  local n = x.shape[1]
  return x:sum() * lt.ones(n + 1):sum() + lt.zeros(n * 2, 3):numel() + lt.ones(math.floor(n / 2)):sum(),
    x:view(-1, 1) * n
end)

test("a product of sizes that does not fit is the error that eager raises", function()
  local f = function(a, b) return (a:view(-1, 1) + b):sum() end
  local compiled = lt.compile(f, {dynamic = true})
  equal(compiled(lt.ones(3), lt.ones(4)):item(), 24)
  local huge = lt.ones(1):expand(2 ^ 35)
  equal(outcome(compiled, huge, huge), outcome(f, huge, huge))
end)

test("guards that others imply are not listed", function()
  local f = lt.compile(function(x)
    local s = 0
    for i = 1, x.shape[1] do s = s + i end
    if x.shape[1] > 2 then s = s + 1 end
    return x * s
  end, {dynamic = true})
  f(lt.ones(9))
  local relations = {}
  for _, g in ipairs(lt.guards(f)[1]) do
    if g.kind == "relation" then relations[#relations + 1] = g.expected end
  end
  equal(table.concat(relations, ", "), "x.shape[1] == 9")
  equal(f(lt.ones(9)):sum():item(), 46 * 9)
  equal(f(lt.ones(8)):sum():item(), 37 * 8)
end)

test("bounds of numbers", function()
  local f = function(v, x)
    local s = 0
    for _, bound in ipairs {1, 5, 3, 4} do
      if v < bound then s = s + 1 end
      if -v <= bound then s = s + 10 end
      if not (v > bound) then s = s + 100 end
    end
    return x * s
  end
  local compiled = lt.compile(f)
  for _, v in ipairs {2, 2.5, 0, nan, 7, -inf, 4, 3, -3, inf, 1, 3.5} do
    equal(outcome(compiled, v, lt.ones(1)), outcome(f, v, lt.ones(1)), text(v))
  end
end)

test("a for loop counts in the direction of its step's sign, of -0 and NaN as well", function()
  local function f(x, first, last, step)
    local n = 0
    for i = first, last, step do
      n = n + 1
      if n > 3 then break end
    end
    return x + n
  end
  jit.off(f)  -- LuaJIT's traces run a loop that begins at NaN once, its interpreter does not
  local steps = {-0.0, 0, nan, -nan, 1, -1, inf, -inf, -0.0, -nan, nan, 0}
  local bounds = {{1, 3}, {3, 1}, {2, 2}, {nan, 1}, {1, nan}, {-inf, inf}, {inf, -inf}, {0, -0.0}}
  for _, dynamic in ipairs {false, true} do
    for _, b in ipairs(bounds) do
      local compiled = lt.compile(f, {dynamic = dynamic})
      for _, step in ipairs(steps) do
        local label = text(b[1]) .. " to " .. text(b[2]) .. " by " .. text(step) .. " (1/" .. text(1 / step) .. ")"
        equal(outcome(compiled, lt.zeros(1), b[1], b[2], step), outcome(f, lt.zeros(1), b[1], b[2], step), label)
      end
    end
  end
end)

test("a for loop of a callee goes on after a break in the direction of its step's sign", function()
  local source = [[
    local function inner(x, first, last, step)
      local n = 0
      for i = first, last, step do
        n, x = n + 1, x + 1
        hit()
        if n > 2 then break end
      end
      return x, n
    end
    return function(x, first, last, step)
      local y, n = inner(x * 1, first, last, step)
      return y + n
    end]]
  local function fresh()
    local f = setfenv(loadstring(source), {hit = function() io.write("") end})()
    jit.off(f, true)
    return f
  end
  local f, values = fresh(), {nan, -nan, inf, -inf, 0, -0.0, 1, 2, 2 ^ 53}
  for _, first in ipairs(values) do
    for _, last in ipairs(values) do
      for _, step in ipairs(values) do
        local label = text(first) .. " to " .. text(last) .. " by " .. text(step) .. " (1/" .. text(1 / step) .. ")"
        local want = outcome(f, lt.zeros(1), first, last, step)
        equal(outcome(lt.compile(fresh()), lt.zeros(1), first, last, step), want, label)
      end
    end
  end
end)

test("sizes whose product is too large raise with eager's text", function()
  local f = function(x, n) return x:expand({n, 4}):sum() end
  local g = lt.compile(f, {dynamic = true})
  for _, n in ipairs {3LL, 4LL, 2LL ^ 62, 5LL} do equal(outcome(g, lt.arange(4), n), outcome(f, lt.arange(4), n), n) end
end)

test("functions of math and bit do not end a graph", function()
  local calls = {
    ["math.sinh"] = {0.5}, ["math.cosh"] = {0.5}, ["math.asin"] = {0.5}, ["math.acos"] = {0.5}, ["math.atan"] = {2},
    ["math.atan2"] = {-1, -2}, ["math.deg"] = {2}, ["math.rad"] = {90}, ["math.ldexp"] = {0.75, 3},
      ["math.frexp"] = {20},
    ["bit.tobit"] = {2 ^ 32 - 1}, ["bit.tohex"] = {255, 4}, ["bit.bnot"] = {5}, ["bit.band"] = {12, 10, 9},
    ["bit.bor"] = {12, 3}, ["bit.bxor"] = {12, 10}, ["bit.lshift"] = {1, 31}, ["bit.rshift"] = {-1, 28},
    ["bit.arshift"] = {-8, 1}, ["bit.rol"] = {0x12345678, 4}, ["bit.ror"] = {0x12345678, 4}, ["bit.bswap"] = {1},
  }
  for name, arguments in pairs(calls) do
    local source = ("return function(x, ...) local r, more = %s(...) return x + 1, r, more end"):format(name)
    local f = loadstring(source)()
    equal(outcome(lt.compile(f, {fullgraph = true}), lt.zeros(1), unpack(arguments)),
      outcome(f, lt.zeros(1), unpack(arguments)), name)
    for _, bad in ipairs {{}, {"no"}, {{}}} do
      local message = outcome(lt.compile(f), lt.zeros(1), unpack(bad))
      equal(message, outcome(f, lt.zeros(1), unpack(bad)), name .. " of a wrong argument")
    end
  end
end)

lt.config.recompile_limit = limit
h.finish()
