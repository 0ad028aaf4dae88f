-- Stored dtypes: what tensors hold, to() converts, ops that only move memory take, and every other op refuses by name.
-- Numbers are PyTorch's. Each check runs eagerly and in compiled code.
local h = require "harness"
local lt = require "lutra"
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

local folder = h.folder()
local function at(name) return folder .. "/" .. name end
local STORED = {"uint16", "uint32", "uint64", "float8_e4m3fn", "float8_e5m2"}
local inf, nan = math.huge, 0 / 0

-- f(...) eagerly, then compiled.
local function both(f, check)
  check(f)
  check(lt.compile(f))
end
local function same(got, want)
  equal(#got, #want)
  for i = 1, #want do truthy(got[i] == want[i] or (got[i] ~= got[i] and want[i] ~= want[i]), i .. ": " .. tostring(got[i])) end
end

test("made of numbers, read back, printed", function()
  deep(lt.tensor({1, 2, 3.7}, {dtype = "uint16"}):totable(), {1, 2, 3})
  deep(lt.tensor({-1, 65535}, {dtype = "uint16"}):totable(), {65535, 65535})
  deep(lt.tensor({1, 2, 3.7}, {dtype = "float8_e4m3fn"}):totable(), {1, 2, 3.75})
  deep(lt.tensor({1, 2, 3.7}, {dtype = "float8_e5m2"}):totable(), {1, 2, 3.5})
  equal(lt.tensor(4294967295, {dtype = "uint32"}):item(), 4294967295)
  equal(tostring(lt.tensor(2 ^ 63, {dtype = "uint64"}):item()), "9223372036854775808ULL")
  equal(tostring(lt.tensor({1, 65535}, {dtype = "uint16"})), "tensor([    1, 65535], dtype=uint16)")
  equal(tostring(lt.tensor({1, 2 ^ 63}, {dtype = "uint64"})), "tensor([                  1, 9223372036854775808], dtype=uint64)")
  equal(tostring(lt.tensor({1, 0.5}, {dtype = "float8_e5m2"})), "tensor([1.0000, 0.5000], dtype=float8_e5m2)")
  raises("tensor: data 70000 cannot be converted to uint16 without overflow", lt.tensor, {70000}, {dtype = "uint16"})
  raises("tensor: data -1 cannot be converted to uint64 without overflow", lt.tensor, {-1}, {dtype = "uint64"})
  local ffi = require "ffi"
  deep(lt.tensor(ffi.new("uint32_t[2]", {7, 4294967295})):totable(), {7, 4294967295})
  equal(lt.float8_e5m2, "float8_e5m2")
  raises("lt.float8_e3m4: no such dtype", function() return lt.float8_e3m4 end)
end)

local floats = lt.tensor {-3.7, -1, 0.3, 0.5, 300, 449, 464, 465, 500, 65520, 1e6, inf, -inf, nan, -0.0, 2 ^ -10, 3 * 2 ^ -17, 2 ^ -18, 61439, 61440}

test("to and back rounds as PyTorch", function()
  local want = {
    uint16 = {65533, 65535, 0, 0, 300, 449, 464, 465, 500, 65520, 16960, 0, 0, 0, 0, 0, 0, 0, 61439, 61440},
    uint32 = {4294967293, 4294967295, 0, 0, 300, 449, 464, 465, 500, 65520, 1000000, 0, 0, 0, 0, 0, 0, 0, 61439, 61440},
    float8_e4m3fn = {-3.75, -1, 0.3125, 0.5, 288, 448, 448, nan, nan, nan, nan, nan, nan, nan, 0, 0, 0, 0, nan, nan},
    float8_e5m2 = {-3.5, -1, 0.3125, 0.5, 320, 448, 448, 448, 512, inf, inf, inf, -inf, nan, 0, 2 ^ -10, 2 ^ -15, 0, 57344, inf},
  }
  for dtype, numbers in pairs(want) do
    both(function(x) return x:to(dtype):to("float64") end, function(f)
      same(f(floats):totable(), numbers)
      same(f(floats:to("float64")):totable(), numbers)
    end)
  end
  both(function(x) return x:to("uint64") end, function(f)
    deep(f(lt.tensor({-1, 5, 2 ^ 40}, {dtype = "int64"})):to("int64"):totable(), {-1, 5, 2 ^ 40})
    local large = f(lt.tensor({2 ^ 63, 2 ^ 63 + 2 ^ 11, 2 ^ 64, 3.7}, {dtype = "float64"}))
    deep(large:to("float64"):totable(), {2 ^ 63, 2 ^ 63 + 2 ^ 11, 0, 3})
    deep(large:to("float32"):totable(), {2 ^ 63, 2 ^ 63, 0, 3})
    deep(large:to("bool"):totable(), {true, true, false, true})
  end)
end)

-- The number that a code of a float8 stands for.
local function number_of(code, mantissa, bias)
  local a, sign = code % 128, code < 128 and 1 or -1
  local e, m = math.floor(a / 2 ^ mantissa), a % 2 ^ mantissa
  if mantissa == 3 and a == 127 or mantissa == 2 and a > 124 then return nan end
  if mantissa == 2 and a == 124 then return sign * inf end
  if e == 0 then return sign * m * 2 ^ (1 - bias - mantissa) end
  return sign * (1 + m / 2 ^ mantissa) * 2 ^ (e - bias)
end

test("every float8, and the halves between two", function()
  for dtype, format in pairs {float8_e4m3fn = {3, 7}, float8_e5m2 = {2, 15}} do
    local numbers, halves, even = {}, {}, {}
    for code = 0, 255 do numbers[code + 1] = number_of(code, format[1], format[2]) end
    for code = 0, 122 do
      halves[code + 1] = (numbers[code + 1] + numbers[code + 2]) / 2
      even[code + 1] = numbers[code % 2 == 0 and code + 1 or code + 2]
    end
    both(function(x) return x:to(dtype):to("float32") end, function(f)
      same(f(lt.tensor(numbers)):totable(), numbers)
      same(f(lt.tensor(halves)):totable(), even)
    end)
    same(lt.tensor(halves, {dtype = dtype}):totable(), even)
    same(lt.tensor(numbers, {dtype = dtype}):totable(), numbers)
  end
end)

test("memory moves", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({{1, 2, 3}, {4, 5, 6}}, {dtype = dtype})
    local function all(f, want) both(f, function(g) equal(g(x).dtype, dtype) deep(g(x):totable(), want) end) end
    all(function(t) return t:t() end, {{1, 4}, {2, 5}, {3, 6}})
    all(function(t) return t:t():contiguous() end, {{1, 4}, {2, 5}, {3, 6}})
    all(function(t) return t:clone():view(3, 2) end, {{1, 2}, {3, 4}, {5, 6}})
    all(function(t) return t[1] end, {4, 5, 6})
    all(function(t) return t:t()[lt.tensor({2, 0}, {dtype = "int64"})] end, {{3, 6}, {1, 4}})
    all(function(t) return t:gather(1, lt.tensor({{2}, {0}}, {dtype = "int64"})) end, {{3}, {4}})
    all(function(t) return t:index_select(0, lt.tensor({1}, {dtype = "int64"})) end, {{4, 5, 6}})
    all(function(t) return lt.cat({t, t}, 1) end, {{1, 2, 3, 1, 2, 3}, {4, 5, 6, 4, 5, 6}})
    all(function(t) return lt.stack({t[0], t[1]}) end, {{1, 2, 3}, {4, 5, 6}})
    all(function(t) return t:flip(1) end, {{3, 2, 1}, {6, 5, 4}})
    all(function(t) return lt.zeros_like(t) end, {{0, 0, 0}, {0, 0, 0}})
    all(function(t) return lt.full({2}, 3, {dtype = dtype}) end, {3, 3})
    all(function(t) return t:expand(1, 2, 3) end, {{{1, 2, 3}, {4, 5, 6}}})
    all(function(t) local y = t:clone() y:fill_(3) return y end, {{3, 3, 3}, {3, 3, 3}})
    all(function(t) local y = t:clone() y[0] = t[1] return y end, {{4, 5, 6}, {4, 5, 6}})
    all(function(t) local y = t:clone() y:copy_(lt.ones(2, 3)) return y end, {{1, 1, 1}, {1, 1, 1}})
    deep(x[lt.tensor({{true, false, false}, {false, false, true}})]:totable(), {1, 6})
    local y = x:clone()
    y[lt.tensor({1}, {dtype = "int64"})] = x[lt.tensor({0}, {dtype = "int64"})]
    deep(y:totable(), {{1, 2, 3}, {1, 2, 3}})
  end
end)

test("equality", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({1, 2, 3}, {dtype = dtype})
    equal(lt.equal(x, x:clone()), true)
    equal(lt.equal(x, lt.tensor({1, 2, 4}, {dtype = dtype})), false)
    raises("equal: dtypes " .. dtype .. " and float32 differ", lt.equal, x, lt.ones(3))
  end
  local x = lt.tensor({0.0, nan}, {dtype = "float8_e5m2"})
  equal(lt.equal(x, x), false)
  equal(lt.equal(x[0], lt.tensor(-0.0, {dtype = "float8_e5m2"})), true)
end)

test("files", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({{1, 2}, {3, 4}}, {dtype = dtype})
    for _, name in ipairs {"t.safetensors", "t.npz", "t.npy"} do
      local numpy = dtype:find "uint"
      if numpy or name == "t.safetensors" then
        lt.save(at(name), name == "t.npy" and x or {x = x})
        local y = lt.load(at(name))
        y = name == "t.npy" and y or y.x
        equal(y.dtype, dtype) deep(y:totable(), {{1, 2}, {3, 4}})
      else
        raises("save: NumPy has no " .. dtype, lt.save, at(name), name == "t.npy" and x or {x = x})
      end
    end
  end
end)

test("every other op refuses, by its name and the argument's", function()
  for _, dtype in ipairs(STORED) do
    local x = lt.tensor({1, 2}, {dtype = dtype})
    local why = ": not defined for " .. dtype .. ", which tensors can only be stored in; convert by x:to(dtype)"
    local function refused(op, argument, f) both(f, function(g) raises(op .. ": argument '" .. argument .. "'" .. why, g, x) end) end
    refused("add", "input", function(t) return t + 1 end)
    refused("add", "input", function(t) return t + t end)
    refused("mul", "other", function(t) return lt.ones(2) * t end)
    refused("sum", "input", function(t) return t:sum() end)
    refused("lt", "input", function(t) return t:lt(2) end)
    refused("sort", "input", function(t) return (t:sort()) end)
    refused("arange", "dtype", function(t) return lt.arange(3, {dtype = t.dtype}) end)
    refused("rand", "dtype", function(t) return lt.rand(3, {dtype = t.dtype}) end)
    refused("relu_", "input", function(t) return t:clone():relu_() end)
    raises(dtype .. " have no common dtype", lt.cat, {lt.ones(1), x})
  end
end)

test("finfo and iinfo", function()
  local function one(f, dtype, want)
    local got = f(dtype)
    for key, v in pairs(want) do truthy(got[key] == v, dtype .. " " .. key .. ": " .. tostring(got[key])) end
  end
  one(lt.finfo, "float8_e4m3fn", {bits = 8, max = 448, min = -448, eps = 0.125, tiny = 2 ^ -6, resolution = 1})
  one(lt.finfo, "float8_e5m2", {bits = 8, max = 57344, min = -57344, eps = 0.25, tiny = 2 ^ -14, resolution = 1})
  one(lt.iinfo, "uint16", {bits = 16, min = 0, max = 65535})
  one(lt.iinfo, "uint32", {bits = 32, min = 0, max = 4294967295})
  one(lt.iinfo, "uint64", {bits = 64, min = 0ULL, max = 18446744073709551615ULL})
  for _, dtype in ipairs {"float8_e4m3fn", "float8_e5m2"} do
    local most = lt.finfo(dtype).max
    equal(lt.tensor(most, {dtype = dtype}):item(), most)
  end
end)

test("16 dimensions", function()
  local sizes = {}
  for d = 1, 16 do sizes[d] = d % 3 == 0 and 2 or 1 end
  local x = lt.arange(32, {dtype = "float32"}):reshape(sizes)
  both(function(t) return t:amax(), t:sum({0, 5, 15}), (t + t):transpose(2, 14):contiguous(), t:softmax(11), t:sort(14) end, function(f)
    local most, sum, moved = f(x)
    equal(most:item(), 31)
    equal(sum:dim(), 13) equal(sum:sum():item(), 496)
    deep(moved:reshape(2, 2, 2, 2, 2):totable(), (x + x):reshape(2, 2, 2, 2, 2):transpose(0, 4):totable())
  end)
  deep(x:repeat_interleave(2, 2).shape[3], 4)
  deep(x["repeat"](x, unpack(sizes)).shape[3], 4)
  equal(tostring(x):sub(1, 23), "tensor(" .. ("["):rep(16))
  local y = x:clone()
  y[lt.tensor({0}, {dtype = "int64"})] = 0
  equal(y:sum():item(), 0)
  raises("tensors have at most 16 dimensions, got 17", function() return x:unsqueeze(0) end)
  raises("tensors have at most 16 dimensions, got 17", lt.compile(function(t) return t:unsqueeze(0) end), x)
  sizes[17] = 1
  raises("tensors have at most 16 dimensions, got 17", lt.zeros, sizes)
  for d = 18, 40 do sizes[d] = 1 end
  raises("tensors have at most 16 dimensions, got 40", lt.zeros, sizes)
end)

h.finish()
