-- optim.Adagrad: PyTorch's single-tensor formulas, operation by operation. step is a Lua number: the decayed rate is a scalar input.
local lt, use = ...
local base = use "optim.optimizer"

local Adagrad = base.define("Adagrad", {{"lr", 1e-2}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator_value", 0}, {"eps", 1e-10},
  {"maximize", false}})

function Adagrad.check(group)
  base.check_at_least_zero("Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
end

function Adagrad.new_state(p, group) return {step = 0, sum = lt.full_like(p, group.initial_accumulator_value)} end

function Adagrad:update_group(group)
  local params, all_state = group.params, self.state
  local lr, lr_decay, weight_decay, eps = group.lr, group.lr_decay, group.weight_decay, group.eps
  for i = 1, #params do
    local p = params[i]
    local grad = p.grad
    if grad ~= nil then
      local state = all_state[p]
      local step = state.step + 1
      state.step = step
      if group.maximize then grad = -grad end
      if weight_decay ~= 0 then grad = grad + p * weight_decay end
      local rate = lr / (1 + (step - 1) * lr_decay)
      local sum = state.sum
      sum:addcmul_(grad, grad, {value = 1})
      p:addcdiv_(grad, sum:sqrt() + eps, {value = -rate})
    end
  end
end

return Adagrad
