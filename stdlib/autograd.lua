-- lt.autograd: grad, and Function, the base of ops whose gradients are written in Lua:
--   local Exp = lt.autograd.Function:extend "Exp"
--   function Exp.forward(ctx, x) local y = x:exp(); ctx:save_for_backward(y); return y end
--   function Exp.backward(ctx, gradient) local y = unpack(ctx.saved_tensors); return gradient * y end
--   local y = Exp.apply(x)
-- forward runs without recording. backward returns a gradient for each argument of forward, or nil for none. A class
-- may have setup_context(ctx, inputs, output) beside a forward without ctx. Compiled code breaks at apply, unless it
-- also has the backward.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail

-- Makes results those of a new node. backward(context, ...) takes the results' gradients, then the saved tensors, and
-- returns the inputs' gradients. context[1], context[2] ... are functions that it calls. If `to` is a result of an
-- earlier node, backward returns one more gradient for each result. The earlier node's backward gets these behind those
-- of its own results.
local function node_of(name, backward, context, inputs, results, saved, to) lt._native.make_node(name, backward,
  context, inputs, results, saved, to) end

local Context = {}
Context.__index = Context

function Context:save_for_backward(...)
  local list = {n = select("#", ...), ...}
  for i = 1, list.n do
    if list[i] ~= nil then errors.tensor("save_for_backward", "tensor " .. i, list[i]) end
  end
  self._saved = list
end

local function mark(field)
  return function(self, ...)
    self[field] = {}
    for i = 1, select("#", ...) do
      local t = select(i, ...)
      errors.tensor(field:sub(2), "tensor " .. i, t)
      self[field][t] = true
    end
  end
end
Context.mark_non_differentiable, Context.mark_dirty = mark "_non_differentiable", mark "_dirty"

function Context:set_materialize_grads(on)
  errors.boolean("set_materialize_grads", "value", on)
  self._materialize = on
end

local function listed(...) return {n = select("#", ...), ...} end
local function kind_of(t) return {shape = t.shape, dtype = t.dtype, device = t.device} end
local function zeros(kind) return lt.zeros(kind.shape, {dtype = kind.dtype, device = kind.device}) end

-- Returns whether broadcasting `from` gives these sizes.
local function is_broadcast(sizes, from)
  local before = #sizes - #from
  for i = 1, #from do
    if before < 0 or from[i] ~= 1 and sizes[before + i] ~= from[i] then return false end
  end
  return before >= 0
end

local function is_same(sizes, from)
  if #sizes ~= #from then return false end
  for i = 1, #from do
    if sizes[i] ~= from[i] then return false end
  end
  return true
end

-- Returns a gradient in the shape and dtype of its input.
local function fitted(name, i, gradient, kind)
  errors.tensor(name, "gradient " .. i, gradient)
  if is_same(gradient.shape, kind.shape) then return gradient:to(kind.dtype) end
  if not is_broadcast(gradient.shape, kind.shape) then
    fail("%s: gradient %d has size {%s}, its input {%s}", name, i, table.concat(gradient.shape, ", "),
      table.concat(kind.shape, ", "))
  end
  return gradient:sum_to_size(kind.shape):to(kind.dtype)
end

