-- Every op against what PyTorch answered (references.lua), values and gradients; and compiled against eager, bit for bit.
local lt = require "lutra"
local h = require "harness"
local truthy, equal = h.truthy, h.equal

local function build(recorded)
  local values = {}
  for i, value in ipairs(recorded) do values[i] = value end
  local n = 1
  for _, size in ipairs(recorded.shape) do n = n * size end
  local t
  if #recorded.shape == 0 then
    t = lt.tensor(values[1], {dtype = recorded.dtype})
  else
    t = lt.tensor(values, {dtype = recorded.dtype}):view(recorded.shape)
  end
  equal(t:numel(), n, "recorded elements")
  return recorded.grad and t:detach():requires_grad_(true) or t
end

local tolerance = {float32 = 2e-6, float64 = 1e-12}

local function same(got, recorded, what)
  equal(got.dtype, recorded.dtype, what .. " dtype")
  equal(table.concat(got.shape, ","), table.concat(recorded.shape, ","), what .. " shape")
  local limit = tolerance[recorded.dtype] or 0
  local flat = got:detach():reshape(-1):totable()
  local scale = 1 -- sums cancel: an element is as exact as the largest
  for _, want in ipairs(recorded) do
    if type(want) == "number" and math.abs(want) < math.huge then scale = math.max(scale, math.abs(want)) end
  end
  for i, want in ipairs(recorded) do
    local v = flat[i]
    local good = v == want or (v ~= v and want ~= want)
    if not good and type(want) == "number" then
      good = math.abs(v - want) <= limit * scale
    end
    truthy(good, string.format("%s element %d is %s, not %s; it", what, i, tostring(v), tostring(want)))
  end
end

-- The bits of a tensor as text: NaNs are all one.
local function bits(t)
  local out = t:detach():reshape(-1):totable()
  for i, v in ipairs(out) do
    if v ~= v then out[i] = "nan" elseif v == 0 then out[i] = 1 / v < 0 and "-0" or "0" else out[i] = type(v) == "number" and string.format("%.17g", v) or tostring(v) end
  end
  return table.concat(out, " ")
end

-- The result and the gradients of f on fresh inputs.
local function run(f, case)
  local inputs, wanted = {}, {}
  for i, recorded in ipairs(case.inputs) do
    inputs[i] = build(recorded)
    if case.grads[i] then wanted[#wanted + 1] = inputs[i] end
  end
  local result = f(unpack(inputs))
  if #wanted > 0 then
    local n = result:numel()
    local seed = (lt.arange(n):to("float64") * 0.37 - 0.5):view(result.shape):to(result.dtype)
    result:backward(seed)
  end
  local grads = {}
  for i in ipairs(case.inputs) do grads[i] = case.grads[i] and inputs[i].grad end
  return result, grads
end

for _, case in ipairs(require "references") do
  h.test(case.name, function()
    local f = assert(loadstring("local lt = ... return function(a, b, c) return " .. case.code .. " end", "=case"))(lt)
    local result, grads = run(f, case)
    same(result, case.result, "result")
    for i in ipairs(case.inputs) do
      if case.grads[i] then same(grads[i], case.grads[i], "gradient " .. i) end
    end
    local compiled = lt.compile(f)
    for round = 1, 2 do
      local again, again_grads = run(compiled, case)
      equal(bits(again), bits(result), "compiled result, call " .. round)
      for i in ipairs(case.inputs) do
        if case.grads[i] then equal(bits(again_grads[i]), bits(grads[i]), "compiled gradient, call " .. round) end
      end
    end
  end)
end

h.finish()
