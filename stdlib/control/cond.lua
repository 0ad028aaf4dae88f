-- lt.cond(pred, f, g, ...): f(...) where pred holds, else g(...). pred: a boolean, or a tensor of one element. In a
-- graph both are functions of it, where they can be: of a tensor, its elements decide when the graph runs. Then results
-- are copies where f or g gives a tensor that it was given or reads.
local lt, use = ...
local errors, tree, record = use "errors", use "control.tree", use "control.record"
local native = lt._native
local possible, emit = native.control_possible, native.control_cond

-- Results are tensors of their own, as those of the graph's function are.
local function copies(...)
  local results, n = {...}, select("#", ...)
  for i = 1, n do results[i] = tree.copy(results[i]) end
  return unpack(results, 1, n)
end

return function(pred, f, g, ...)
  errors.callable("cond", "f", f)
  errors.callable("cond", "g", g)
  if lt.is_tensor(pred) and possible() then
    local first, results, n = record.call("cond", f, ...)
    local second, others, m = record.call("cond", g, ...)
    record.same("the branches give values of different structure", results, n, others, m)
    return record.unpack(results, n, emit(pred, first, second))
  end
  if not lt.is_tensor(pred) then return (tree.truth("cond", "pred", pred) and f or g)(...) end
  return copies((tree.truth("cond", "pred", pred) and f or g)(...))
end
