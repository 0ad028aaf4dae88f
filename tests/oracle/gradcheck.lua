-- gradcheck.lua DIR [family...]: checks first and second derivatives of every case that has gradients, in float64,
-- against central differences along random directions, of S(x) = sum of results * fixed numbers, and of T(x) = sum of
-- its gradients * fixed numbers, which uses gradients of gradients. If the differences to both sides disagree, the
-- function has a kink, and no derivative is compared.
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local truthy = h.truthy
local inf, nan = math.huge, 0 / 0

local step, tolerance = 1e-5, 2e-5
local checked, second, kinks = 0, 0, 0

local function make_inputs(case)
  local inputs = {}
  for i, recorded in ipairs(case.inputs) do
    local values, floats = {}, recorded.dtype:find("float") ~= nil
    for k, value in ipairs(recorded) do values[k] = value end
    local n = 1
    for _, size in ipairs(recorded.shape) do n = n * size end
    local dtype = floats and "float64" or recorded.dtype
    local x = n == 0 and lt.zeros(recorded.shape, {dtype = dtype})
      or lt.tensor(values, {dtype = dtype}):reshape(recorded.shape)
    inputs[i] = {x = x, wanted = recorded.grad}
  end
  return inputs
end

local function numbers(n, phase)
  local list = {}
  for i = 1, n do list[i] = math.sin(1.7 * i + phase) end
  return n == 0 and lt.zeros({0}, {dtype = "float64"}) or lt.tensor(list, {dtype = "float64"})
end

-- Returns S at the inputs moved by t along their directions, and the leaves.
local function value(case, f, inputs, t)
  local leaves, args = {}, {}
  for i, input in ipairs(inputs) do
    args[i] = input.x
    if input.wanted then
      args[i] = (input.x + input.direction * t):detach():requires_grad_(true)
      leaves[#leaves + 1] = args[i]
    end
  end
  lt.manual_seed(0)
  local results = {f(unpack(args))}
  if #results == 1 and type(results[1]) == "table" then results = results[1] end
  local sum
  for k, r in ipairs(results) do
    if type(r) == "userdata" and r.requires_grad then
      local term = (r:to("float64"):reshape(-1) * numbers(r:numel(), k)):sum()
      sum = sum and sum + term or term
    end
  end
  return sum, leaves
end

-- Returns T, or 0 if the gradients are constants.
local function slope(case, f, inputs, t)
  local sum, leaves = value(case, f, inputs, t)
  local grads, total = {lt.grad(sum, leaves, {create_graph = true, allow_unused = true})}, nil
  for i = 1, #leaves do
    local g = grads[i]
    if g and g.requires_grad then
      local term = (g:reshape(-1) * numbers(g:numel(), 10 + i)):sum()
      total = total and total + term or term
    end
  end
  return total, leaves
end

-- Compares the derivative of `of` along the directions, by autograd, with differences.
local function compare(what, of, case, f, inputs)
  local here, leaves = of(case, f, inputs, 0)
  if not here then return false end
  local grads, along = {lt.grad(here, leaves, {allow_unused = true})}, 0
  local k = 0
  for _, input in ipairs(inputs) do
    if input.wanted then
      k = k + 1
      if grads[k] then along = along + (grads[k] * input.direction):sum():item() end
    end
  end
  local at = here:item()
  local after, before = of(case, f, inputs, step):item(), of(case, f, inputs, -step):item()
  local right, left = (after - at) / step, (at - before) / step
  if not (math.abs(right) < inf and math.abs(left) < inf) then return false end
  local scale = 1 + math.abs(along) + math.abs(at)
  if math.abs(right - left) > 0.02 * scale then
    kinks = kinks + 1
    return true
  end
  local numeric = (after - before) / (2 * step)
  -- A jump that is equal on both sides shows with a smaller step.
  local closer = (of(case, f, inputs, step / 8):item() - of(case, f, inputs, -step / 8):item()) / (step / 4)
  if math.abs(closer - numeric) > 0.02 * scale and math.abs(closer - numeric) > math.abs(numeric) then
    kinks = kinks + 1
    return true
  end
  truthy(math.abs(numeric - along) <= tolerance * scale + math.abs(right - left) * 1e-3,
    what .. " derivative is " .. along .. ", by differences " .. numeric .. "; it")
  return true
end

local function check(case)
  local f = assert(loadstring("local lt, inf, nan = ... return function(a, b, c, d, e, f, g, h) return " .. case.code
    .. " end", "=case"))(lt, inf, nan)
  local inputs = make_inputs(case)
  for i, input in ipairs(inputs) do
    if input.wanted then input.direction = numbers(input.x:numel(), 20 + i):view(input.x.shape) end
  end
  if compare("first", value, case, f, inputs) then checked = checked + 1 end
  if case.code:find("ctc_loss", 1, true) then
    return h.raises("the gradient of ctc_loss has no derivative", compare, "second", slope, case, f, inputs)
  end
  if compare("second", slope, case, f, inputs) then second = second + 1 end
end

local function differentiable(case)
  if case.error then return false end
  -- PyTorch's gradient of an embedding skips padding and can weigh by frequency, so it is not the derivative.
  if case.code:find("padding_idx", 1, true) or case.code:find("scale_grad_by_freq", 1, true) then return false end
  -- It also ignores the scaling of rows.
  if case.code:find("embedding", 1, true) and case.name:find("max_norm", 1, true) then return false end
  -- The gradient of vectors shorter than eps is not the derivative, either: it includes the gradient of the length.
  if case.name == "cosine_similarity short" then return false end
  -- PyTorch's gradient of ctc_loss is only right for probabilities that add up to one.
  if case.name == "ctc_loss not normalised" then return false end
  -- A rounded value has steps; its gradient ignores them (straight-through).
  if case.name:find "^fake_quantize" then return false end
  -- At the end of the domain there is only one side.
  if case.name == "binary_cross_entropy gradient at edges" then return false end
  for _, recorded in ipairs(case.inputs) do
    if recorded.grad and recorded.dtype:find("float") then return true end
  end
  return false
end

local dir, wanted = arg[1] or "references", {}
for i = 2, #arg do wanted[#wanted + 1] = arg[i] end
if #wanted == 0 then
  for line in io.popen("ls '" .. dir .. "'"):lines() do wanted[#wanted + 1] = line:match("^(.*)%.lua$") end
end
for _, family in ipairs(wanted) do
  for _, case in ipairs(assert(loadfile(dir .. "/" .. family .. ".lua"))()) do
    if differentiable(case) then h.test(family .. ": " .. case.name, function() check(case) end) end
  end
end
print(checked .. " first and " .. second .. " second derivatives compared, " .. kinks .. " at kinks")
h.finish()
