-- lt.checkpoint(f, ...): gives f(...), but nothing is saved for its backward, which runs f(...) again, with the random
-- state and the autocast of then, when it first needs something. f may not yield: C calls it. In Lua, so that capture
-- inlines it: in a compiled function it is a plain call, which lt.explain counts. Under lt.auto it stays a
-- checkpoint: what f reads may be something else at the time of the backward, and nobody asked for compiled code.
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
