-- optim.ASGD: gradient descent that keeps the parameters' average in the state as ax. It uses PyTorch's single-tensor
-- formulas. eta and mu, which change at each step, are Lua numbers.
local lt, use = ...
local errors = use "errors"
local base = use "optim.optimizer"

local ASGD = base.define("ASGD",
  {{"lr", 1e-2}, {"lambd", 1e-4}, {"alpha", 0.75}, {"t0", 1e6}, {"weight_decay", 0}, {"maximize", false}})

function ASGD.check(group)
  base.check_at_least_zero("ASGD", group, "lr", "weight_decay")
  for _, name in ipairs {"lambd", "alpha", "t0"} do errors.number("ASGD", name, group[name]) end
end

function ASGD.new_state(p, group) return {step = 0, eta = group.lr, mu = 1, ax = lt.zeros_like(p)} end

function ASGD:update_one(p, grad, state, group)
  local lr, lambd = group.lr, group.lambd
  local eta, mu, ax = state.eta, state.mu, state.ax
  if state.step == 0 then eta = lr end
  local step = state.step + 1
  state.step = step
  p:mul_(1 - lambd * eta):add_(grad * -eta)
  if mu == 1 then ax:copy_(p) else ax:add_((p - ax) * mu) end
  state.eta = lr / (1 + lambd * lr * step) ^ group.alpha
  state.mu = step - group.t0 > 1 and 1 / (step - group.t0) or 1
end

return ASGD
