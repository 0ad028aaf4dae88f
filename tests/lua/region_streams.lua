-- Tests recurrent modules, scans, loops and branches over a stream of calls in which sizes change: eager's results bit
-- for bit, and at most one specialised graph and two more. A size of 1 has strides of its own, so it may cost one more.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, outcome = h.test, h.equal, h.truthy, h.outcome
local nn = lt.nn

local LENGTHS = {20, 33, 19, 18, 41, 27, 64, 22, 30, 25, 21, 55}
local SHORT = {3, 4, 5, 6, 7, 8, 9, 10, 11, 12}
local BATCHES = {4, 7, 2, 9, 3, 16, 5, 12, 6, 11, 8}
local WITH_ONE = {4, 7, 1, 9, 3, 1, 5, 12, 6, 2, 8}

local function cycle(list, by) return function(i) return list[(i * by - by) % #list + 1] end end
local function only(n) return function() return n end end

-- most: the number of graphs.
local function stream(name, f, arguments, most)
  test(name, function()
    lt.reset()
    local calls = #LENGTHS + 2
    local function run(call, i)
      lt.manual_seed(i)
      return outcome(call, arguments(i))
    end
    local wanted = {}
    for i = 1, calls do wanted[i] = run(f, i) end
    lt.reset()
    local g = lt.compile(f)
    for i = 1, calls do equal(run(g, i), wanted[i], "call " .. i) end
    local graphs, reasons = lt.counters().stats.unique_graphs, lt._report(g).break_reasons
    truthy(graphs <= (most or 3), graphs .. " graphs")
    truthy(#reasons == 0, reasons[1] and reasons[1].reason)
  end)
end

local kinds = {
  {"lengths", cycle(LENGTHS, 1), only(4)}, {"short lengths", cycle(SHORT, 1), only(4)},
  {"batches", only(20), cycle(BATCHES, 1)}, {"lengths and batches", cycle(LENGTHS, 1), cycle(BATCHES, 3)},
  {"short lengths and batches", cycle(SHORT, 1), cycle(BATCHES, 3)},
  {"lengths and batches, some of 1", cycle(LENGTHS, 1), cycle(WITH_ONE, 1), 4},
}

-- Recurrent modules ---------------------------------------------------------------------------------------------------

local function streams_of(name, net, features)
  local first = net.batch_first
  for _, k in ipairs(kinds) do
    local what, length, batch, most = k[1], k[2], k[3], k[4]
    local function input(i)
      local n, b = length(i), batch(i)
      return first and lt.randn(b, n, features) or lt.randn(n, b, features)
    end
    stream(name .. ", " .. what, function(x) return net(x) end, input, most)
    stream(name .. ", a training step, " .. what, function(x)
      net:zero_grad()
      local y = net(x)
      local loss = (y * y):sum()
      loss:backward()
      local gradients = {}
      for i, p in ipairs(net:parameters()) do gradients[i] = p.grad end
      return loss, gradients
    end, input, most)
  end
end

lt.manual_seed(1)
streams_of("nn.RNN", nn.RNN(3, 5), 3)
streams_of("nn.GRU", nn.GRU(3, 5, {batch_first = true}), 3)
streams_of("nn.LSTM", nn.LSTM(3, 5), 3)
streams_of("nn.LSTM of two layers, in both directions", nn.LSTM(3, 4, {num_layers = 2, bidirectional = true}), 3)

-- Own scans, loops, branches and maps ---------------------------------------------------------------------------------

local function leaf(...) return lt.randn(...):requires_grad_() end
local function with_gradients(f)
  return function(...)
    local list = {...}
    for i = 1, #list do list[i].grad = nil end
    local y, z = f(...)
    local loss = (y * y):sum()
    if z ~= nil then loss = loss + z:sin():sum() end
    loss:backward()
    for i = 1, #list do list[i] = list[i].grad end
    return y, z, list
  end
end

local w = lt.randn(6, 6)
local function scan(x) return lt.scan(function(c, e) c = (c:matmul(w) + e):tanh() return c, c * 2 end, x[0] * 2, x) end
local function scan_along_1(x)
  return lt.scan(function(c, e) c = (c + e):tanh() return c, c * c:sum(-1, true) end, x:select(1, 0) * 2, x,
    {dim = 1, reverse = true})
end
local function while_loop(x)
  local _, y = lt.while_loop(function(i) return i:lt(30) end, function(i, y) return i + 1, (y * 1.01 + x):tanh() end,
    lt.zeros({}), x)
  return y
end
local function deep_loop(x)
  return lt.while_loop(function(y) return y:sum():lt(1e5) end, function(y)
    return lt.cond(y:mean():gt(3), function() return y * 1.5 + x:abs() end, function() return y * y + 1 end)
  end, x)
end
local function cond(x, y)
  return lt.cond(x:sum():gt(0), function() return x:matmul(y:t()):tanh() end,
    function() return x:matmul(y:t()) - x:sum(1, true) end)
end
local function map(x) return lt.map(function(e) return e:softmax(0) * 2 end, x) end

local length, batch = cycle(LENGTHS, 1), cycle(BATCHES, 3)
for _, make in ipairs {{"", lt.randn, function(f) return f end}, {", gradients", leaf, with_gradients}} do
  local suffix, tensor, of = make[1], make[2], make[3]
  stream("lt.scan" .. suffix, of(scan), function(i) return tensor(length(i), batch(i), 6) end)
  stream("lt.scan along dimension 1" .. suffix, of(scan_along_1), function(i) return tensor(batch(i), length(i), 6) end)
  stream("lt.scan of transposed slices" .. suffix, of(function(x) return scan(x:transpose(0, 1)) end),
    function(i) return tensor(batch(i), length(i), 6) end)
  stream("lt.scan of a first carry of another layout" .. suffix, of(function(x)
    local first, m = x[0]:t():contiguous():t(), w + 1
    return lt.scan(function(c, e) c = (c:matmul(m) + e):tanh() return c, c:t() end, first, x)
  end), function(i) return tensor(length(i), batch(i), 6) end)
  stream("lt.scan of an expanded first carry, in reverse" .. suffix, of(function(x)
    local zero = lt.zeros(6):expand(x.shape[2], 6)
    local last, ys = lt.scan(function(c, e)
      local a, b = c.a + e * c.b, c.b * 0.9 + 1
      return {a = a, b = b}, {a:sin()}
    end, {a = zero, b = zero}, x, {reverse = true})
    return last.a, ys[1]
  end), function(i) return tensor(length(i), batch(i), 6) end)
  stream("lt.while_loop" .. suffix, of(while_loop), function(i) return tensor(length(i), batch(i)) end)
  stream("lt.cond in an lt.while_loop" .. suffix, of(deep_loop), function(i) return tensor(batch(i), length(i)) end)
  stream("lt.cond" .. suffix, of(cond),
    function(i) return tensor(length(i), batch(i)), tensor(length(i + 3), batch(i)) end)
  stream("lt.map" .. suffix, of(map), function(i) return tensor(length(i), batch(i)) end)
end

stream("a number that changes in a body", function(x, n)
  return lt.scan(function(c, e) return (c + e * n):clamp(-n, n), c:narrow(0, 0, 2) end, x[0], x)
end, function(i) return lt.randn(length(i), batch(i)), batch(i + 2) + 0.5 end)

stream("sizes of the caller in a body", function(x, y)
  return lt.scan(function(c, e)
    local n = y.shape[1]
    return (c + e) / n, lt.zeros(n, c.shape[1]) + c + n
  end, x[0], x)
end, function(i) return lt.randn(length(i), batch(i)), lt.randn(batch(i + 4)) end)

-- The carry has sizes of its own, and another layout than the body's result.
for name, sum in pairs {["carry first"] = function(c, x) return c:contiguous() + x end,
  ["carry last"] = function(c, x) return x + c:contiguous() end} do
  stream("a scan that changes the layout of its carry, " .. name, function(c, x)
    return lt.scan(function(carry, e)
      local n = sum(carry, e):contiguous()
      return n, n * 2
    end, c:t(), x)
  end, function(i) return lt.randn(batch(i), 3), lt.randn(length(i), 3, batch(i)) end)
end

-- Eager branches and loops are traced to find which tensors have gradients: once for all sizes, too.
for name, f in pairs {cond = cond, deep_loop = deep_loop} do
  test("eager lt." .. name .. " under gradients", function()
    lt.reset()
    for i = 1, 24 do f(leaf(9 + i, 3 + i % 5), leaf(7, 3 + i % 5)):sum():backward() end
    local graphs = lt.counters().stats.unique_graphs
    truthy(graphs <= 6, graphs .. " graphs")
  end)
end

h.finish()
