-- optim.Adagrad: PyTorch's single-tensor formulas, operation by operation. step is a Lua number, so the decayed rate is
-- a scalar input.
local lt, use = ...
local base = use "optim.optimizer"

local Adagrad = base.define("Adagrad",
  {{"lr", 1e-2}, {"lr_decay", 0}, {"weight_decay", 0}, {"initial_accumulator_value", 0}, {"eps", 1e-10},
  {"maximize", false}})

function Adagrad.check(group)
  base.check_at_least_zero("Adagrad", group, "lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
end

function Adagrad.new_state(p, group) return {step = 0, sum = lt.full_like(p, group.initial_accumulator_value)} end

function Adagrad:update_one(p, grad, state, group)
  local step, sum = state.step + 1, state.sum
  state.step = step
  local rate = group.lr / (1 + (step - 1) * group.lr_decay)
  sum:addcmul_(grad, grad, {value = 1})
  p:addcdiv_(grad, sum:sqrt() + group.eps, {value = -rate})
end

return Adagrad
