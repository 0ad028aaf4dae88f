-- lt.checkpoint(f, ...): returns f(...), but saves nothing for its backward. When the backward first needs a saved
-- tensor, it runs f(...) again with the original random state and autocast mode. f may not yield, because C calls it.
-- It is in Lua so that capture inlines it: in a compiled function it is a plain call, which lt.explain counts. Under
-- lt.auto it stays a checkpoint: what f reads may have changed by the time of the backward, and nobody asked for
-- compiled code.
local lt = ...
local native = lt._native
local watched = native.checkpoint

local function called(f, ...) return f(...) end

function lt.checkpoint(f, ...)
  if type(f) ~= "function" then native.use("errors").callable("checkpoint", "f", f) end
  if native.is_plain_checkpoint() then return f(...) end
  if type(f) ~= "function" then return watched(true, called, f, ...) end
  return watched(false, f, ...)
end
