-- lt.checkpoint(f, ...): gives f(...), but nothing is saved for its backward, which runs f(...) again, with the random
-- state and the autocast of then, when it first needs something. In Lua, so that f may yield and that capture inlines
-- it: a compiled graph decides itself what it computes again.
local lt = ...
local native = lt._native
local begin, over = native.checkpoint, native.checkpoint_end

local function done(ok, ...)
  over()
  if not ok then error((...), 0) end
  return ...
end

function lt.checkpoint(f, ...)
  if type(f) ~= "function" and (type(f) ~= "table" or getmetatable(f) == nil) then
    native.use("errors").callable("checkpoint", "f", f)
  end
  if lt.is_compiling() then return f(...) end
  if not begin(f, ...) then return f(...) end
  return done(pcall(f, ...))
end
