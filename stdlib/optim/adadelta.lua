-- optim.Adadelta: PyTorch's single-tensor formulas, operation by operation.
local lt, use = ...
local errors = use "errors"
local base = use "optim.optimizer"

local Adadelta = base.define("Adadelta",
  {{"lr", 1}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"maximize", false}})

function Adadelta.check(group)
  base.check_at_least_zero("Adadelta", group, "lr", "rho", "eps", "weight_decay")
  if group.rho > 1 then errors.wrong("Adadelta", "rho", "a number from 0 to 1", group.rho) end
end

function Adadelta.new_state(p) return {step = 0, square_avg = lt.zeros_like(p), acc_delta = lt.zeros_like(p)} end

function Adadelta:update_one(p, grad, state, group)
  local rho, eps, square_avg, acc_delta = group.rho, group.eps, state.square_avg, state.acc_delta
  state.step = state.step + 1
  square_avg:mul_(rho):addcmul_(grad, grad, {value = 1 - rho})
  local delta = (acc_delta + eps):sqrt() / (square_avg + eps):sqrt() * grad
  acc_delta:mul_(rho):addcmul_(delta, delta, {value = 1 - rho})
  p:add_(delta * -group.lr)
end

return Adadelta
