-- The ways to run a program. Each returns what was observed, in order.
local lt = require "lutra"

local M = {all = {"eager", "compiled", "dynamic", "patched", "auto", "capture", "break", "backward", "outside",
  "collect", "captured", "passes"}, lines = false}

local function same(f) return f end
local function compiled(f) return lt.compile(f) end

-- A mode that runs frames under a stress switch.
local function stressed(frame, switch)
  return {frame = frame, start = function() lt.config.stress = switch end, stop = function() lt.config.stress = nil end}
end

local modes = {
  eager = {frame = same},
  compiled = {frame = compiled},
  dynamic = {frame = function(f) return lt.compile(f, {dynamic = true}) end},
  patched = {frame = function(f) return lt.patch(f) end},
  auto = {frame = same, start = function()
    if not os.getenv "LUTRA_ASYNC" then lt.config.async = false end -- compiled code is to run
    lt.config.profit = "always" -- programs are too short to pay for their captures
    lt.auto {threshold = 1}
  end, stop = function()
    lt.auto(false)
    lt.config.profit = nil
  end},
  capture = stressed(same, "capture"),
  ["break"] = stressed(same, "break"),
  -- Compiled autograd compiles every backward, of eager code and of compiled code.
  backward = stressed(same, "backward"),
  outside = stressed(compiled, "backward"),
  -- Each new tensor collects the dead ones.
  collect = stressed(compiled, "collect"),
  whole = {frame = function(f) return lt.compile(f, {fullgraph = true}) end},
  ["whole dynamic"] = {frame = function(f) return lt.compile(f, {fullgraph = true, dynamic = true}) end},
  -- Runs graphs op by op: as captured, and as the passes have left them.
  captured = {frame = function(f) return lt.compile(f, {backend = "eager"}) end},
  passes = {frame = function(f) return lt.compile(f, {backend = "aot_eager"}) end},
  plain = {frame = same, start = function() lt.checkpoint = function(f, ...) return f(...) end end},
}

-- The values that a program may replace. They are restored after it.
local function snapshot()
  local kept = {}
  local function keep(t)
    if type(t) ~= "table" or kept[t] then return end
    local fields = {}
    for k, v in pairs(t) do fields[k] = v end
    kept[t] = fields
  end
  keep(_G)
  for _, name in ipairs {"string", "table", "math", "os", "io", "coroutine", "debug", "bit"} do
    keep(_G[name] or require(name))
  end
  keep(getmetatable(""))
  keep(getmetatable(lt.ones(1)))
  keep(lt)
  keep(lt.nn)
  keep(lt.nn.functional)
  local index = getmetatable("").__index
  return function()
    for t, fields in pairs(kept) do
      for k in next, t do
        if fields[k] == nil then rawset(t, k, nil) end
      end
      for k, v in next, fields do
        if rawget(t, k) ~= v then rawset(t, k, v) end
      end
    end
    getmetatable("").__index = index
  end
end

local folder = debug.getinfo(1, "S").source:match("^@(.*)modes%.lua$")

-- The order of string keys in a table depends on when LuaJIT interned the strings. A program's constants stay while its
-- modes run, so that tables have one order in all of them.
local text_of_constants, constants

-- Runs a program's text under a mode.
function M.run(text, mode)
  local how = assert(modes[mode], "no mode " .. tostring(mode))
  local world = assert(loadfile(folder .. "world.lua"))()
  world.lines = M.lines
  local chunk, message = loadstring(text, "=program")
  if not chunk then error(message, 0) end
  if text ~= text_of_constants then text_of_constants, constants = text, loadstring(text) end
  local environment = {}
  for k, v in pairs(_G) do environment[k] = v end
  environment._G = environment
  setfenv(chunk, environment)
  local restore = snapshot()
  lt.reset()
  lt.manual_seed(1)
  math.randomseed(1)
  lt.set_grad_enabled(true)
  lt.config.activation_memory_budget = 1
  collectgarbage()
  if how.start then how.start() end
  local ok, failure = pcall(chunk, lt, how.frame, world.see, world.gradient, world.try, world.data)
  if how.stop then how.stop() end
  lt.set_grad_enabled(true)
  restore()
  -- An internal error only shows on stderr: the original code runs instead, so results do not differ.
  local errors = lt.counters().stats.internal_errors
  if errors > 0 then world.failed("the compiler", errors .. " internal errors, told on stderr") end
  if not ok then world.failed("program", failure) end
  return world.seen
end

local function near(a, b)
  if not a.values or not b.values or #a.values ~= #b.values or a.dtype ~= b.dtype then return false end
  if table.concat(a.shape, " ") ~= table.concat(b.shape, " ") or a.requires_grad ~= b.requires_grad then
    return false
  end
  local largest, difference = 0, 0
  for i, v in ipairs(a.values) do
    local w = b.values[i]
    if type(v) ~= "number" or type(w) ~= "number" then return false end
    if v == v and w == w and math.abs(v) ~= math.huge then
      largest, difference = math.max(largest, math.abs(v)), math.max(difference, math.abs(v - w))
    elseif not (v == w or v ~= v and w ~= w) then
      return false
    end
  end
  return difference <= (a.dtype == "float64" and 1e-13 or 1e-5) * largest
end

-- Returns whether it is the error of a GPU kernel, raised when the host waited for it. Kernels of a segment run side by
-- side: if several of them fail, any one is reported.
local function is_late(seen) return seen.error and seen.text:find("(launched at ", 1, true) ~= nil end

-- Compares observed values. Returns nil, or the first difference's kind ("value", "error", "gradient", "rounding"), its
-- text, and the values. A difference of rounding, only in a gradient, is returned if there is no other.
function M.compare(want, got)
  local rounding
  for i = 1, math.max(#want, #got) do
    local a, b = want[i], got[i]
    if not a or not b then
      return a and a.kind or b.kind, ("%s was seen in one run only: %s"):format((a or b).name, (a or b).text),
        (a or b).name
    end
    local differs = a.text ~= b.text or a.name ~= b.name
    if differs and not (a.name == b.name and is_late(a) and is_late(b)) then
      local text = ("%s\n  eager  %s\n  other  %s%s"):format(a.name, a.text, b.name == a.name and "" or b.name .. ": ",
        b.text)
      local kind = (a.error or b.error) and "error" or a.kind
      if kind ~= "gradient" or not near(a, b) then return kind, text, a.name end
      rounding = rounding or text
    end
  end
  if rounding then return "rounding", rounding end
end

return M
