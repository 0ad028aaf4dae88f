-- Tests functions and gradients for large, tied, infinite or NaN arguments: as PyTorch's, eager and compiled alike.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal
local inf, nan = math.huge, 0 / 0

-- Text of numbers, so that NaN equals NaN.
local function text(v)
  if type(v) == "table" then
    local out = {}
    for i, each in ipairs(v) do out[i] = text(each) end
    return table.concat(out, " ")
  end
  return v ~= v and "nan" or string.format("%.9g", v)
end

local backends = {native = "native", interpreted = "eager"}

-- f of a tensor of `values`, eagerly and compiled.
local function gives(f, values, want, dtype)
  local x = lt.tensor(values, {dtype = dtype or "float64"})
  equal(text(f(x):totable()), want)
  for _, backend in pairs(backends) do
    lt.reset()
    equal(text(lt.compile(f, {backend = backend})(x):totable()), want, backend)
  end
end

test("acosh is NaN below 1", function()
  for _, dtype in ipairs {"float32", "float64"} do
    gives(function(x) return x:acosh() end, {-1e9, -1e30, -inf, -2, 0.5, nan, 1, inf}, "nan nan nan nan nan nan 0 inf",
      dtype)
  end
end)

-- PyTorch's values.
test("sin, cos, tan of large arguments", function()
  local x = {1e15, 1e16, -1e22, 1e300, 1.7976931348623157e308, inf, -inf, nan}
  gives(function(t) return t:sin() end, x,
    "0.858272793 0.779688007 0.85220085 -0.817881912 0.00496195479 nan nan nan")
  gives(function(t) return t:cos() end, x,
    "-0.513193738 -0.626168198 0.523214785 -0.575386112 -0.999987689 nan nan nan")
  gives(function(t) return t:tan() end, x,
    "-1.67241478 -1.24517344 1.62877823 1.42144882 -0.00496201587 nan nan nan")
  local y = {1e10, 1e20, -3e38, inf}
  gives(function(t) return t:sin() end, y, "-0.487506032 0.656576693 -0.874904871 nan", "float32")
  gives(function(t) return t:tan() end, y, "-0.558349609 0.870491982 1.80655444 nan", "float32")
  gives(function(t) return lt.sinc(t):abs():le(1):long() end, {1e18, 1e100, 1e300}, "1 1 1")
end)

-- The gradients of f's sum by each tensor of values, eagerly and compiled.
local function gradients(f, want, ...)
  for _, how in ipairs {"eager", "compiled"} do
    local leaves = {}
    for i, values in ipairs {...} do leaves[i] = lt.tensor(values, {dtype = "float64", requires_grad = true}) end
    lt.reset()
    local run = how == "eager" and f or lt.compile(f)
    run(unpack(leaves)):sum():backward()
    local out = {}
    for i, leaf in ipairs(leaves) do out[i] = text(leaf.grad:abs():totable()) end
    equal(table.concat(out, "; "), want, how)
  end
end

test("gradients of atan2 at the origin are 0", function()
  gradients(function(a, b) return lt.atan2(a, b) end, "0 0 0; 0 0 1", {0, -0, 1}, {0, 0, 0})
end)

test("gradients of logaddexp and logaddexp2 of ties, large numbers and infinities", function()
  for _, name in ipairs {"logaddexp", "logaddexp2"} do
    local function f(a, b) return lt[name](a, b) end
    gradients(f, "0.5 1 0 0 nan 1; 0.5 0 1 1 nan 0", {2e7, inf, 1, -inf, inf, inf}, {2e7, 1, inf, 1, inf, -inf})
  end
end)

test("the gradient of the whole's max and min goes to the NaN", function()
  gradients(function(x) return x:max() end, "0 1 0", {1, nan, 2})
  gradients(function(x) return x:min() end, "0 0.5 0.5", {1, nan, nan})
  gradients(function(x) return x:max() end, "0.5 0 0.5", {2, 1, 2})
end)

-- Float32s of all magnitudes against float64, whose formulas are others.
test("sinh and cosh of float32 are within one unit in the last place", function()
  local x = lt.arange(0, 2 ^ 31, 104729):to(lt.int32):view(lt.float32)
  for _, name in ipairs {"sinh", "cosh"} do
    for _, sign in ipairs {1, -1} do
      local a = x * sign
      local got, want = a[name](a), a:double()[name](a:double()):to(lt.float32)
      equal(got:isnan():equal(want:isnan()), true, name)
      local apart = (got:view(lt.int32):to(lt.int64) - want:view(lt.int32):to(lt.int64)):abs()
      equal(apart:masked_fill(want:isnan(), 0):max():item() <= 1, true, name)
    end
  end
end)

h.finish()
