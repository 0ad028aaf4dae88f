-- lt.scan(f, init, xs, {dim = 0, reverse = false}): calls carry, y = f(carry, x) for each slice x of xs along dim, from
-- the first to the last or in reverse. Returns the last carry and the ys, stacked along dimension 0 so that ys[i]
-- belongs to slice i. carry, x and y: a tensor or a (nested) table of tensors; y may be nil.
--
-- In a graph a short scan is unrolled. For a long one f becomes a function of the graph, if possible.
local lt, use = ...
local errors, keywords, tree, record = use "errors", use "keywords", use "control.tree", use "control.record"
local native = lt._native
local possible, peels, emit = native.control_possible, native.control_peels, native.control_scan

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

local function pair(f, ...)
  local n = select("#", ...)
  if n > 2 then errors.fail("scan: %s gives %d values; a carry and a y are taken", tree.place_of("f", f), n) end
  return ...
end

-- Returns what f gives for the slices at i.
local function step_at(f, carry, xs, slices, dim, i)
  local x = {}
  for k = 1, #slices do x[k] = slices[k]:select(dim, i) end
  return pair(f, f(carry, tree.like(xs, x)))
end

local function check_carry(f, last, first)
  tree.check("scan", function() return "the carry that " .. tree.place_of("f", f) .. " gives" end, last, "init", first)
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
  peels(tree.flatten("scan", "the carry that f gives", results[1]), carried)
  local out = emit(body, carried, slices, dim, reverse, side)
  local carry, at = tree.place(init, out, 1)
  if results[2] == nil then return carry, nil end
  return carry, (tree.place(results[2], out, at))
end

-- Makes the first step a part of the graph, and a function of the others.
local function of_graph_but_first(f, init, xs, slices, dim, reverse, n)
  local carry, y = step_at(f, init, xs, slices, dim, reverse and n - 1 or 0)
  local last = tree.flatten("scan", "the carry that f gives", carry)
  check_carry(f, last, tree.flatten("scan", "argument 'init'", init))
  record.same(record.side("f", f), {carry}, 1, "it takes", {init}, 1)
  local others, ys = {}, nil
  for k = 1, #slices do others[k] = slices[k]:narrow(dim, reverse and 0 or 1, n - 1) end
  carry, ys = of_graph(f, carry, xs, others, dim, reverse)
  record.same("f", {y}, 1, "in another step", {ys}, 1)
  if y == nil then return carry, nil end
  local first, rest = tree.flatten("scan", "the y that f gives", y), tree.flatten("scan", "ys", ys)
  for k = 1, #rest do
    local one = first[k]:unsqueeze(0)
    rest[k] = lt.cat(reverse and {rest[k], one} or {one, rest[k]}, 0)
  end
  return carry, tree.like(ys, rest)
end

return function(f, init, xs, options)
  errors.callable("scan", "f", f)
  options = keywords.check("scan", options, defaults)
  local dim, reverse = options.dim, options.reverse
  local slices, n = tree.slices("scan", "argument 'xs'", xs, dim)
  if n == 0 then errors.fail("scan: argument 'xs' has size 0 along dim %d", dim) end
  -- Ops of unrolled steps may be fused with each other, but compile time grows with their number.
  if possible(n) and not peels() then return of_graph(f, init, xs, slices, dim, reverse) end
  if possible(n) and n > 1 then return of_graph_but_first(f, init, xs, slices, dim, reverse, n) end
  if possible(n) then n = 1 end -- one step needs no loop; as a constant it asks nothing more
  local carry, last, model, ys = init, nil, nil, {}
  local first = tree.flatten("scan", "argument 'init'", init)
  for step = 0, n - 1 do
    local i = reverse and n - 1 - step or step
    local y
    carry, y = step_at(f, carry, xs, slices, dim, i)
    last = tree.flatten("scan", "the carry that f gives", carry)
    check_carry(f, last, first)
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
