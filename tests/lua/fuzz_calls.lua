-- Calls every function and method with random arguments: each gives an error or a result and never crashes the session.
local h = require "harness"
local lt = require "lutra"

local seed = tonumber((os.getenv("LUTRA_TEST_SEED") or "1"):match("^%d+"))
math.randomseed(seed)
local random = math.random

local skip = {free = true, set_num_threads = true, compile = true, patch = true, unpatch = true, auto = true,
  reset = true,
  set_default_device = true, set_grad_enabled = true, disable = true, explain = true, nn = true}

local names = {}
for name, f in pairs(lt) do
  if type(f) == "function" and debug.getinfo(f, "S").what == "C" and not skip[name] then names[#names + 1] = name end
end
for _, name in ipairs {"totable", "item", "float", "long", "bool", "to", "cpu", "backward", "requires_grad_",
  "uniform_", "normal_",
  "retain_grad", "detach_", "type_as", "data_ptr", "element_size"} do
  names[#names + 1] = name
end
table.sort(names)

local function tensor()
  local kind = random(9)
  if kind == 1 then return lt.tensor(random()) end
  if kind == 2 then return lt.arange(random(0, 4)) end
  if kind == 3 then return lt.ones(2, 3, {requires_grad = true}) end
  if kind == 4 then return lt.zeros(0, 3) end
  if kind == 5 then return lt.rand(3, 2):t() end
  if kind == 6 then return lt.tensor({true, false}) end
  if kind == 7 then return lt.ones(2, 1, 3, {dtype = "float64"}) end
  if kind == 8 then return lt.rand(2, 3):gt(0.5) end
  return lt.randint(0, 3, {2, 3})
end

local scalars = {0, 1, 2, 3, -1, 0.5, 2 ^ 40, 2 ^ 62, -2 ^ 63, 1 / 0, 0 / 0, 5LL, -1LL}
local strings = {"float32", "int64", "cpu", "cuda", "mean", "nope", "", "0:1", "None"}
local keys = {"dim", "keepdim", "dtype", "out", "size", "device", "other", "input", "requires_grad", "min", "bad",
  "alpha", "index"}
local value

local function list()
  local out = {}
  for i = 1, random(0, 3) do out[i] = random(4) == 1 and value(1) or random(-1, 3) end
  return out
end

local function keywords()
  local out = {}
  for _ = 1, random(2) do out[keys[random(#keys)]] = value(1) end
  return out
end

function value(depth)
  local kind = random(14)
  if kind <= 5 then return tensor() end
  if kind <= 9 then return random(2) == 1 and random(-1, 2) or scalars[random(#scalars)] end
  if kind == 10 then return random(2) == 1 end
  if kind == 11 then return strings[random(#strings)] end
  if kind == 12 then return depth == 0 and keywords() or nil end
  if kind == 13 then return depth < 2 and list() or 1 end
  return ({print, io.stdout, coroutine.create(print), newproxy()})[random(4)]
end

local function call(name)
  local args, n = {}, random(0, 4)
  for i = 1, n do args[i] = value(0) end
  if random(3) > 1 then args[1], n = tensor(), math.max(n, 1) end
  local f = lt[name] or args[1][name]
  return f(unpack(args, 1, n))
end

h.test("random calls", function()
  local passed, ran = 0, 0
  for _ = 1, 4000 * h.scale do
    local name = names[random(#names)]
    local ok, message = pcall(call, name)
    ran = ran + 1
    if ok then passed = passed + 1 end
    if not ok and tostring(message):find("internal error", 1, true) then
      error("seed " .. seed .. ": " .. name .. ": " .. tostring(message))
    end
  end
  h.truthy(passed > ran / 20, "too few calls were right: " .. passed)
end)

h.test("random indices", function()
  for _ = 1, 2000 * h.scale do
    local x, index = tensor(), value(0)
    if random(2) == 1 then
      index = {}
      for i = 1, random(3) do index[i] = value(1) end
    end
    local ok, message = pcall(function()
      if random(2) == 1 then x[index] = value(1) end
      return x[index]
    end)
    if not ok and tostring(message):find("internal error", 1, true) then
      error("seed " .. seed .. ": " .. tostring(message))
    end
  end
end)

h.test("the session goes on", function()
  collectgarbage()
  h.equal(lt.ones(2, 3):sum():item(), 6)
end)

h.finish()
