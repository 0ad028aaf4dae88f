-- Tests programs over a stream of calls in which integers change, sizes 0 and 1 included: eager's results, and at most
-- one specialised graph and two more.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, outcome = h.test, h.equal, h.truthy, h.outcome

local SIZES = {5, 3, 0, 1, 8, 2, 7, 4, 19, 18, 8, 9, 10, 11, 12, 13, 6, 15, 16, 17, 14, 3, 2, 0, 1, 19, 5, 11, 8, 4, 16,
  20, 23, 30, 25, 27}
local function size(i) return SIZES[(i - 1) % #SIZES + 1] end
local function rows(n) return lt.arange(n * 3):view(n, 3):float() + 1 end

-- most: the number of graphs; breaks: the number of graph breaks.
local function stream(name, f, arguments, most, breaks)
  test(name, function()
    lt.reset()
    local g = lt.compile(f)
    for i = 1, #SIZES do
      local function run(call)
        lt.manual_seed(i)
        math.randomseed(i)
        return outcome(call, arguments(i))
      end
      equal(run(g), run(f), "call " .. i)
    end
    local graphs, reasons = lt.counters().stats.unique_graphs, lt._report(g).break_reasons
    truthy(graphs <= (most or 3), graphs .. " graphs")
    truthy(#reasons <= (breaks or 0), reasons[1] and reasons[1].reason)
  end)
end

stream("for i = 1, x.shape[1]", function(x)
  local y = x * 2
  for i = 1, x.shape[1] do y = y * 1.5 + i end
  return y
end, function(i) return rows(size(i)) end)
stream("for i = 1, x.shape[1] over x[i - 1]", function(x)
  local y = lt.zeros(3)
  for i = 1, x.shape[1] do y = y * 1.5 + x[i - 1] end
  return y
end, function(i) return rows(size(i)) end)

stream("for i = 1, n over a tensor of n rows", function(x, n)
  local y = x * 2
  for i = 1, n do y = y * 1.5 + i end
  return y
end, function(i) return rows(size(i)), size(i) end)

-- Two sizes that change independently. An empty second dimension has an entry of its own, since its strides differ.
local function other(i) return size((i * 7) % #SIZES + 1) end
local function matrix(i) return lt.arange(size(i) * other(i)):view(size(i), other(i)):float() end
stream("two sizes, a sum", function(x) return (x * 2 + 1):sum(1) end, matrix, 4)
stream("two sizes, a product", function(x) return x:t():matmul(x) end, matrix, 5)
stream("two sizes, softmax", function(x) return x:softmax(1) * x end, matrix, 5)
stream("two sizes, an outer product", function(a, b) return a:unsqueeze(1) * b end,
  function(i) return lt.arange(size(i)):float(), lt.arange(other(i)):float() end, 6)
stream("three sizes, cat", function(a, b, c) return lt.cat({a, b, c}) * 2 end, function(i)
  return lt.arange(size(i)):float(), lt.arange(other(i)):float(), lt.arange(size((i * 5) % #SIZES + 1)):float()
end, 4)
stream("two sizes, gradients", function(x, w)
  local loss = (x:matmul(w):tanh() * 2):sum()
  loss:backward()
  return loss, w.grad
end, function(i) return rows(size(i)), lt.ones(3, math.max(other(i), 1), {requires_grad = true}) end, 6)

-- Parts of a dimension: as many graphs as there are numbers of parts, not sizes. A size of 0 that does not come first
-- has a graph of its own.
local function joined(parts)
  local y = 0
  for _, p in ipairs(parts) do y = y * 1.5 + p:sum() end
  return y, parts[1] * 2, lt.cat(parts)
end
local function at_least(n) return function(i) return rows(math.max(size(i), n)) end end
stream("chunk(2)", function(x) return joined(x:chunk(2)) end, function(i) return rows(size(i)) end, 4)
stream("chunk(3) of 5 rows or more", function(x) return joined(x:chunk(3)) end, at_least(5), 2)
stream("chunk(2, 1)", function(x)
  local a, b = unpack(x:chunk(2, 1))
  return a * b:sigmoid()
end, function(i) return lt.arange(6 * size(i)):view(3, 2 * size(i)):float() end, 4)
stream("chunk(n), of the same number of parts", function(x, n) return joined(x:chunk(n)) end,
  function(i) return rows(9 + i % 2), 5 + i % 4 end, 4)
stream("split(n) into two parts", function(x, n)
  local a, b = unpack(x:split(n))
  return a * 2, b + 1
end, function(i) return rows(size(i) + 2 + i % (size(i) + 1)), size(i) + 1 end, 5)
stream("split(8)", function(x) return joined(x:split(8)) end, function(i) return rows(size(i)) end, 6)
stream("split({n, m})", function(x, n)
  local a, b = unpack(x:split({n, x.shape[1] - n}))
  return a * 2, b + 1
end, function(i) return rows(size(i) + other(i)), size(i) end, 4)
stream("tensor_split(3)", function(x) return joined(x:tensor_split(3)) end, function(i) return rows(size(i)) end, 3)
stream("hsplit and vsplit", function(x)
  local a, b = unpack(x:vsplit(2))
  return a * 2, b + 1, lt.cat(x:t():hsplit(2), 1)
end, function(i) return rows(2 * size(i)) end, 3)
stream("gradients of parts", function(x, w)
  local a, b, c = unpack((x * w):chunk(3))
  local loss = a:sum() * 2 + (b * 3):sum() + c:exp():mean()
  loss:backward()
  return loss, w.grad
end, function(i) return rows(math.max(size(i), 5)) / 100, lt.ones(3, {requires_grad = true}) end, 4)

-- A size that is the number of parts: five have a graph each, then the op runs between two graphs. A scan's body has a
-- graph for each.
stream("unbind", function(x)
  local y = 0
  for _, p in ipairs(x:unbind()) do y = y * 1.5 + p:sum() end
  return y
end, function(i) return rows(size(i) + 2) end, 9, 1)

test("a few numbers of parts do not break a step", function()
  lt.reset()
  local w = lt.ones(7, {requires_grad = true})
  local step = lt.compile(function(x)
    local y = 0
    for k, part in ipairs((x * w):unbind()) do y = (y + part):tanh() * k end
    y:sum():backward()
  end)
  for i = 1, 20 do
    w.grad = nil
    step(lt.ones(i % 5 + 2, 7))
  end
  equal(lt.counters().stats.unique_graphs .. " " .. #lt._report(step).break_reasons, "5 0")
  lt.reset()
  local scan = lt.compile(function(x)
    return (lt.scan(function(c, e)
      for k, part in ipairs(e:unbind()) do c = c + part * k end
      return c, c
    end, lt.zeros(3), x))
  end)
  for i = 1, 20 do scan(lt.ones(9, i % 7 + 2, 3)) end
  equal(lt.counters().stats.unique_graphs .. " " .. #lt._report(scan).break_reasons, "7 0")
end)

-- Sizes of 1 have other formulas, with other signs of zero. Infinities show these.
local function zeros_and_negatives(i)
  return lt.zeros(size(i), other(i)), -lt.ones(other(i), 2)
end
stream("einsum, a product", function(x, y) return 1 / lt.einsum("ij,jk->ik", x, y) end, zeros_and_negatives, 8)
stream("einsum, products of rows", function(x, y) return 1 / lt.einsum("ij,ij->i", x, y) end,
  function(i) return lt.zeros(size(i), other(i)), -lt.ones(size(i), other(i)) end, 8)
for _, offset in ipairs {0, 2, -2} do
  stream("diagonal(" .. offset .. ")", function(x)
    local d = x:diagonal(offset)
    return d, d:storage_offset(), d:stride(0), d * 2
  end, matrix, 6)
end
stream("pools of one pixel, channels last", function(x)
  local y = lt.nn.functional.avg_pool2d(x, 2)
  return y, y:stride(0), y:stride(1), y:stride(2)
end, function(i)
  return lt.ones(2, 3, size(i) % 4 + 2, other(i) % 4 + 2):contiguous {memory_format = "channels_last"}
end, 6)

-- An LSTM over batches of any size: once for a batch of 1, whose strides differ, and once for others; the first step,
-- whose state takes no gradient, and the others.
lt.manual_seed(1)
local wx, wh = lt.nn.Linear(3, 16), lt.nn.Linear(4, 16)
stream("an LSTM of any batch and length", function(x)
  local state, c = lt.zeros(x.shape[1], 4), lt.zeros(x.shape[1], 4)
  for t = 1, x.shape[2] do
    local i, f, g, o = unpack((wx(x:select(1, t - 1)) + wh(state)):chunk(4, 1))
    c = f:sigmoid() * c + i:sigmoid() * g:tanh()
    state = o:sigmoid() * c:tanh()
  end
  return state
end, function(i) return lt.randn(math.max(other(i), 1), math.max(size(i), 1), 3) end, 6)

-- Numbers that ops use as values.
local x = lt.arange(64):float() - 30
local function numbers(i) return size(i), other(i) + 0.5 end
for name, f in pairs {
  normal = function(k, s) return lt.normal(k, s, {4}) * 2, lt.normal(x, s) end,
  normal_ = function(k, s) return (x * 2):normal_(k, s) end,
  uniform_ = function(k, s) return (x * 2):uniform_(-k, s) end,
  exponential_ = function(_, s) return (x * 2):exponential_(s) end,
  log_normal_ = function(k, s) return (x * 2):log_normal_(k / 10, s / 40) end,
  cauchy_ = function(k, s) return (x * 2):cauchy_(k / 10, s) end,
  rrelu = function(_, s) return lt.nn.functional.rrelu(x, s / 100, s / 50, true) end,
  ["rrelu, not training"] = function(_, s) return lt.nn.functional.rrelu(x, s / 100, s / 50) end,
  alpha_dropout = function(_, s) return lt.nn.functional.alpha_dropout(x * 2, s / 40, true) end,
  quantile = function(_, s) return lt.quantile(x, s / 100) end,
  geometric_ = function(_, s) return (x * 2):geometric_(s / 100) end,
  norm = function(_, s) return x:norm(s / 7.3), lt.linalg.vector_norm(x:view(8, 8), s / 7.3, 1) end,
  ["norm, gradients"] = function(_, s)
    local w = (x / 10):requires_grad_()
    w:norm(s / 7.3 + 1):backward()
    return w.grad
  end,
  ["norms of rows"] = function(_, s)
    local a, F = x:view(8, 8), lt.nn.functional
    return F.normalize(a, {p = s / 7.3}), a:renorm(s / 7.3, 0, 9), F.pairwise_distance(a, a * 2, {p = s / 7.3})
  end,
  distances = function(_, s)
    local a = x:view(8, 8)
    return lt.cdist(a, a * 2, {p = s / 7.3}), lt.pdist(a, {p = s / 7.3}), lt.dist(a, a * 2, s / 7.3)
  end,
} do stream(name, f, numbers, name == "norm, gradients" and 2 or 1) end

-- Orders of norms that have a formula of their own.
local ORDERS = {2.5, 2, 1, 0, math.huge, 1.7, 2, 2.2, 0, 1, math.huge}
stream("norms of all orders", function(p)
  local w = (x / 10):requires_grad_()
  local y = w:norm(p)
  y:backward()
  return y, w.grad
end, function(i) return ORDERS[(i - 1) % #ORDERS + 1] end, 8)
stream("distances of all orders", function(p) return lt.cdist(x:view(8, 8), x:view(8, 8) * 2, {p = p}) end,
  function(i) return ORDERS[(i - 1) % #ORDERS + 1] end, 6)

-- Counts that fractions determine.
for _, mode in ipairs {"nearest", "nearest-exact", "linear"} do
  stream("interpolate by a factor, " .. mode, function(x, s)
    return lt.nn.functional.interpolate(x, {scale_factor = s, mode = mode})
  end, function(i) return lt.arange(24):view(1, 2, 12):float() / 7, 0.25 + size(i) / 7 end, 3)
end
stream("interpolate images of any size by a fraction", function(x)
  return lt.nn.functional.interpolate(x, {scale_factor = 1.7, mode = "bilinear"})
end, function(i) return lt.arange(6 * (size(i) + 2)):view(1, 2, 3, size(i) + 2):float() / 7 end, 2)
stream("arange by fractions", function(a, b, s)
  return lt.arange(a, b, s) * 2, lt.arange(b, a, -s), lt.arange(a, b, {dtype = "float64"})
end, function(i) return size(i) / 7 + 0.1, 5 + other(i) / 3, 0.3 + size(i) / 9 end, 4)
stream("arange by whole steps", function(n, s) return lt.arange(0, n, s) + 1, lt.arange(n, 0, -s) end,
  function(i) return size(i), other(i) + 1 end, 3)

h.finish()
