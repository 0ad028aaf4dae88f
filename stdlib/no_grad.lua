-- lt.no_grad(f, ...): runs f without recording and restores the mode when f returns, also by an error. In Lua, so that f may yield.
local lt = ...
local enabled, set = lt.is_grad_enabled, lt.set_grad_enabled

local function restore(mode, ok, ...)
  set(mode)
  if not ok then error((...), 0) end
  return ...
end

return function(f, ...)
  local mode = enabled()
  set(false)
  return restore(mode, pcall(f, ...))
end
