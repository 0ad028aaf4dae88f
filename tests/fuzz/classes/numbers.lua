-- Numbers of all kinds (NaN, -0, Inf, 2^53, int64 and uint64 cdata, numeric strings) that go into tensors, shapes,
-- indices, tables, comparisons, formats and loops; the calls before compiled with others.
local values = {"0", "-0.0", "1", "2", "3", "-1", "0.5", "-2.5", "0/0", "-(0/0)", "1/0", "-1/0", "2^53", "2^53 + 2",
  "-2^53", "2^63", "2^31",
  "1e308", "1e-320", "1LL", "3LL", "-1LL", "2LL^62", "2ULL", "0LL", "'2'", "'x'", "nil", "true", "0.1", "1e15",
    "4294967296"}
-- No loop has NaN as a bound: LuaJIT's interpreter does not run such a loop, but its traces run it once.
-- Returns an expression that uses v as a size, if it is at most 100.
local function sized(text) return (
  "(function() if type(v) == 'number' and v > 100 then return 'much' end return %s end)()"):format(text) end

-- Uses of the numbers v and w.
local uses = {
  "lt.tensor({v})", "lt.tensor({v, w, 1})", "1 / lt.tensor({v})", "x * v", "x + v", "v - x", "x / v", "x ^ v", "v ^ x",
    "ids * v", "ids + v",
  "ids % v", "lt.full({2}, v)", "x:clamp(v, w)", "x:fill_(v)", "x:gt(v)", "x:eq(v)", "x:pow(v)",
    "lt.where(x:gt(0), v, w)", "ids:eq(v)",
  "x:add(x, {alpha = v})", "lt.scalar_tensor(v)", sized "lt.arange(v)", sized "lt.zeros(v)", sized "lt.ones(2, v)",
    "x:view(v, -1)", "x:sum(v)", "x[v]", "ids[v]",
  "x:narrow(0, 0, v)", "x:expand({v, 4})", "lt.linspace(0, v, 3)", "x:masked_fill(x:gt(0), v)", "mask + v", "mask * v",
    "half * v", "half + v",
  "tostring(v)", "string.format('%g', v)", "string.format('%d', v)", "('%5.2f %s'):format(v, w)", "'a' .. v", "v .. w",
    "#tostring(v)",
  sized "('x'):rep(v)", "('abcd'):sub(v, w)", "v + w", "v - w", "v * w", "v / w", "v % w", "v ^ w", "-v", "v == w",
    "v < w", "v <= w", "v ~= v",
  "math.floor(v)", "math.max(v, w)", "math.min(v, w)", "math.abs(v)", "math.fmod(v, w)", "1 / v", "1 / (v * 0)",
    "tonumber(v)", "type(v)", "not v",
  "math.ldexp(v, w)", "math.ldexp(v, 3)", "math.ldexp(0.7, v)", "6LL + v", "x * tonumber(2LL * v)", "v - 3LL == w",
    "tonumber(int64(v) + 1LL)", "int64(v)", "ffi.cast('int64_t', v) % 5LL", "ffi.new(int64, w)",
    "table.maxn({[v == v and v or 0] = 1, [w == w and w or 0] = 2, x = 3})",
  -- No key is NaN: LuaJIT ends the process where a trace stores at one.
  "list[v]", "(function() local t = {}; if v == v then t[v] = w end return t[v] end)()", "({10, 20, 30})[v]",
    "select(v, 'a', 'b', 'c')",
  "(function() return type(v) == 'number' and type(w) == 'number' and w - v > 99 and 'much' or " ..
    "unpack(list, v, w) end)()",
  "table.concat(list, v)",
  "(function() local t = {1, 2, 3}; if v == 1 or v == 0.5 or not tonumber(v) then table.insert(t, v, 9) end; " ..
    "return t end)()",
  "next({[w == w and w or 0] = v})", "v and 1 or 2",
  "(function() local s, n = 0, 0; for i = v, w do s, n = s + i, n + 1; " ..
    "if n > 9 then break end end return v == v and w == w and s end)()",
  "bit.band(v, 255)", "bit.lshift(1, v)",
  "(function() local s, n = 0, 0; for i = 1, 3, v do s, n = s + i, n + 1; " ..
    "if n > 9 then break end end return v == v and s end)()",
  "x:size(v)", "x.shape[v]", sized "lt.eye(v)",
  "(v + 0) * x", "lt.tensor({v + 0, v * 1})", "string.format('%g', v * 1)", "tostring(v + 0)", "x:sum() * (v * w)",
    "x * (v > w and v or w)",
  "v == 1 and x + 1 or x - 1", "v ~= w and x or ids", "math.floor(v / 2) + x", "lt.full({2}, v, {dtype = 'int64'})",
    "string.char(v + 64)",
  sized "x:repeat_interleave(v)", "x:roll(v)", "n * v", "n * 3e15 * v", "0 * (n - v)", "(n + v) * x",
    "x:view(n, 1) * v", "math.random()", "x * math.random()", "math.random(3) + v", "math.random(2, 5) * x",
    "math.random() < 0.5 and x + 1 or x", "list[math.random(3)]", "math.random(v)", "lt.tensor(v)", "x:to('int64') * v",
}

-- Elements that item() reads.
local read = {"(x * 1):max()", "(x - 1.5):sum()", "x:gt(0):sum()", "(x * 2):argmin()", "(ids + 0):max()",
  "(x * 0 + 2):min()", "(x / 0):sum()", "(x:double() * 0.1):mean()", "x:to('int32'):sum()", "(ids:int() - 2)[1]",
  "half:max()"}

local function generate(p)
  p.keep(p:line("list = {5, 6, 7} math.randomseed(%d)", p:random(99)))
  p.keep(p:line("ffi = require 'ffi'; int64 = ffi.typeof 'int64_t'"))
  p.keep(p:line("x, ids, mask, half = data(1, 4), lt.arange(4), data(2, 4):gt(0), data(3, 4):to('float16')"))
  p.keep(p:block("f = frame(function(x, v, w, n)", function()
    if p:chance(30) then p:line("w = %s:item()", p:pick(read)) end
    for i = 1, 1 + p:random(3) do p:line("local r%d = %s", i, p:pick(uses)) end
    local returned = {p:pick(uses), p:pick(uses)}
    p.keep(p:line("return x:sum(), %s", table.concat(returned, ", ", 1, p:random(2))))
  end, "end)"))
  local few = {p:pick(values), p:pick(values), p:pick(values)}
  for call = 1, 4 + p:random(6) do
    local function value() return p:chance(60) and p:pick(few) or p:pick(values) end
    p:line("try('f %d', f, x:clone(), %s, %s, x.shape[1])", call, value(), value())
  end
end

return {count = 80, generate = generate}
