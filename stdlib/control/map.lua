-- lt.map(f, xs, ...): calls f(x, ...) for each slice x of xs along dimension 0. Returns the results, stacked along
-- dimension 0. xs and each result: a tensor or a (nested) table of tensors.
--
-- In a graph a long map is a scan that carries nothing.
local lt, use = ...
local errors, tree, scan = use "errors", use "control.tree", use "control.scan"
local native = lt._native

local function list_of(...) return {...}, select("#", ...) end

local function of_graph(f, xs, ...)
  local more, m = list_of(...)
  local _, ys = scan(function(_, x) return {}, {f(x, unpack(more, 1, m))} end, {}, xs)
  return unpack(ys)
end

return function(f, xs, ...)
  errors.callable("map", "f", f)
  local slices, n = tree.slices("map", "argument 'xs'", xs, 0)
  if n == 0 then errors.fail "map: argument 'xs' has size 0 along dim 0" end
  if native.control_possible(n) then return of_graph(f, xs, ...) end
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
