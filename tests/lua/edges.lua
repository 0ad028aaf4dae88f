-- Functions and their gradients where arguments are large, tied, infinite or NaN: as PyTorch, eager and compiled alike.
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

h.finish()
