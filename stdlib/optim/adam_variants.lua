-- optim.NAdam, RAdam and Adamax: PyTorch's single-tensor formulas, operation by operation. Steps and products of
-- momenta are Lua numbers, so they are scalar inputs of a compiled step.
local lt, use = ...
local base = use "optim.optimizer"

local function define(name, schema, update, more, others)
  local class = base.define(name, schema)
  function class.check(group)
    base.check_at_least_zero(name, group, "lr", "eps", "weight_decay", unpack(others or {}))
    base.check_fractions(name, group, "betas", 2)
  end
  function class.new_state(p)
    local state = {step = 0, exp_avg = lt.zeros_like(p)}
    more(state, p)
    return state
  end
  -- The first part of all three.
  function class:update_one(p, grad, state, group)
    local step = state.step + 1
    state.step = step
    state.exp_avg:lerp_(grad, 1 - group.betas[1])
    update(p, grad, state, group, step)
  end
  return class
end

local function with_squares(state, p) state.exp_avg_sq = lt.zeros_like(p) end

local function nadam(p, grad, state, group, step)
  local lr, decay, beta1, beta2 = group.lr, group.momentum_decay, group.betas[1], group.betas[2]
  local mu, mu_next = beta1 * (1 - 0.5 * 0.96 ^ (step * decay)), beta1 * (1 - 0.5 * 0.96 ^ ((step + 1) * decay))
  local product = state.mu_product * mu
  state.mu_product = product
  state.exp_avg_sq:mul_(beta2):addcmul_(grad, grad, {value = 1 - beta2})
  local denominator = (state.exp_avg_sq / (1 - beta2 ^ step)):sqrt() + group.eps
  p:addcdiv_(grad, denominator, {value = -lr * (1 - mu) / (1 - product)})
  p:addcdiv_(state.exp_avg, denominator, {value = -lr * mu_next / (1 - product * mu_next)})
end

local function radam(p, grad, state, group, step)
  local beta1, beta2 = group.betas[1], group.betas[2]
  local longest = 2 / (1 - beta2) - 1
  state.exp_avg_sq:mul_(beta2):addcmul_(grad, grad, {value = 1 - beta2})
  local correction2 = 1 - beta2 ^ step
  local update = state.exp_avg / (1 - beta1 ^ step) * group.lr
  local length = longest - 2 * step * beta2 ^ step / correction2 -- of the average of squares: short ones vary much
  if length > 5 then
    local rectified = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ^ 0.5
    update = update * (correction2 ^ 0.5 / (state.exp_avg_sq:sqrt() + group.eps)) * rectified
  end
  p:sub_(update)
end

local function adamax(p, grad, state, group, step)
  local exp_inf = state.exp_inf
  exp_inf:copy_(lt.maximum(exp_inf * group.betas[2], grad:abs() + group.eps))
  p:addcdiv_(state.exp_avg, exp_inf, {value = -group.lr / (1 - group.betas[1] ^ step)})
end

local shared = {{"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", 0}}
local function schema_of(lr, ...)
  return {{"lr", lr}, shared[1], shared[2], shared[3], ...}
end
local decoupled, maximize = {"decoupled_weight_decay", false}, {"maximize", false}

return {
  NAdam = define("NAdam", schema_of(2e-3, {"momentum_decay", 4e-3}, decoupled, maximize), nadam, function(state, p)
    state.mu_product = 1
    with_squares(state, p)
  end, {"momentum_decay"}),
  RAdam = define("RAdam", schema_of(1e-3, decoupled, maximize), radam, with_squares),
  Adamax = define("Adamax", schema_of(2e-3, maximize), adamax, function(state, p) state.exp_inf = lt.zeros_like(p) end),
}
