-- optim.NAdam, RAdam and Adamax: PyTorch's single-tensor formulas, operation by operation. Steps and products of momenta are Lua numbers, so they
-- are scalar inputs of a compiled step.
local lt, use = ...
local base = use "optim.optimizer"

local function define(name, schema, more, others)
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
  -- What all three begin with; nil where there is no gradient.
  function class:begin(p, group)
    local grad = p.grad
    if grad == nil then return nil end
    local state, weight_decay = self.state[p], group.weight_decay
    state.step = state.step + 1
    if group.maximize then grad = -grad end
    if weight_decay ~= 0 then
      if group.decoupled_weight_decay then p:mul_(1 - group.lr * weight_decay) else grad = grad + p * weight_decay end
    end
    state.exp_avg:lerp_(grad, 1 - group.betas[1])
    return grad, state, state.step
  end
  return class
end

local function with_squares(state, p) state.exp_avg_sq = lt.zeros_like(p) end

local NAdam = define("NAdam", {{"lr", 2e-3}, {"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum_decay", 4e-3},
  {"decoupled_weight_decay", false}, {"maximize", false}}, function(state, p)
  state.mu_product = 1
  with_squares(state, p)
end, {"momentum_decay"})

function NAdam:update_group(group)
  local params, lr, eps, decay = group.params, group.lr, group.eps, group.momentum_decay
  local beta1, beta2 = group.betas[1], group.betas[2]
  for i = 1, #params do
    local p = params[i]
    local grad, state, step = self:begin(p, group)
    if grad ~= nil then
      local mu, mu_next = beta1 * (1 - 0.5 * 0.96 ^ (step * decay)), beta1 * (1 - 0.5 * 0.96 ^ ((step + 1) * decay))
      local product = state.mu_product * mu
      state.mu_product = product
      state.exp_avg_sq:mul_(beta2):addcmul_(grad, grad, {value = 1 - beta2})
      local denominator = (state.exp_avg_sq / (1 - beta2 ^ step)):sqrt() + eps
      p:addcdiv_(grad, denominator, {value = -lr * (1 - mu) / (1 - product)})
      p:addcdiv_(state.exp_avg, denominator, {value = -lr * mu_next / (1 - product * mu_next)})
    end
  end
end

local RAdam = define("RAdam", {{"lr", 1e-3}, {"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", 0}, {"decoupled_weight_decay", false},
  {"maximize", false}}, with_squares)

function RAdam:update_group(group)
  local params, lr, eps = group.params, group.lr, group.eps
  local beta1, beta2 = group.betas[1], group.betas[2]
  local longest = 2 / (1 - beta2) - 1
  for i = 1, #params do
    local p = params[i]
    local grad, state, step = self:begin(p, group)
    if grad ~= nil then
      state.exp_avg_sq:mul_(beta2):addcmul_(grad, grad, {value = 1 - beta2})
      local correction2 = 1 - beta2 ^ step
      local update = state.exp_avg / (1 - beta1 ^ step) * lr
      local length = longest - 2 * step * beta2 ^ step / correction2 -- of the average of squares: short ones vary too much
      if length > 5 then
        local rectified = ((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)) ^ 0.5
        update = update * (correction2 ^ 0.5 / (state.exp_avg_sq:sqrt() + eps)) * rectified
      end
      p:sub_(update)
    end
  end
end

local Adamax = define("Adamax", {{"lr", 2e-3}, {"betas", {0.9, 0.999}}, {"eps", 1e-8}, {"weight_decay", 0}, {"maximize", false}},
  function(state, p) state.exp_inf = lt.zeros_like(p) end)

function Adamax:update_group(group)
  local params, lr, eps = group.params, group.lr, group.eps
  local beta1, beta2 = group.betas[1], group.betas[2]
  for i = 1, #params do
    local p = params[i]
    local grad, state, step = self:begin(p, group)
    if grad ~= nil then
      local exp_inf = state.exp_inf
      exp_inf:copy_(lt.maximum(exp_inf * beta2, grad:abs() + eps))
      p:addcdiv_(state.exp_avg, exp_inf, {value = -lr / (1 - beta1 ^ step)})
    end
  end
end

return {NAdam = NAdam, RAdam = RAdam, Adamax = Adamax}
