-- lt.scan(f, init, xs, {dim = 0, reverse = false}): calls carry, y = f(carry, x) for each slice x of xs along dim, from
-- the first to the last or in reverse. Returns the last carry and the ys, stacked along dimension 0 so that ys[i]
-- belongs to slice i. carry, x and y: a tensor or a (nested) table of tensors; y may be nil.
--
-- In a graph a short scan is unrolled. For a long one f becomes a function of the graph, if possible.
local lt, use = ...
local errors, keywords, tree, record = use "errors", use "keywords", use "control.tree", use "control.record"
local native = lt._native
local possible, emit = native.control_possible, native.control_scan

local defaults = {dim = 0, reverse = false}

local function stack_all(model, steps)
  local stacked = {}
  for k = 1, #steps[1] do
    local column = {}
    for i = 1, #steps do column[i] = steps[i][k] end
    stacked[k] = lt.stack(column, 0)
  end
  return tree.like(model, stacked)
end

local function of_graph(f, init, xs, slices, dim, reverse)
  local x = {}
  for k = 1, #slices do x[k] = slices[k]:select(dim, 0) end
  local values = {init, tree.like(xs, x)}
  local carried = tree.flatten("scan", "argument 'init'", init)
  local body, results, n = record.body("scan", "f", #carried, f, values, 2)
  if n > 2 then native.control_refuse("f gives more than a carry and a y") end
  local side = record.side("f", f)
  record.same(side, results, 1, "it takes", values, 1)
  local out = emit(body, carried, slices, dim, reverse, side)
  local carry, at = tree.place(init, out, 1)
  if results[2] == nil then return carry, nil end
  return carry, (tree.place(results[2], out, at))
end

local function pair(f, ...)
  local n = select("#", ...)
  if n > 2 then errors.fail("scan: %s gives %d values; a carry and a y are taken", tree.place_of("f", f), n) end
  return ...
end

return function(f, init, xs, options)
  errors.callable("scan", "f", f)
  options = keywords.check("scan", options, defaults)
  local dim, reverse = options.dim, options.reverse
  local slices, n = tree.slices("scan", "argument 'xs'", xs, dim)
  if n == 0 then errors.fail("scan: argument 'xs' has size 0 along dim %d", dim) end
  -- Ops of unrolled steps may be fused with each other, but compile time grows with their number.
  if possible(n) then return of_graph(f, init, xs, slices, dim, reverse) end
  local carry, last, model, ys = init, nil, nil, {}
  local first = tree.flatten("scan", "argument 'init'", init)
  local function given() return "the carry that " .. tree.place_of("f", f) .. " gives" end
  for step = 0, n - 1 do
    local i = reverse and n - 1 - step or step
    local x = {}
    for k = 1, #slices do x[k] = slices[k]:select(dim, i) end
    local y
    carry, y = pair(f, f(carry, tree.like(xs, x)))
    last = tree.flatten("scan", "the carry that f gives", carry)
    tree.check("scan", given, last, "init", first)
    if step == 0 then model = y end
    if (y == nil) ~= (model == nil) then errors.fail("scan: %s gives a y in some steps only", tree.place_of("f", f)) end
    if y ~= nil then ys[i + 1] = tree.flatten("scan", "the y that f gives", y) end
  end
  carry = tree.own(carry, last, first)
  if model == nil then return carry, nil end
  for i = 2, n do
    tree.check("scan", function() return "a y that " .. tree.place_of("f", f) .. " gives" end, ys[i], "the first",
      ys[1])
  end
  return carry, stack_all(model, ys)
end
