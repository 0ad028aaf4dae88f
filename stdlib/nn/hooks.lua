-- Hooks of modules: register_forward_pre_hook, register_forward_hook, register_full_backward_pre_hook and
-- register_full_backward_hook give a handle with remove(). A module without hooks has _hooks = false, which is all that
-- a call of it asks. Several values are one list with their number as n: arguments, gradients, and results where a
-- module gives more than one.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local keywords = use "keywords"
local node_of = use("autograd").node_of

local Module = base.Module
local kinds = {"pre", "post", "backward_pre", "backward"}

local function list_of(...) return {n = select("#", ...), ...} end

-- What a hook gave in the place of a list: a list, or one value.
local function as_list(value)
  if type(value) ~= "table" or getmetatable(value) ~= nil then return {n = 1, value} end
  value.n = value.n or #value
  return value
end

-- Copies a list, since a hook may remove itself.
local function hooks_of(list)
  local out = {}
  for i = 1, #list do out[i] = list[i].f end
  return out
end

-- Backward ------------------------------------------------------------------------------------------------------------

-- The tensors of a list that require grad, and where they stand.
local function differentiable(list)
  local tensors, places = {}, {}
  for i = 1, list.n do
    if lt.is_tensor(list[i]) and list[i].requires_grad then tensors[#tensors + 1], places[#places + 1] = list[i], i end
  end
  return tensors, places
end

-- The list with aliases in the place of what requires grad: their gradients go through backward(gradients of all) on
-- their way.
local function with_node(name, list, backward)
  local tensors, places = differentiable(list)
  if #tensors == 0 then return list, false end
  local aliases, out = {}, {n = list.n}
  for i = 1, #tensors do aliases[i] = lt.no_grad(tensors[i].view_as, tensors[i], tensors[i]) end
  node_of(name, function(_, gradients) return backward(gradients, places) end, nil, tensors, aliases, {})
  for i = 1, list.n do out[i] = list[i] end
  for i = 1, #places do out[places[i]] = aliases[i] end
  return out, true
end

local function spread(gradients, places, n)
  local out = {n = n}
  for i = 1, #places do out[places[i]] = gradients[i] end
  return out
end

local function gathered(list, places)
  local out = {}
  for i = 1, #places do out[i] = list[places[i]] end
  return out
end

-- The gradients that the hooks put in the place of grad_input.
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

local function forward_with_gradients(self, hooks, args)
  local grad_output, wraps = nil, false
  args, wraps = with_node("BackwardHookFunction", args, function(gradients, places)
    if grad_output == nil then return gradients end
    return gathered(run_backward_hooks(self, hooks, spread(gradients, places, args.n), grad_output), places)
  end)
  local out = list_of(self:forward(unpack(args, 1, args.n)))
  return (with_node("BackwardHookFunction", out, function(gradients, places)
    grad_output = spread(gradients, places, out.n)
    for _, hook in ipairs(hooks_of(hooks.backward_pre)) do
      local given = hook(self, grad_output)
      if given ~= nil then grad_output = as_list(given) end
    end
    if not wraps then run_backward_hooks(self, hooks, {n = args.n}, grad_output) end
    return gathered(grad_output, places)
  end))
end

-- Forward -------------------------------------------------------------------------------------------------------------

base.set_call_hooked(function(self, ...)
  local hooks, args = self._hooks, list_of(...)
  local pre = hooks.pre
  for i = 1, #pre do
    local given = pre[i].f(self, args)
    if given ~= nil then args = as_list(given) end
  end
  local out
  if #hooks.backward + #hooks.backward_pre > 0 and lt.is_grad_enabled() then
    out = forward_with_gradients(self, hooks, args)
  else
    out = list_of(self:forward(unpack(args, 1, args.n)))
  end
  local post = hooks.post
  for i = 1, #post do
    local one = out.n <= 1
    local given = nil
    if one then given = post[i].f(self, args, out[1]) else given = post[i].f(self, args, out) end
    if given ~= nil then out = one and {n = 1, given} or as_list(given) end
  end
  return unpack(out, 1, out.n)
end)

-- Registering ---------------------------------------------------------------------------------------------------------

-- what: an entry, or the function of one, by which a copy of the module knows it.
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
