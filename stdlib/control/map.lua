-- lt.map(f, xs, ...): f(x, ...) for each slice x of xs along dimension 0; its results, stacked along dimension 0. xs
-- and each result: a tensor or a (nested) table of tensors.
local lt, use = ...
local errors, tree = use "errors", use "control.tree"

local function list_of(...) return {...}, select("#", ...) end

return function(f, xs, ...)
  errors.callable("map", "f", f)
  local slices = tree.flatten("map", "argument 'xs'", xs)
  if #slices == 0 then errors.fail "map: argument 'xs' has no tensors" end
  local n = slices[1]:size(0)
  for k = 2, #slices do
    if slices[k]:size(0) ~= n then
      errors.fail("map: the tensors of xs have sizes %d and %d along dimension 0", n, slices[k]:size(0))
    end
  end
  if n == 0 then errors.fail "map: argument 'xs' has size 0 along dimension 0" end
  local models, columns, count = nil, {}, 0
  for i = 0, n - 1 do
    local x = {}
    for k = 1, #slices do x[k] = slices[k][i] end
    local results, m = list_of(f(tree.like(xs, x), ...))
    if i == 0 then models, count = results, m end
    if m ~= count then
      errors.fail("map: %s gives %d results for slice 0, %d for slice %d", tree.place_of("f", f), count, m, i)
    end
    for r = 1, count do
      local flat = tree.flatten("map", "result " .. r .. " of f", results[r])
      if i == 0 then
        columns[r] = {}
        for k = 1, #flat do columns[r][k] = {} end
      end
      for k = 1, #flat do columns[r][k][i + 1] = flat[k] end
    end
  end
  for r = 1, count do
    local stacked = {}
    for k = 1, #columns[r] do stacked[k] = lt.stack(columns[r][k], 0) end
    models[r] = tree.like(models[r], stacked)
  end
  return unpack(models, 1, count)
end
