-- optim.RMSprop: PyTorch's single-tensor formulas, operation by operation.
local lt, use = ...
local base = use "optim.optimizer"

local RMSprop = base.define("RMSprop",
  {{"lr", 1e-2}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}, {"centered", false},
  {"maximize", false}})

function RMSprop.check(group) base.check_at_least_zero("RMSprop", group, "lr", "alpha", "eps", "weight_decay",
  "momentum") end

function RMSprop.new_state(p, group)
  local state = {step = 0, square_avg = lt.zeros_like(p)}
  if group.momentum > 0 then state.momentum_buffer = lt.zeros_like(p) end
  if group.centered then state.grad_avg = lt.zeros_like(p) end
  return state
end

function RMSprop:update_one(p, grad, state, group)
  local alpha, square_avg, avg = group.alpha, state.square_avg, nil
  state.step = state.step + 1
  square_avg:mul_(alpha):addcmul_(grad, grad, {value = 1 - alpha})
  if group.centered then
    local grad_avg = state.grad_avg
    grad_avg:lerp_(grad, 1 - alpha)
    avg = square_avg:addcmul(grad_avg, grad_avg, {value = -1}):sqrt() + group.eps
  else
    avg = square_avg:sqrt() + group.eps
  end
  if group.momentum > 0 then
    local buffer = state.momentum_buffer
    buffer:mul_(group.momentum):addcdiv_(grad, avg)
    p:add_(buffer * -group.lr)
  else
    p:addcdiv_(grad, avg, {value = -group.lr})
  end
end

return RMSprop
