-- optim.Adadelta: PyTorch's single-tensor formulas, operation by operation.
local lt, use = ...
local errors = use "errors"
local base = use "optim.optimizer"

local Adadelta = base.define("Adadelta", {{"lr", 1}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"maximize", false}})

function Adadelta.check(group)
  base.check_at_least_zero("Adadelta", group, "lr", "rho", "eps", "weight_decay")
  if group.rho > 1 then errors.wrong("Adadelta", "rho", "a number from 0 to 1", group.rho) end
end

function Adadelta.new_state(p) return {step = 0, square_avg = lt.zeros_like(p), acc_delta = lt.zeros_like(p)} end

function Adadelta:update_group(group)
  local params, all_state = group.params, self.state
  local lr, rho, eps, weight_decay = group.lr, group.rho, group.eps, group.weight_decay
  for i = 1, #params do
    local p = params[i]
    local grad = p.grad
    if grad ~= nil then
      local state = all_state[p]
      local square_avg, acc_delta = state.square_avg, state.acc_delta
      state.step = state.step + 1
      if group.maximize then grad = -grad end
      if weight_decay ~= 0 then grad = grad + p * weight_decay end
      square_avg:mul_(rho):addcmul_(grad, grad, {value = 1 - rho})
      local delta = (acc_delta + eps):sqrt() / (square_avg + eps):sqrt() * grad
      acc_delta:mul_(rho):addcmul_(delta, delta, {value = 1 - rho})
      p:add_(delta * -lr)
    end
  end
end

return Adadelta
