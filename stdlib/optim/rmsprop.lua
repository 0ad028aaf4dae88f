-- optim.RMSprop: PyTorch's single-tensor formulas, operation by operation.
local lt, use = ...
local base = use "optim.optimizer"

local RMSprop = base.define("RMSprop", {{"lr", 1e-2}, {"alpha", 0.99}, {"eps", 1e-8}, {"weight_decay", 0}, {"momentum", 0}, {"centered", false},
  {"maximize", false}})

function RMSprop.check(group) base.check_at_least_zero("RMSprop", group, "lr", "alpha", "eps", "weight_decay", "momentum") end

function RMSprop.new_state(p, group)
  local state = {step = 0, square_avg = lt.zeros_like(p)}
  if group.momentum > 0 then state.momentum_buffer = lt.zeros_like(p) end
  if group.centered then state.grad_avg = lt.zeros_like(p) end
  return state
end

function RMSprop:update_group(group)
  local params, all_state = group.params, self.state
  local lr, alpha, eps, weight_decay, momentum = group.lr, group.alpha, group.eps, group.weight_decay, group.momentum
  for i = 1, #params do
    local p = params[i]
    local grad = p.grad
    if grad ~= nil then
      local state = all_state[p]
      state.step = state.step + 1
      if group.maximize then grad = -grad end
      if weight_decay ~= 0 then grad = grad + p * weight_decay end
      local square_avg = state.square_avg
      square_avg:mul_(alpha):addcmul_(grad, grad, {value = 1 - alpha})
      local avg = nil
      if group.centered then
        local grad_avg = state.grad_avg
        grad_avg:lerp_(grad, 1 - alpha)
        avg = square_avg:addcmul(grad_avg, grad_avg, {value = -1}):sqrt() + eps
      else
        avg = square_avg:sqrt() + eps
      end
      if momentum > 0 then
        local buffer = state.momentum_buffer
        buffer:mul_(momentum):addcdiv_(grad, avg)
        p:add_(buffer * -lr)
      else
        p:addcdiv_(grad, avg, {value = -lr})
      end
    end
  end
end

return RMSprop
