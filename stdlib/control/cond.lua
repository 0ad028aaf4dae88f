-- lt.cond(pred, f, g, ...): returns f(...) if pred holds, else g(...). pred: a boolean, or a tensor of one element. In
-- a graph both become functions of the graph, if possible. If pred is a tensor, its elements decide when the graph
-- runs. Then results are copies if f or g returns a tensor that it was given or reads.
local lt, use = ...
local errors, tree, record, reads = use "errors", use "control.tree", use "control.record", use "control.reads"
local native = lt._native
local possible, emit = native.control_possible, native.control_cond

local function list_of(...) return {...}, select("#", ...) end

local function none(list) return not list or #list == 0 end

-- Lists the tensors that the other branch's result reads and this one's does not. They get gradients too, of zeros.
local function others_of(own, other)
  local out, any = {}, false
  for k = 1, #own do
    out[k] = false
    if not none(other[k]) then
      local seen, more = {}, {}
      for _, t in ipairs(own[k] or {}) do seen[t] = true end
      for _, t in ipairs(other[k]) do
        if not seen[t] then more[#more + 1], any = t, true end
      end
      out[k] = more
    end
  end
  return any and out
end

-- Copies results, so that they are tensors of their own, as those of the graph's function are.
local function of_branch(branch, others, ...)
  local results, n = list_of(branch(...))
  for i = 1, n do results[i] = tree.copy(results[i]) end
  if not others then return unpack(results, 1, n) end
  return record.unpack(results, n, native.control_join(record.flatten("cond", results, n), others))
end

return function(pred, f, g, ...)
  errors.callable("cond", "f", f)
  errors.callable("cond", "g", g)
  if lt.is_tensor(pred) and possible() then
    local first, results, n = record.call("cond", "f", f, ...)
    local second, others, m = record.call("cond", "g", g, ...)
    local one, other = record.side("f", f), record.side("g", g)
    record.same(one, results, n, other, others, m)
    return record.unpack(results, n, emit(pred, first, second, one, other))
  end
  if not lt.is_tensor(pred) then return (tree.truth("cond", "pred", pred) and f or g)(...) end
  if not lt.is_grad_enabled() then return of_branch(tree.truth("cond", "pred", pred) and f or g, nil, ...) end
  local holds, first, second = reads.branches(pred, f, g, ...)
  if holds then return of_branch(f, first and others_of(first, second), ...) end
  return of_branch(g, first and others_of(second, first), ...)
end
