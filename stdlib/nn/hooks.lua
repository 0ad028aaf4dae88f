-- Hooks of modules: register_forward_pre_hook, register_forward_hook, register_full_backward_pre_hook and
-- register_full_backward_hook return a handle with remove(). A module without hooks has _hooks = false, which is all
-- that a call checks. Several values are one list with their number as n: arguments, gradients, and results if a module
-- returns more than one.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local keywords = use "keywords"

local Module = base.Module
local kinds = {"pre", "post", "backward_pre", "backward"}

local function list_of(...) return {n = select("#", ...), ...} end

-- Converts a hook's result that replaces a list: a list, or one value.
local function as_list(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return {n = 1, value} end
  value.n = value.n or #value
  return value
end

-- Copies a list, because a hook may remove itself.
local function hooks_of(list)
  local out = {}
  for i = 1, #list do out[i] = list[i].f end
  return out
end

-- Backward ------------------------------------------------------------------------------------------------------------

-- Returns the tensors of a list that require grad, and their positions.
local function differentiable(list)
  local tensors, places = {}, {}
  for i = 1, list.n do
    if lt.is_tensor(list[i]) and list[i].requires_grad then tensors[#tensors + 1], places[#places + 1] = list[i], i end
  end
  return tensors, places
end

local function alias_of(t) return lt.no_grad(t.view_as, t, t) end

-- Returns the list with aliases of the tensors that require grad. Their gradients pass through backward(context, ...).
-- into: an empty list of further results, which gets one that nobody reads. to: such a result of an earlier node.
local function with_node(list, backward, context, into, to)
  local tensors, places = differentiable(list)
  if #tensors == 0 then return list end
  local results, out = {}, {n = list.n}
  for i = 1, list.n do out[i] = list[i] end
  for i = 1, #places do
    results[i] = alias_of(tensors[i])
    out[places[i]] = results[i]
  end
  if into then
    into[1] = alias_of(tensors[1])
    results[#results + 1] = into[1]
  end
  context.places, context.n = places, list.n
  use("autograd").node_of("BackwardHookFunction", backward, context, tensors, results, {}, to)
  return out
end

-- Returns the gradients behind the first `from` as a list of n values.
local function spread(places, n, from, ...)
  local out = {n = n}
  for i = 1, #places do out[places[i]] = (select(from + i, ...)) end
  return out
end

local function gathered(list, places)
  local out = {}
  for i = 1, #places do out[i] = list[places[i]] end
  return out
end

-- Returns the gradients by which the hooks replace grad_input.
local function run_backward_hooks(self, hooks, grad_input, grad_output)
  for _, hook in ipairs(hooks_of(hooks.backward)) do
    local given = hook(self, grad_input, grad_output)
    if given ~= nil then
      given = as_list(given)
      if given.n ~= grad_input.n then
        errors.fail("%s: a backward hook gave %d gradients, the module has %d inputs", self._name, given.n,
          grad_input.n)
      end
      grad_input = given
    end
  end
  return grad_input
end

-- Returns whether one of the `count` values behind the first `from` is given.
local function is_given(from, count, ...)
  for i = 1, count do
    if (select(from + i, ...)) ~= nil then return true end
  end
  return false
end

-- The backward of the arguments' node. It gets the gradients of the arguments, then those of the results from
-- backward_of_results. If the backward begins within the module, the latter are missing.
local function backward_of_arguments(context, ...)
  local places, results = context.places, context.results
  if not is_given(0, #places, ...) then return end
  if not results.places or not is_given(#places + 1, #results.places, ...) then return ... end
  local grad_input = spread(places, context.n, 0, ...)
  local grad_output = spread(results.places, results.n, #places + 1, ...)
  return unpack(gathered(run_backward_hooks(context.module, context.hooks, grad_input, grad_output), places), 1,
    #places)
end

local function backward_of_results(context, ...)
  local grad_output, module, hooks, places = spread(context.places, context.n, 0, ...), context.module, context.hooks,
    context.places
  for _, hook in ipairs(hooks_of(hooks.backward_pre)) do
    local given = hook(module, grad_output)
    if given ~= nil then grad_output = as_list(given) end
  end
  if context.inputs then run_backward_hooks(module, hooks, {n = context.inputs}, grad_output) end
  local out = gathered(grad_output, places)
  if not context.inputs then
    for i = 1, #places do out[#places + i] = out[i] end
  end
  return unpack(out, 1, 2 * #places)
end

-- The node of the arguments gets the results' gradients as those of further results of its own. So hooks are a function
-- of gradients, and a compiled backward includes them.
local function forward_with_gradients(self, hooks, args)
  local into, outof = {module = self, hooks = hooks}, {module = self, hooks = hooks}
  for _, each in ipairs(hooks.backward) do into[#into + 1] = each.f end
  for _, each in ipairs(hooks.backward_pre) do outof[#outof + 1] = each.f end
  local carrier = {}
  into.results = outof
  args = with_node(args, backward_of_arguments, into, carrier)
  local out = list_of(self:forward(unpack(args, 1, args.n)))
  if carrier[1] == nil then
    outof.inputs = args.n
    for _, f in ipairs(into) do outof[#outof + 1] = f end
  end
  return with_node(out, backward_of_results, outof, nil, carrier[1])
end

-- Forward -------------------------------------------------------------------------------------------------------------

-- Recursive, not a loop: if a hook ends a graph, the rest of this function and of its callers is one graph. The bodies
-- of loops would be graphs of their own.
local function run_pre(self, list, i, args)
  if i > #list then return args end
  local given = list[i].f(self, args)
  if given ~= nil then args = as_list(given) end
  return run_pre(self, list, i + 1, args)
end

local function run_post(self, list, i, args, out)
  if i > #list then return out end
  local one = out.n <= 1
  local given = nil
  if one then given = list[i].f(self, args, out[1]) else given = list[i].f(self, args, out) end
  if given ~= nil then out = one and {n = 1, given} or as_list(given) end
  return run_post(self, list, i + 1, args, out)
end

base.set_call_hooked(function(self, ...)
  local hooks = self._hooks
  local args = run_pre(self, hooks.pre, 1, list_of(...))
  local out = nil
  if #hooks.backward + #hooks.backward_pre > 0 and lt.is_grad_enabled() then
    out = forward_with_gradients(self, hooks, args)
  else
    out = list_of(self:forward(unpack(args, 1, args.n)))
  end
  out = run_post(self, hooks.post, 1, args, out)
  return unpack(out, 1, out.n)
end)

-- Registering ---------------------------------------------------------------------------------------------------------

-- what: an entry, or its function, by which a copy of the module finds it.
local function remove(self, kind, what)
  local hooks = self._hooks
  if not hooks then return end
  local kept, count = {}, 0
  for _, each in ipairs(hooks[kind]) do
    if each ~= what and each.f ~= what then kept[#kept + 1] = each end
  end
  hooks[kind] = kept
  for _, each in ipairs(kinds) do count = count + #hooks[each] end
  if count == 0 then self._hooks = false end
end

local function register(method, kind)
  Module[method] = function(self, hook, options)
    errors.object("Module", method, self)
    self = base.real(self)
    errors.callable(method, "hook", hook)
    local o = keywords.check(method, options, {prepend = false})
    if not self._hooks then
      self._hooks = {}
      for _, each in ipairs(kinds) do self._hooks[each] = {} end
    end
    local list, entry = {}, {f = hook}
    for _, each in ipairs(self._hooks[kind]) do list[#list + 1] = each end
    table.insert(list, o.prepend and 1 or #list + 1, entry)
    self._hooks[kind] = list
    return {remove = function() remove(self, kind, entry) end}
  end
end

register("register_forward_pre_hook", "pre")
register("register_forward_hook", "post")
register("register_full_backward_pre_hook", "backward_pre")
register("register_full_backward_hook", "backward")

return {remove = function(module, kind, f) remove(base.real(module), kind, f) end}
