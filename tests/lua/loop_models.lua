-- Tests data-dependent control flow (an RNN by scan, Newton's iteration, a mixture of experts by cond, an ODE solver)
-- against PyTorch's results (../oracle/loop_models.lua); compiled code against eager bit for bit.
local lt = require "lutra"
local h = require "harness"
local check = require "same_gradients".check
local test, truthy = h.test, h.truthy

lt.config.recompile_limit = 1000

local function values(shape, k, scale, add)
  local n = 1
  for _, size in ipairs(shape) do n = n * size end
  local data = {}
  for i = 0, n - 1 do data[i + 1] = math.sin(i * 0.37 + k) * (scale or 0.5) + (add or 0) end
  return lt.tensor(data, {dtype = lt.float64}):float():view(shape):requires_grad_()
end

-- By name: a function that returns the leaves, the loss, its argument, and the most graphs that a step may have.
local models = {}
function models.rnn(steps)
  local w, u, b, h0 = values({6, 6}, 1), values({4, 6}, 2), values({6}, 3), values({3, 6}, 4)
  local xs = values({steps, 3, 4}, 5, 1)
  return {w, u, b, h0, xs}, function(xs)
    local last, ys = lt.scan(function(state, x)
      state = (state:matmul(w) + x:matmul(u) + b):tanh()
      return state, state
    end, h0, xs)
    return last:sum() + ys:square():mean()
  end, xs
end

function models.newton(scale)
  local a = values({5, 7}, 1, 0.4 * scale, scale)
  return {a}, function(a)
    local x, _, steps = lt.while_loop(function(x, last) return (last - x):abs():max():gt(1e-3) end,
      function(x, _, steps) return (x + a / x) * 0.5, x, steps + 1 end, a * 1, a + 1, lt.tensor(0))
    return (x * a):sum() + steps
  end, a
end

function models.experts(shift)
  local x = values({4, 6}, 1, 1)
  local p = {values({6, 8}, 2), values({8, 6}, 3), values({6, 8}, 4), values({8, 6}, 5), x}
  return p, function(x)
    local total = 0
    for row = 0, 3 do
      local y = lt.cond(x[row]:sum():gt(shift), function(x) return x:matmul(p[1]):relu():matmul(p[2]) end,
        function(x) return x:matmul(p[3]):tanh():matmul(p[4]) end, x[row])
      total = total + y:square():sum()
    end
    return total
  end, x
end

function models.ode(tolerance)
  local k, y0 = values({4, 4}, 1), values({3, 4}, 2, 1)
  local function slope(y) return y:matmul(k):tanh() end
  return {k, y0}, function(y0)
    local _, y, _, tries = lt.while_loop(function(t, _, _, tries) return t:lt(1):logical_and(tries:lt(40)) end,
      function(t, y, h, tries)
        h = lt.minimum(h, 1 - t)
        local whole, half = y + h * slope(y), y + h / 2 * slope(y)
        local twice = half + h / 2 * slope(half)
        local function refuse() return t * 1, y * 1, h / 2 end
        local function accept() return t + h, twice * 2 - whole, h * 1.5 end
        t, y, h = lt.cond((whole - twice):abs():max():gt(tolerance), refuse, accept)
        return t, y, h, tries + 1
      end, lt.tensor(0.0), y0 * 1, lt.tensor(0.5), lt.tensor(0))
    return y:square():sum() + tries
  end, y0
end

local function near(got, want, limit, what)
  truthy(math.abs(got - want) <= limit, ("%s is %.7g, not %.7g"):format(what, got, want))
end

for _, row in ipairs(dofile "../oracle/loop_models.lua") do
  test(row.model .. " " .. row.number, function()
    local p, loss, x = models[row.model](row.number)
    local got = check(1, loss, p, x)
    near(got[1]:item(), row.loss, 2e-6 * math.abs(row.loss), "the loss")
    for i, want in ipairs(row.grads) do
      local g = got[i + 1] and got[i + 1]:double():view(-1) or lt.zeros(1):double()
      local limit = 2e-5 * math.max(want[1], 1)
      near(g:norm():item(), want[1], limit, "norm of gradient " .. i)
      near((g * (lt.arange(g:numel()):double() * 0.61):cos()):sum():item(), want[2], limit, "gradient " .. i)
    end
  end)
end

h.finish()
