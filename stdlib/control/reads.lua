-- Finds, for eager code, the tensors to which the gradients of branches and loops flow. It takes (f, g, ...) or (cond,
-- body, carried, n), traces them, and returns the result of the trace, or nil if they cannot be functions of a graph.
-- So the data do not decide which tensors get a gradient (ops/grad/control_border.h).
--
-- The trace is a compiled function that runs nothing: the next call costs its guards. There is one for each pair of
-- functions and each rank of their arguments. Beyond lt.config.recompile_limit a new one replaces it. If compiled code
-- leaves control flow to Lua, it is called outside of the graph, so that it returns the same as in eager code.
local lt, use = ...
local tree = use "control.tree"
local native = lt._native

local M = {}
local known = {}

local function place(f)
  if type(f) ~= "function" then return tostring(f) end
  local about = debug.getinfo(f, "S")
  return about.source .. ":" .. about.linedefined .. ":" .. about.lastlinedefined
end

local function add(parts, value)
  if lt.is_tensor(value) then
    parts[#parts + 1] = value.dtype .. value:dim()
  elseif type(value) == "table" and getmetatable(value) == nil then
    for i = 1, #value do add(parts, value[i]) end
    local names = tree.names(value)
    for i = 1, #names do add(parts, value[names[i]]) end
  end
end

local function fresh(kind)
  return lt.compile(native.stdlib "lutra.control.traces"(lt, use)[kind])
end

-- Runs a trace of this kind on ... The arguments of f and g are the n values.
local function ask(kind, f, g, values, n, ...)
  local parts = {kind, place(f), place(g)}
  for i = 1, n do add(parts, values[i]) end
  local key = table.concat(parts, " ")
  known[key] = known[key] or fresh(kind)
  local first, second = known[key](...)
  if first ~= false then return first, second end
  local trace = fresh(kind)
  first, second = trace(...)
  if first == false then return nil end
  known[key] = trace
  return first, second
end

local function outside(f) return lt.disable(f, {reason = "which gradients there are is found out for eager code"}) end

-- Returns whether pred holds. Then, for f and for g, by flat result: a list of the tensors it reads, or false if it has
-- no gradient.
M.branches = outside(function(pred, f, g, ...)
  local holds = tree.truth("cond", "pred", pred)
  return holds, ask("branches", f, g, {...}, select("#", ...), f, g, ...)
end)

-- Returns, by flat carried value, whether it takes a gradient; and the tensors that body reads.
M.loop = outside(function(cond, body, carried, n)
  return ask("loop", cond, body, carried, n, cond, body, carried, n)
end)

return M
