-- optim.SGD, with momentum, dampening, weight decay and Nesterov's momentum: PyTorch's formulas.
local _, use = ...
local fail = use("errors").fail
local base = use "optim.optimizer"

local SGD = base.define("SGD",
  {{"lr", 1e-3}, {"momentum", 0}, {"dampening", 0}, {"weight_decay", 0}, {"nesterov", false}, {"maximize", false}})

function SGD.check(group)
  base.check_at_least_zero("SGD", group, "lr", "momentum", "weight_decay")
  if group.nesterov and (group.momentum <= 0 or group.dampening ~= 0) then
    fail("SGD: nesterov needs a momentum and no dampening")
  end
end

function SGD.new_state() return {} end

function SGD:update_one(p, grad, state, group)
  local momentum = group.momentum
  if momentum ~= 0 then
    local buffer = state.momentum_buffer
    if buffer == nil then
      buffer = grad:clone()
      state.momentum_buffer = buffer
    else
      buffer:mul_(momentum):add_(grad * (1 - group.dampening))
    end
    if group.nesterov then grad = grad + buffer * momentum else grad = buffer end
  end
  p:add_(grad * -group.lr)
end

return SGD
