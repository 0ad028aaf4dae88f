-- lt.while_loop(cond, body, ...): while cond(...) holds, replaces the carried values by body(...). Returns the last
-- ones. A carried value is a tensor or a (nested) table of tensors, and keeps its shape, dtype and device. In a graph
-- both become functions of the graph, if possible.
local lt, use = ...
local errors, tree, record, reads = use "errors", use "control.tree", use "control.record", use "control.reads"
local native = lt._native
local possible, emit = native.control_possible, native.control_while

local function list_of(...) return {...}, select("#", ...) end

local function flat(list, n)
  local out = {}
  for i = 1, n do
    local tensors = tree.flatten("while_loop", "carried value " .. i, list[i])
    for k = 1, #tensors do out[#out + 1] = tensors[k] end
  end
  return out
end

local function of_graph(cond, body, carried, n)
  local tensors = flat(carried, n)
  local test, condition = record.body("while_loop", "cond", 0, cond, carried, n, true)
  if not lt.is_tensor(condition[1]) then native.control_refuse("cond gives no tensor") end
  local step, results, m = record.body("while_loop", "body", #tensors, body, carried, n)
  local side = record.side("body", body)
  record.same(side, results, m, "it takes", carried, n)
  return record.unpack(carried, n, emit(test, step, tensors, record.side("cond", cond), side))
end

-- Returns, for eager code, a function that puts a border between two steps if gradients flow through the loop. Each
-- carried value that takes a gradient has one there. Gradients of read tensors begin with zeros, behind the last step.
local function border_of(cond, body, carried, n)
  if not lt.is_grad_enabled() then return nil end
  local takes, read = reads.loop(cond, body, carried, n)
  local any = false
  for k = 1, takes and #takes or 0 do any = any or takes[k] end
  if not any then return nil end
  local token
  return function(values, list, came, is_last)
    local out
    out, token = native.control_border(list, takes, is_last and read or {}, token)
    for k = 1, #list do
      for i = 1, #came do
        if rawequal(list[k], came[i]) and not rawequal(list[k], out[k]) then came[#came + 1] = out[k] break end
      end
    end
    return record.rebuild(values, n, out)
  end
end

return function(cond, body, ...)
  errors.callable("while_loop", "cond", cond)
  errors.callable("while_loop", "body", body)
  local carried, n = list_of(...)
  if n == 0 then errors.fail "while_loop: there is nothing to carry: give a value after body" end
  local first = flat(carried, n)
  if possible() then return of_graph(cond, body, carried, n) end
  local border = border_of(cond, body, carried, n)
  local function given() return "what " .. tree.place_of("body", body) .. " gives" end
  -- `came` lists the tensors that came in, with all the aliases that borders have made of them.
  local last, came = first, {unpack(first)}
  if border then carried = border(carried, first, came) end
  while tree.truth("while_loop", "cond", cond(unpack(carried, 1, n))) do
    local new, count = list_of(body(unpack(carried, 1, n)))
    if count ~= n then
      errors.fail("while_loop: %s gives %d values, but %d are carried", tree.place_of("body", body), count, n)
    end
    last = flat(new, n)
    tree.check("while_loop", given, last, "the carried values", first)
    carried = border and border(new, last, came) or new
  end
  if not border then return unpack(tree.own(carried, last, first), 1, n) end
  local own = tree.own(carried, flat(carried, n), came)
  return unpack(border(own, flat(own, n), {}, true), 1, n)
end
