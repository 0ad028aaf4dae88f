-- lt.set_stance(stance, f, ...): sets what compiled functions do from now on, or while f runs. It then returns f's
-- results.
--   "default"             runs compiled code, and compiles where there is none for a call
--   "force_eager"         runs the original code
--   "eager_on_recompile"  runs compiled code that is there, and the original code otherwise
--   "fail_on_recompile"   runs compiled code that is there; a call without is an error that names the guard
local lt, use = ...
local set = lt._native.set_stance

local M = {}

local function restore(stance, ok, ...)
  set(stance)
  if not ok then error((...), 0) end
  return ...
end

function M.set_stance(stance, f, ...)
  if f == nil then set(stance) return end
  if type(f) ~= "function" and not (getmetatable(f) or {}).__call then use("errors").callable("set_stance", "f", f) end
  return restore(set(stance), pcall(f, ...))
end

return M