-- The backward of a node: takes the gradients of the differentiable results and the saved tensors, returns those of the
-- inputs that want one.
local function run_backward(context, ...)
  local class, ctx, facts = context.class, context.ctx, context.facts
  local given, count = {}, #facts.places
  for i = 1, count do given[facts.places[i]] = (select(i, ...)) end
  if ctx._materialize then
    for i = 1, facts.results do
      if given[i] == nil and facts.kinds[i] then given[i] = zeros(facts.kinds[i]) end
    end
  end
  local tensors = {n = facts.saved.n}
  for i, place in ipairs(facts.saved) do tensors[place] = (select(count + i, ...)) end
  local before = ctx.saved_tensors
  ctx.saved_tensors = tensors
  local out = listed(class.backward(ctx, unpack(given, 1, facts.results)))
  ctx.saved_tensors = before
  for i = facts.arguments + 1, out.n do
    if out[i] ~= nil then
      fail("%s: backward gave more gradients than forward has arguments, %d", class.name, facts.arguments)
    end
  end
  local list = {}
  for i, input in ipairs(facts.inputs) do
    if out[input.place] ~= nil then
      list[i] = fitted(class.name .. ".backward", input.place, out[input.place], input.kind)
    end
  end
  return unpack(list, 1, #facts.inputs)
end

-- Replaces results that are inputs by aliases, so that they have a history of their own. Inputs that were written stay.
local function own_results(ctx, results, is_input)
  for i = 1, results.n do
    local t = results[i]
    if lt.is_tensor(t) and is_input[t] and not (ctx._dirty and ctx._dirty[t]) then
      results[i] = lt.no_grad(t.view_as, t, t)
    end
  end
end

local function record(class, ctx, args, results)
  local facts = {arguments = args.n, results = results.n, inputs = {}, kinds = {}, places = {}, saved = {n = 0}}
  local inputs, outputs, saved = {}, {}, {}
  for i = 1, args.n do
    local t = args[i]
    if lt.is_tensor(t) and t.requires_grad then
      inputs[#inputs + 1], facts.inputs[#facts.inputs + 1] = t, {place = i, kind = kind_of(t)}
    end
  end
  for i = 1, results.n do
    local t = results[i]
    if lt.is_tensor(t) then
      facts.kinds[i] = kind_of(t)
      local apart = ctx._non_differentiable and ctx._non_differentiable[t]
      if t:is_floating_point() and not apart then outputs[#outputs + 1], facts.places[#facts.places + 1] = t, i end
    end
  end
  local list = ctx._saved
  facts.saved.n = list and list.n or 0
  for i = 1, facts.saved.n do
    if list[i] ~= nil then saved[#saved + 1], facts.saved[#facts.saved + 1] = list[i], i end
  end
  ctx._saved, ctx._dirty, ctx._non_differentiable = nil, nil, nil -- ctx keeps them alive as long as the results
  if #outputs > 0 then
    node_of(class.name .. "Backward", run_backward, {class.backward, class = class, ctx = ctx, facts = facts}, inputs,
      outputs, saved)
  end
end

local function run_forward(class, ctx, args)
  if class.setup_context == nil then return listed(class.forward(ctx, unpack(args, 1, args.n))) end
  local results = listed(class.forward(unpack(args, 1, args.n)))
  class.setup_context(ctx, args, results.n == 1 and results[1] or results)
  return results
end

local function apply(class, ...)
  local args, ctx, is_input, wanted = listed(...), setmetatable({needs_input_grad = {}, _materialize = true}, Context),
    {}, false
  if class.forward == nil then fail("%s: forward is not defined", class.name) end
  for i = 1, args.n do
    local t = args[i]
    local wants = lt.is_tensor(t) and t.requires_grad
    ctx.needs_input_grad[i] = wants
    wanted = wanted or wants
    if lt.is_tensor(t) then is_input[t] = true end
  end
  local results = lt.no_grad(run_forward, class, ctx, args)
  own_results(ctx, results, is_input)
  if wanted and lt.is_grad_enabled() then
    if class.backward == nil then fail("%s: backward is not defined", class.name) end
    record(class, ctx, args, results)
  end
  return unpack(results, 1, results.n)
end

local Function = {name = "Function"}
Function.__index = Function

-- Class.apply(...), Class:apply(...) and Class(...) do the same.
function Function:extend(name)
  errors.text("extend", "name", name)
  local class = {name = name}
  class.__index = class
  function class.apply(...)
    if (...) == class then return apply(...) end
    return apply(class, ...)
  end
  return setmetatable(class, {__index = self, __call = apply})
end

return {grad = lt.grad, Function = Function, node_of = node_of}
