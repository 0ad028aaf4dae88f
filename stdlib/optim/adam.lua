-- optim.Adam and optim.AdamW: PyTorch's single-tensor formulas, operation by operation.
-- state[p] = {step = n, exp_avg = m, exp_avg_sq = v}; step is a Lua number, so the bias corrections are scalar inputs
-- of a compiled step.
local lt, use = ...
local base = use "optim.optimizer"

local function check(name)
  return function(group)
    base.check_at_least_zero(name, group, "lr", "eps", "weight_decay")
    base.check_fractions(name, group, "betas", 2)
  end
end

local function new_state(p, group)
  local state = {step = 0, exp_avg = lt.zeros_like(p), exp_avg_sq = lt.zeros_like(p)}
  if group.amsgrad then state.max_exp_avg_sq = lt.zeros_like(p) end
  return state
end

local function update_one(_, p, grad, state, group)
  local beta1, beta2 = group.betas[1], group.betas[2]
  local exp_avg, exp_avg_sq = state.exp_avg, state.exp_avg_sq
  local step = state.step + 1
  state.step = step
  exp_avg:lerp_(grad, 1 - beta1)
  exp_avg_sq:mul_(beta2):addcmul_(grad, grad, {value = 1 - beta2})
  local step_size = group.lr / (1 - beta1 ^ step)
  local correction2_sqrt = (1 - beta2 ^ step) ^ 0.5
  local second = exp_avg_sq
  if group.amsgrad then
    second = state.max_exp_avg_sq
    second:copy_(lt.maximum(second, exp_avg_sq))
  end
  local denominator = second:sqrt() * (1 / correction2_sqrt) + group.eps -- one division for each element
  p:addcdiv_(exp_avg, denominator, {value = -step_size})
end

-- Adam adds the weight decay to the gradient; AdamW (decoupled) shrinks the parameter.
local function class_of(name, weight_decay, decoupled)
  local class = base.define(name,
    {{"lr", 1e-3}, {"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", weight_decay}, {"amsgrad", false},
    {"maximize", false}, not decoupled and {"decoupled_weight_decay", false} or nil})
  class.check, class.new_state, class.update_one, class.decoupled = check(name), new_state, update_one, decoupled
  return class
end

return {Adam = class_of("Adam", 0, false), AdamW = class_of("AdamW", 1e-2, true)}
