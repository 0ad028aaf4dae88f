-- lt.cond(pred, f, g, ...): f(...) where pred holds, else g(...). pred: a boolean, or a tensor of one element.
local _, use = ...
local errors, tree = use "errors", use "control.tree"

return function(pred, f, g, ...)
  errors.callable("cond", "f", f)
  errors.callable("cond", "g", g)
  if tree.truth("cond", "pred", pred) then return f(...) end
  return g(...)
end
