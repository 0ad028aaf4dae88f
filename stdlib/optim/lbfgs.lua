-- optim.LBFGS: step(closure) calls the closure, which returns the loss, as often as it needs. It uses PyTorch's
-- two-loop recursion and strong Wolfe search. As in PyTorch, its state is the state of the first parameter. It compares
-- losses, so a compiled step has graph breaks.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"
local base = use "optim.optimizer"

local LBFGS = base.define("LBFGS",
  {{"lr", 1}, {"max_iter", 20}, {"max_eval", keywords.none}, {"tolerance_grad", 1e-7}, {"tolerance_change", 1e-9},
  {"history_size", 100}, {"line_search_fn", keywords.none}}, false)

function LBFGS.check(group)
  base.check_at_least_zero("LBFGS", group, "lr", "tolerance_grad", "tolerance_change")
  errors.count("LBFGS", "max_iter", group.max_iter, 0)
  errors.count("LBFGS", "history_size", group.history_size, 1)
  if group.max_eval ~= nil then errors.count("LBFGS", "max_eval", group.max_eval, 0) end
  if group.line_search_fn ~= nil and group.line_search_fn ~= "strong_wolfe" then
    errors.wrong("LBFGS", "line_search_fn", "'strong_wolfe' or nil", group.line_search_fn)
  end
end

local construct = LBFGS.init
function LBFGS:init(params, ...)
  construct(self, params, ...)
  if #self.param_groups ~= 1 then fail("LBFGS: there is one group of parameters, got %d", #self.param_groups) end
end

function LBFGS:add_param_group() fail("LBFGS: there is one group of parameters") end

-- The parameters as one vector ----------------------------------------------------------------------------------------

local function flat_gradient(params)
  local parts = {}
  for i, p in ipairs(params) do parts[i] = p.grad and p.grad:reshape(-1) or lt.zeros_like(p):reshape(-1) end
  return lt.cat(parts)
end

local function move(params, step, direction)
  local at = 0
  for _, p in ipairs(params) do
    local n = p:numel()
    p:add_(direction:narrow(0, at, n):view_as(p) * step)
    at = at + n
  end
end

local function largest(gradient) return gradient:abs():max():item() end

-- The line search -----------------------------------------------------------------------------------------------------

-- Returns the minimum, within the bounds, of the cubic through two points with these slopes.
local function cubic_minimum(x1, f1, g1, x2, f2, g2, low, high)
  if low == nil then low, high = math.min(x1, x2), math.max(x1, x2) end
  local d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
  local square = d1 * d1 - g1 * g2
  if not (square >= 0) then return (low + high) / 2 end
  local d2, at = math.sqrt(square), nil
  if x1 <= x2 then
    at = x2 - (x2 - x1) * ((g2 + d2 - d1) / (g2 - g1 + 2 * d2))
  else
    at = x1 - (x1 - x2) * ((g1 + d2 - d1) / (g1 - g2 + 2 * d2))
  end
  return math.min(math.max(at, low), high)
end

-- A point of the search has the step t, the loss f, the gradient g, and the slope along the direction.
local C1, C2 = 1e-4, 0.9

-- Returns two points that enclose a step with Wolfe's conditions, or one point that satisfies them.
local function bracket_of(evaluate, start, t, most)
  local before, now, tries = start, evaluate(t), 0
  while tries < most do
    if now.f > start.f + C1 * now.t * start.slope or (tries > 1 and now.f >= before.f) then
      return {before, now}, tries
    end
    if math.abs(now.slope) <= -C2 * start.slope then return {now}, tries end
    if now.slope >= 0 then return {before, now}, tries end
    local next_t = cubic_minimum(before.t, before.f, before.slope, now.t, now.f, now.slope, now.t
      + 0.01 * (now.t - before.t), now.t * 10)
    before, now, tries = now, evaluate(next_t), tries + 1
  end
  return {start, now}, tries
end

-- Returns a step between two points. If the last one was too close to one of them, it keeps away from both.
local function trial(a, b, close_before)
  local t = cubic_minimum(a.t, a.f, a.slope, b.t, b.f, b.slope)
  local low, high = math.min(a.t, b.t), math.max(a.t, b.t)
  local margin = 0.1 * (high - low)
  if math.min(high - t, t - low) >= margin then return t, false end
  if not (close_before or t >= high or t <= low) then return t, true end
  return math.abs(t - high) < math.abs(t - low) and high - margin or low + margin, false
end

