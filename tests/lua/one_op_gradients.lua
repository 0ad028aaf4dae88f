-- Tests that an eager gradient of a pointwise op, which is one kernel, has the bits and the layout of its vjp rule run
-- op by op (create_graph does that). It takes the examples of the op table.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local same_bits = require("same_gradients").same_bits
local examples, names = lt._native.use "meta.examples", lt._native.use "meta.names"
local functional = lt.nn.functional

-- The gradients of f(...) with respect to the tensors given. weight(y): the gradient of the result y.
local function gradients(create_graph, weight, f, ...)
  local leaves = {...}
  for i, leaf in ipairs(leaves) do leaves[i] = leaf:detach():requires_grad_() end
  local y = f(unpack(leaves))
  return {lt.grad(y, leaves, {grad_outputs = weight(y), create_graph = create_graph, allow_unused = true})}
end

local function compare(what, weight, f, ...)
  local got, want = gradients(false, weight, f, ...), gradients(true, weight, f, ...)
  for i = 1, select("#", ...) do
    truthy(same_bits(got[i], want[i]), what .. ": bits of gradient " .. i)
    if got[i] then h.deep({got[i]:stride()}, {want[i]:stride()}) end
  end
end

local function random(y)
  lt.manual_seed(3)
  return lt.randn_like(y)
end
local weights = {random, function(y) return lt.ones({}, {dtype = y.dtype}):expand(y.shape) end}

local EDGES = {0, -0.0, 1, -1, 0.5, -0.5, 3, -3, 6, -6, 20, -20, 1e-30, -1e-30, 1e30, -1e30, 1 / 0, -1 / 0, 0 / 0}
local function edges(dtype) return lt.tensor(EDGES, {dtype = dtype}) end

local unary = {
  relu = functional.relu, relu6 = functional.relu6, tanh = lt.tanh, sigmoid = lt.sigmoid, silu = functional.silu,
  gelu = functional.gelu, mish = functional.mish, elu = functional.elu, selu = functional.selu,
  hardswish = functional.hardswish, hardsigmoid = functional.hardsigmoid, hardtanh = functional.hardtanh,
  logsigmoid = functional.logsigmoid, softsign = functional.softsign, softplus = functional.softplus,
  leaky_relu = function(x) return functional.leaky_relu(x, 0.2) end,
  celu = function(x) return functional.celu(x, 0.7) end,
  other_elu = function(x) return functional.elu(x, 0.3) end,
  threshold = function(x) return functional.threshold(x, 0.25, 9) end,
  softshrink = functional.softshrink, hardshrink = functional.hardshrink, abs = lt.abs, sqrt = lt.sqrt,
  rsqrt = lt.rsqrt, square = lt.square, reciprocal = lt.reciprocal, sin = lt.sin, atan = lt.atan, log1p = lt.log1p,
  cube = function(x) return x ^ 3 end, root = function(x) return x ^ 0.5 end, over = function(x) return 2 / x end,
  clamp = function(x) return x:clamp(-0.5, 2) end, clamp_min = function(x) return x:clamp {min = 0.25} end,
  clamp_max = function(x) return x:clamp {max = 0.25} end, remainder = function(x) return x % 0.75 end,
  relu_ = function(x) return (x * 1):relu_() end, sigmoid_ = function(x) return (x * 1):sigmoid_() end,
  elu_ = function(x) return functional.elu(x * 1, 0.3, true) end,
  leaky_relu_ = function(x) return functional.leaky_relu(x * 1, 0.2, true) end,
}
for name, f in pairs(unary) do
  test(name, function()
    for _, dtype in ipairs {"float32", "float64", "bfloat16", "float16"} do
      for i, weight in ipairs(weights) do
        compare(name .. " " .. dtype, weight, f, edges(dtype))
        lt.manual_seed(i)
        local image = lt.randn({2, 3, 4, 5}, {dtype = dtype})
        compare(name .. " in channels_last", weight, f, image:contiguous {memory_format = "channels_last"})
        compare(name .. " of a slice", weight, f, image[{":", ":", {1, 3}}])
        compare(name .. " without dims", weight, f, image[{0, 0, 0, 0}])
        compare(name .. " without elements", weight, f, image[{{0, 0}}])
      end
    end
  end)
end

local binary = {
  div = function(a, b) return a / b end, pow = function(a, b) return a:abs() ^ b end, maximum = lt.maximum,
  minimum = lt.minimum, atan2 = lt.atan2, fmod = lt.fmod, hypot = lt.hypot, logaddexp = lt.logaddexp,
  copysign = lt.copysign, lerp = function(a, b) return a:lerp(b, 0.3) end, xlogy = lt.xlogy,
  where = function(a, b) return lt.where(a:gt(0), a, b) end,
}
for name, f in pairs(binary) do
  test(name, function()
    for _, dtype in ipairs {"float32", "bfloat16"} do
      for _, weight in ipairs(weights) do
        local a = edges(dtype)
        compare(name, weight, f, a, a:flip(0))
        compare(name .. " broadcast", weight, f, a, a:flip(0):view(-1, 1))
        compare(name .. " transposed", weight, f, a:view(-1, 1):expand(#EDGES, 4):contiguous(), lt.ones({4, #EDGES},
          {dtype = dtype}):t())
      end
    end
  end)
end

-- The example's function of the floating inputs that it names, and these.
local function differentiable(line)
  local env, letters, tensors = setmetatable({lt = lt}, {__index = _G}), {}, {}
  for _, rows in ipairs {examples.floats, examples.others} do
    for _, row in ipairs(rows) do
      local letter, value = row[1], assert(loadstring("local lt = ... return " .. row[2]))(lt)
      env[letter] = value
      if rows == examples.floats and line:find("%f[%w]" .. letter .. "%f[^%w]") then
        letters[#letters + 1], tensors[#tensors + 1] = letter, value
      end
    end
  end
  local chunk = setfenv(loadstring("return " .. line) or error, env)
  local function f(...)
    for i, letter in ipairs(letters) do env[letter] = (select(i, ...)) end
    lt.manual_seed(1)
    return (chunk())
  end
  return f, tensors
end

-- Under create_graph, gradients of cumulative products and sums, and of attention, have formulas of their own.
local function has_other_formula(line)
  return line:find "cum" or line:find "vander" or line:find "scaled_dot_product_attention"
end

test("every example", function()
  local compared = 0
  for _, d in ipairs(names.list) do
    local found, line = pcall(examples.example, d)
    if found and not line:find "seed" and not line:find "path" and not has_other_formula(line) then
      local f, tensors = differentiable(line)
      if #tensors > 0 and pcall(gradients, true, random, f, unpack(tensors)) then
        compared = compared + 1
        compare(line, random, f, unpack(tensors))
      end
    end
  end
  truthy(compared > 150, compared .. " examples were compared")
end)

test("a gradient is one launch", function()
  local x = lt.randn({1000}, {requires_grad = true})
  for _, f in ipairs {lt.sigmoid, lt.tanh, functional.relu, functional.hardswish, lt.sqrt} do
    local y, g = f(x), lt.ones(1000)
    lt.grad(y, x, {grad_outputs = g, retain_graph = true})
    local report = tostring(lt.profile(function() return lt.grad(y, x, {grad_outputs = g}) end)())
    truthy(report:find "1 launch of 1 kernel", report)
  end
end)

h.finish()
