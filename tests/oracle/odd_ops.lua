-- odd_ops.lua [--device cuda] [--print]: calls of the recorded cases (references/) on inputs of other dtypes, layouts,
-- sizes and elements, by seed. Eager, compiled, compiled with dynamic sizes and the interpreter of loop IR give the
-- same: dtypes, shapes, strides, bits, gradients, what is left in the inputs, or the same error. On a GPU the
-- interpreter, which is the CPU's, is left out. --print names each call first.
--   LUTRA_TEST_SEED=A-B  these seeds; else as many as the scale of tests says
package.path = "../lua/?.lua;" .. package.path
local lt = require "lutra"
local h = require "harness"
local inf, nan = math.huge, 0 / 0
local random = math.random
local device, printing = "cpu", false
for i, option in ipairs(arg) do
  if option == "--device" then device = arg[i + 1] elseif option == "--print" then printing = true end
end
assert(lt.nn.functional)

-- Differences that are allowed, and why.
local skipped = {
  "data_ptr",                       -- an address
  "_like", "empty", "new_empty",    -- elements that are anything
}

local function is_skipped(code)
  for _, text in ipairs(skipped) do
    if code:find(text, 1, true) then return true end
  end
  return false
end

local cases = {}
for path in io.popen("ls references"):lines() do
  for _, case in ipairs(assert(loadfile("references/" .. path))()) do
    if not case.error and #case.inputs > 0 and not is_skipped(case.code) then cases[#cases + 1] = case end
  end
end

-- Inputs -------------------------------------------------------------------------------------------------------------

