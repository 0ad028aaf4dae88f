-- Runs the cases of references/ under bfloat16 autocast. The dtypes of the results must be those of PyTorch
-- (autocast_dtypes.lua), or, for a case without a row there, those without autocast. Runs on the CPU, and captures a
-- part of the cases for a GPU (all with LUTRA_TEST_SCALE=4). Dtypes alone need no compilation and no run, so no GPU has
-- to be present.
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local recorded = dofile("autocast_dtypes.lua")
local letters = {bfloat16 = "b", float16 = "h", float32 = "f", float64 = "d"}
local inf, nan = math.huge, 0 / 0
local devices = lt.cuda.is_available() and {"cpu", "cuda"} or {"cpu"}

local function types(...)
  local results = {...}
  if #results == 1 and type(results[1]) == "table" then results = results[1] end
  local text = ""
  for i = 1, #results do text = text .. (type(results[i]) == "userdata" and letters[results[i].dtype] or "o") end
  return text
end

-- Returns a function from inputs to the letters of the results' dtypes.
local function program(code, device)
  local text = "local lt, inf, nan, types = ... return function(a, b, c, d, e, f, g, h) return types(" .. code
    .. ") end"
  local f = assert(loadstring(text, "=case"))(lt, inf, nan, types)
  return device == "cuda" and lt.compile(f) or f
end

local function input(x, dtype, device)
  local n, values = 1, {}
  for _, size in ipairs(x.shape) do n = n * size end
  for i, value in ipairs(x) do values[i] = value end
  local t
  if n == 0 then t = lt.zeros(x.shape, {dtype = dtype})
  elseif #x.shape == 0 then t = lt.tensor(values[1], {dtype = x.dtype}):to(dtype)
  else t = lt.tensor(values, {dtype = x.dtype}):view(x.shape):to(dtype) end
  t = t:to(device)
  return x.grad and t:detach():requires_grad_(true) or t
end

-- f: inputs as recorded; b: all in bfloat16; m: all but the first; n: only the first.
local function inputs_of(case, form, device)
  local inputs, first = {}, true
  for i, x in ipairs(case.inputs) do
    local dtype = x.dtype
    if dtype == "float32" then
      if form == "b" or (form == "m" and not first) or (form == "n" and first) then dtype = "bfloat16" end
      first = false
    end
    inputs[i] = input(x, dtype, device)
  end
  return inputs
end

local function check(case, row, device)
  local f, n = program(case.code, device), 0
  for form in ("fbmn"):gmatch(".") do
    n = n + 1
    local want
    if row then
      local k = 0
      for text in row:gmatch("%S+") do
        k = k + 1
        if k == n then want = text end
      end
    else
      local ok, plain = pcall(f, unpack(inputs_of(case, form, device)))
      want = ok and plain or "-"
    end
    if want ~= "-" then
      h.equal(lt.autocast(device, {dtype = "bfloat16"}, f, unpack(inputs_of(case, form, device))), want, device
        .. " results of form " .. form)
    end
  end
end

local every, n = math.max(1, math.floor(4 / h.scale)), 0
for line in io.popen("ls references"):lines() do
  local family = line:match("^(.*)%.lua$")
  for _, case in ipairs(assert(loadfile("references/" .. line))()) do
    n = n + 1
    for i = 1, n % every == 0 and #devices or 1 do
      local device = devices[i]
      local row = (recorded[family] or {})[case.name]
      if not case.error and recorded[family] then
        h.test(family .. ": " .. case.name .. " on " .. device, function() check(case, row and row[device], device) end)
      end
    end
  end
end

if lt.cuda.is_available() then
  h.test("binary_cross_entropy is refused on cuda, and not where autocast is off", function()
    local x = lt.tensor({0.25, 0.5}):to("cuda")
    local function loss() return lt.nn.functional.binary_cross_entropy(x, x) end
    local ok, message = pcall(lt.autocast, "cuda", loss)
    h.truthy(not ok and tostring(message):find("binary_cross_entropy: is unsafe under autocast", 1, true),
      tostring(message))
    h.equal(types(lt.autocast("cuda", function() return lt.autocast("cuda", {enabled = false}, loss) end)), "f")
  end)
end
h.finish()
