-- lt.no_grad(f, ...), lt.enable_grad(f, ...): run f with recording off or on, and restore the mode when f returns, also by an error. In Lua, so
-- that f may yield. inference_mode is no_grad: a tensor made in it may be used anywhere.
local lt = ...
local enabled, set = lt.is_grad_enabled, lt.set_grad_enabled

local function restore(mode, ok, ...)
  set(mode)
  if not ok then error((...), 0) end
  return ...
end

local function no_function(where) lt._native.use("errors").wrong(where, "f", "a function or a module", nil) end

function lt.no_grad(f, ...)
  if f == nil then no_function "no_grad" end
  local mode = enabled()
  set(false)
  return restore(mode, pcall(f, ...))
end

function lt.enable_grad(f, ...)
  if f == nil then no_function "enable_grad" end
  local mode = enabled()
  set(true)
  return restore(mode, pcall(f, ...))
end

lt.inference_mode = lt.no_grad
