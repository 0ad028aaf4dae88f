-- Tests kernels that are not compiled yet (jit/codegen/cuda/interpreter.h): the recorded cases of tests/oracle on
-- the fake GPU give the CPU's bits, for values and gradients. Run with LUTRA_CUDA_INTERPRET=1, which compiles
-- nothing.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal = h.test, h.equal
local inf, nan = math.huge, 0 / 0

-- Returns elements as text. All NaNs are equal.
local function bits(t)
  local out = t:detach():cpu():reshape(-1):totable()
  for i, v in ipairs(out) do
    if v ~= v then out[i] = "nan"
    elseif v == 0 then out[i] = 1 / v < 0 and "-0" or "0"
    else out[i] = type(v) == "number" and string.format("%.17g", v) or tostring(v) end
  end
  return table.concat(out, " ")
end

local function input(recorded, dtype, device)
  local values = {}
  for i, v in ipairs(recorded) do values[i] = v end
  local t = #recorded.shape == 0 and lt.tensor(values[1], {dtype = recorded.dtype}) or
    lt.tensor(values, {dtype = recorded.dtype}):view(recorded.shape)
  if dtype and recorded.dtype == "float32" then t = t:to(dtype) end
  t = t:to(device)
  return recorded.grad and t:requires_grad_(true) or t
end

-- Returns results, then gradients, except sums over dimensions, whose order differs on a GPU.
local function run(case, dtype, device)
  lt.set_default_device(device)
  lt.manual_seed(1)
  local inputs, out = {}, {}
  for i, recorded in ipairs(case.inputs) do inputs[i] = input(recorded, dtype, device) end
  local text = "local lt, inf, nan = ... return function(a, b, c, d, e, f, g, h) return " .. case.code .. " end"
  local results = {assert(loadstring(text))(lt, inf, nan)(unpack(inputs))}
  if #results == 1 and type(results[1]) == "table" then results = results[1] end
  local numel
  for _, r in ipairs(results) do
    if type(r) == "userdata" then
      out[#out + 1] = bits(r)
      numel = r:numel()
      if r.requires_grad then
        r:backward(lt.arange(r:numel(), {device = device}):mul(0.37):sub(0.5):to(r.dtype):view(r.shape),
          {retain_graph = true})
      end
    end
  end
  for _, x in ipairs(inputs) do out[#out + 1] = x.grad and x.grad:numel() == numel and bits(x.grad) or "none" end
  return out
end

local families = {"elementwise", "arithmetic", "activations", "compare"}
for _, family in ipairs(families) do
  for _, case in ipairs(assert(loadfile("../oracle/references/" .. family .. ".lua"))()) do
    if not case.error then
      test(family .. ": " .. case.name, function()
        local dtypes = {false}
        for _, v in ipairs(case.variants or {}) do
          if v.name == "float64" or v.name == "float16" or v.name == "bfloat16" then dtypes[#dtypes + 1] = v.name end
        end
        for _, dtype in ipairs(dtypes) do
          local want, got = run(case, dtype, "cpu"), run(case, dtype, "cuda")
          for i = 1, #want do equal(got[i], want[i], (dtype or "base") .. " result " .. i) end
        end
      end)
    end
  end
end
lt.set_default_device("cpu")
h.finish()