local function strong_wolfe(evaluate, start, t, direction, tolerance, most)
  local points, tries = bracket_of(evaluate, start, t, most)
  if #points == 1 then return points[1] end
  local low, high = 1, 2
  if points[1].f > points[2].f then low, high = 2, 1 end
  local length, close = largest(direction), false
  while tries < most and math.abs(points[2].t - points[1].t) * length >= tolerance do
    t, close = trial(points[1], points[2], close)
    local now = evaluate(t)
    tries = tries + 1
    if now.f > start.f + C1 * t * start.slope or now.f >= points[low].f then
      points[high] = now
      low, high = 1, 2
      if points[1].f > points[2].f then low, high = 2, 1 end
    else
      local done = math.abs(now.slope) <= -C2 * start.slope
      if not done and now.slope * (points[high].t - points[low].t) >= 0 then points[high] = points[low] end
      points[low] = now
      if done then break end
    end
  end
  return points[low]
end

-- The direction -------------------------------------------------------------------------------------------------------

-- Keeps the last step and its change of the gradient, if the curvature is positive.
local function remember(state, gradient, history_size)
  local y, s = gradient - state.prev_flat_grad, state.d * state.t
  local ys = y:dot(s)
  if not (ys:item() > 1e-10) then return end
  if #state.old_dirs == history_size then
    for _, list in ipairs {state.old_dirs, state.old_stps, state.ro} do table.remove(list, 1) end
  end
  table.insert(state.old_dirs, y)
  table.insert(state.old_stps, s)
  table.insert(state.ro, 1 / ys)
  state.H_diag = ys / y:dot(y)
end

-- Returns the descent direction: minus the approximate inverse Hessian times the gradient.
local function direction_of(state, gradient)
  local dirs, steps, ro, al = state.old_dirs, state.old_stps, state.ro, {}
  local q = -gradient
  for i = #dirs, 1, -1 do
    al[i] = steps[i]:dot(q) * ro[i]
    q = q - dirs[i] * al[i]
  end
  local r = q * state.H_diag
  for i = 1, #dirs do r = r + steps[i] * (al[i] - dirs[i]:dot(r) * ro[i]) end
  return r
end

local function next_direction(state, gradient, group)
  if state.n_iter == 1 then
    state.d, state.old_dirs, state.old_stps, state.ro, state.H_diag = -gradient, {}, {}, {}, 1
    state.t = math.min(1, 1 / gradient:abs():sum():item()) * group.lr
  else
    remember(state, gradient, group.history_size)
    state.d, state.t = direction_of(state, gradient), group.lr
  end
  state.prev_flat_grad = gradient
end

-- A step --------------------------------------------------------------------------------------------------------------

-- Runs the line search. Returns the loss and the gradient after the step, and the number of evaluations.
local function search(params, closure, state, group, loss, gradient, slope, most)
  local direction, evaluations, from = state.d, 0, {}
  for i, p in ipairs(params) do from[i] = p:clone() end
  local function evaluate(t)
    move(params, t, direction)
    local f = lt.enable_grad(closure):item()
    local g = flat_gradient(params)
    for i, p in ipairs(params) do p:copy_(from[i]) end
    evaluations = evaluations + 1
    return {t = t, f = f, g = g, slope = g:dot(direction):item()}
  end
  local found = strong_wolfe(evaluate, {t = 0, f = loss, g = gradient, slope = slope}, state.t, direction,
    group.tolerance_change, most)
  state.t = found.t
  move(params, found.t, direction)
  return found.f, found.g, evaluations
end

local function minimise(self, closure)
  local group = self.param_groups[1]
  local params = group.params
  local state = self.state[params[1]]
  local most = group.max_eval or math.floor(group.max_iter * 5 / 4)
  state.func_evals, state.n_iter = state.func_evals or 0, state.n_iter or 0
  local first = lt.enable_grad(closure)
  if not lt.is_tensor(first) then
    errors.wrong("LBFGS.step", "closure", "a function that gives the loss, a Tensor", first)
  end
  local loss, gradient, evaluations = first:item(), flat_gradient(params), 1
  state.func_evals = state.func_evals + 1
  if largest(gradient) <= group.tolerance_grad then return first end
  for n = 1, group.max_iter do
    state.n_iter = state.n_iter + 1
    next_direction(state, gradient, group)
    local before, slope, took = loss, gradient:dot(state.d):item(), 0
    state.prev_loss = before
    if slope > -group.tolerance_change then break end
    if group.line_search_fn then
      loss, gradient, took = search(params, closure, state, group, loss, gradient, slope, most - evaluations)
    else
      move(params, state.t, state.d)
      if n ~= group.max_iter then
        loss, gradient, took = lt.enable_grad(closure):item(), flat_gradient(params), 1
      end
    end
    evaluations, state.func_evals = evaluations + took, state.func_evals + took
    if n == group.max_iter or evaluations >= most or largest(gradient) <= group.tolerance_grad then break end
    if (state.d * state.t):abs():max():item() <= group.tolerance_change then break end
    if math.abs(loss - before) < group.tolerance_change then break end
  end
  return first
end

function LBFGS:step(closure)
  errors.object("LBFGS", "step", self)
  errors.callable("LBFGS.step", "closure", closure)
  return lt.no_grad(minimise, self, closure)
end

return LBFGS