local function pick(list) return list[random(#list)] end

local floats = {"float32", "float32", "float64", "float16", "bfloat16"}
local others = {"int64", "int32", "int16", "int8", "uint8", "bool"}
local special = {nan, inf, -inf, -0.0, 0, 1e-42, 3e38}

-- Chooses one dtype, mostly a float, for all float32 inputs of a case, and sometimes others for integers and bools.
local function dtypes_of(case)
  local of = {float32 = random(5) == 1 and pick(others) or pick(floats)}
  if random(6) == 1 then of.int64 = pick {"int32", "uint8", "int16", "float32"} end
  if random(10) == 1 then of.bool = pick {"uint8", "float32"} end
  return function(recorded)
    if random(40) == 1 then return pick(floats) end
    return of[recorded.dtype] or recorded.dtype
  end
end

-- Sets the largest size to 0, or drops all dimensions.
local function sizes_of(case)
  local way, largest = random(12), 0
  for _, recorded in ipairs(case.inputs) do
    for _, size in ipairs(recorded.shape) do largest = math.max(largest, size) end
  end
  return function(recorded)
    local sizes = {}
    if way == 1 then return sizes end
    for d, size in ipairs(recorded.shape) do sizes[d] = way == 2 and size == largest and 0 or size end
    return sizes
  end
end

local function count(sizes)
  local n = 1
  for _, size in ipairs(sizes) do n = n * size end
  return n
end

local layouts = {}
function layouts.dense(t) return t end
function layouts.turned(t)
  if t:dim() < 2 then return t end
  local a, b = random(t:dim()) - 1, random(t:dim()) - 1
  return t:transpose(a, b):contiguous():transpose(a, b)
end
function layouts.stepped(t)  -- every second element along one dim
  if t:dim() == 0 then return t end
  local d = random(t:dim()) - 1
  return lt.stack({t, t}, d + 1):flatten(d, d + 1):unflatten(d, {-1, 2}):select(d + 1, 0)
end
function layouts.offset(t)  -- within a larger tensor
  if t:dim() == 0 then return lt.stack {t, t}[1] end
  local d = random(t:dim()) - 1
  return lt.cat({t, t}, d):narrow(d, t:size(d), t:size(d))
end
function layouts.expanded(t)  -- all slices along one dim are one
  if t:dim() == 0 then return t end
  local d = random(t:dim()) - 1
  if t:size(d) == 0 then return t end
  local sizes = {t:size()}
  return t:narrow(d, 0, 1):clone():expand(sizes)
end
function layouts.thin(t)  -- a stride that no element needs
  return lt.stack({t, t}, 0):narrow(0, 0, 1):select(0, 0)
end
local layout_names = {"dense", "turned", "stepped", "offset", "expanded", "thin"}

local function plan_of(case)
  local dtype, sizes, plan = dtypes_of(case), sizes_of(case), {}
  for i, recorded in ipairs(case.inputs) do
    local own = {dtype = dtype(recorded), sizes = sizes(recorded), layout = pick(layout_names), seed = random(2 ^ 30)}
    own.values = {}
    local n, spoilt = count(own.sizes), random(4) == 1
    for k = 1, n do
      own.values[k] = recorded[k]
      if spoilt and own.dtype:find "float" and recorded.dtype == "float32" and random(6) == 1 then
        own.values[k] = pick(special)
      end
    end
    own.grad = own.dtype:find "float" and recorded.grad and random(2) == 1
    plan[i] = own
  end
  return plan
end

local function input_of(own)
  local t
  if #own.values == 0 then
    t = lt.zeros(own.sizes, {dtype = own.dtype})
  else
    local values = own.values
    local given = type(values[1]) == "boolean" and "bool" or own.dtype:find "float" and own.dtype or "float64"
    t = lt.tensor(#own.sizes == 0 and values[1] or values, {dtype = given}):to(own.dtype):view(own.sizes)
  end
  math.randomseed(own.seed)
  t = layouts[own.layout](t:to(device))
  if own.grad then t = t:detach():requires_grad_(true) end
  return t
end

-- Observations -------------------------------------------------------------------------------------------------------

local function element(v)
  if v ~= v then return "nan" end
  if v == 0 then return 1 / v < 0 and "-0" or "0" end
  return type(v) == "number" and string.format("%.17g", v) or tostring(v)
end

local function seen(v)
  if type(v) == "table" then
    local out = {}
    for i, item in ipairs(v) do out[i] = seen(item) end
    return "{" .. table.concat(out, "; ") .. "}"
  end
  if not lt.is_tensor(v) then return type(v) == "number" and element(v) or tostring(v) end
  local values = v:detach():reshape(-1):totable()
  for i, x in ipairs(values) do values[i] = element(x) end
  local strides = {v:stride()}
  for d = 1, #strides do
    if v:size(d - 1) < 2 or v:numel() == 0 then strides[d] = "-" end
  end
  return string.format("%s [%s] strides [%s]%s: %s", v.dtype, table.concat(v.shape, " "), table.concat(strides, " "),
    v.requires_grad and " grad" or "", table.concat(values, " "))
end

local function program(code)
  local text = "local lt, inf, nan = ... return function(a, b, c, d, e, f, g, h) return " .. code .. " end"
  return assert(loadstring(text, "=case"))(lt, inf, nan)
end

-- Runs f(...) and waits for the device, because errors of kernels are raised at a wait.
local function finished(f, ...)
  local results = {f(...)}
  if device ~= "cpu" then lt.cuda.synchronize() end
  return unpack(results, 1, table.maxn(results))
end

local function backward(results)
  for _, r in ipairs(results) do
    if lt.is_tensor(r) and r.requires_grad then
      local seed = lt.arange(r:numel(), {dtype = "float64", device = device}):mul(0.25):sub(0.5)
      r:backward(seed:view(r.shape):to(r.dtype), {retain_graph = true})
    end
  end
end

-- Everything that a run of f shows, as one text.
local function outcome(f, plan)
  local inputs, out = {}, {}
  for i, own in ipairs(plan) do inputs[i] = input_of(own) end
  lt.manual_seed(1)
  local results = {pcall(finished, f, unpack(inputs))}
  if not results[1] then
    out[1] = "raises " .. tostring(results[2]):gsub("^[^:]*:%d+: ", ""):gsub("\n.*", "")
  else
    table.remove(results, 1)
    if #results == 1 and type(results[1]) == "table" then results = results[1] end
    out[1] = seen(results)
    local ok, message = pcall(finished, backward, results)
    if not ok then out[2] = "backward raises " .. tostring(message):gsub("^[^:]*:%d+: ", ""):gsub("\n.*", "") end
  end
  for i, t in ipairs(inputs) do
    out[#out + 1] = ("input %d: %s, gradient %s"):format(i, seen(t), t.grad and seen(t.grad) or "none")
  end
  return table.concat(out, "\n"), results[1] ~= false
end

-- Running ------------------------------------------------------------------------------------------------------------

local function describe(case, plan)
  local texts = {}
  for i, own in ipairs(plan) do
    texts[i] = ("%s {%s} %s%s"):format(own.dtype, table.concat(own.sizes, ", "), own.layout, own.grad and " grad" or "")
  end
  return case.code .. " with " .. table.concat(texts, "; ")
end

local modes = {
  {"compiled", function(f) return lt.compile(f) end},
  {"dynamic", function(f) return lt.compile(f, {dynamic = true}) end},
}
if device == "cpu" then modes[#modes + 1] = {"interpreter", function(f) return f end, "interp"} end

local function check(seed)
  math.randomseed(seed)
  for _ = 1, 5 do random() end
  local case = pick(cases)
  local plan = plan_of(case)
  if printing then print(("seed %d: %s"):format(seed, describe(case, plan))) io.stdout:flush() end
  local want, ran = outcome(program(case.code), plan)
  local isa = lt.config.isa
  for _, mode in ipairs(modes) do
    local name, wrap, other = unpack(mode)
    if other then lt.config.isa = other end
    local ok, got = pcall(outcome, wrap(program(case.code)), plan)
    lt.config.isa = isa
    if got ~= want then
      local told = "seed %d, %s: %s\n  eager: %s\n  %s: %s"
      got = tostring(got):sub(1, 1500)
      error(told:format(seed, name, describe(case, plan), want:sub(1, 1500), name, got), 0)
    end
  end
  return ran
end

local first, last = (os.getenv "LUTRA_TEST_SEED" or ""):match "^(%d+)%-?(%d*)$"
if not first then first, last = 1, math.max(1, math.floor(150 * h.scale)) end
first = tonumber(first)
last = tonumber(last) or first
local passed, failed, raised = 0, 0, 0
for seed = first, last do
  local ok, message = pcall(check, seed)
  if ok then passed = passed + 1 else failed = failed + 1 print("FAILED " .. tostring(message)) end
  if ok and not message then raised = raised + 1 end
  if seed % 50 == 0 then lt.reset() collectgarbage() end
end
print(("seeds %d-%d: %d the same, of which %d raise; %d failed"):format(first, last, passed, raised, failed))
assert(raised < passed or last - first < 20, "no program ran to its end")
os.exit(failed == 0 and 0 or 1)
