-- optim.Rprop: steps that grow while a gradient keeps its sign and shrink when it changes. It uses PyTorch's
-- single-tensor formulas.
local lt, use = ...
local fail = use("errors").fail
local base = use "optim.optimizer"

local Rprop = base.define("Rprop",
  {{"lr", 1e-2}, {"etas", {0.5, 1.2}}, {"step_sizes", {1e-6, 50}}, {"maximize", false}})

local function check_pair(group, name)
  local pair = group[name]
  if type(pair) ~= "table" or type(pair[1]) ~= "number" or type(pair[2]) ~= "number" then
    fail("Rprop: %s are two numbers", name)
  end
  return pair[1], pair[2]
end

function Rprop.check(group)
  base.check_at_least_zero("Rprop", group, "lr")
  local shrink, grow = check_pair(group, "etas")
  if not (0 < shrink and shrink < 1 and grow > 1) then
    fail("Rprop: etas are a number between 0 and 1, and one over 1")
  end
  check_pair(group, "step_sizes")
end

function Rprop.new_state(p) return {step = 0, prev = lt.zeros_like(p), step_size = lt.zeros_like(p)} end

function Rprop:update_one(p, grad, state, group)
  local prev, step_size = state.prev, state.step_size
  if state.step == 0 then step_size:fill_(group.lr) end
  state.step = state.step + 1
  local sign = (grad * prev):sign()
  local turned = sign:lt(0)
  local factor = sign:masked_fill(sign:gt(0), group.etas[2]):masked_fill(turned, group.etas[1]):masked_fill(sign:eq(0),
    1)
  step_size:mul_(factor):clamp_(group.step_sizes[1], group.step_sizes[2])
  grad = grad:masked_fill(turned, 0)
  p:addcmul_(grad:sign(), step_size, {value = -1})
  prev:copy_(grad)
end

return Rprop
