-- lt.no_grad(f, ...), lt.enable_grad(f, ...): run f with recording off or on. They restore the mode when f returns or
-- raises. They are in Lua so that f may yield. Then the code that resumed it goes on in f's mode, as in a Python
-- generator's `with torch.no_grad()`. inference_mode is no_grad: a tensor made in it may be used anywhere.
local lt = ...
local enabled, set = lt.is_grad_enabled, lt.set_grad_enabled

local function restore(mode, ok, ...)
  set(mode)
  if not ok then error((...), 0) end
  return ...
end

local function runner(name, on)
  return function(f, ...)
    if type(f) ~= "function" then lt._native.use("errors").callable(name, "f", f) end
    local mode = enabled()
    set(on)
    return restore(mode, pcall(f, ...))
  end
end

lt.no_grad, lt.inference_mode, lt.enable_grad = runner("no_grad", false), runner("inference_mode", false),
  runner("enable_grad", true)
