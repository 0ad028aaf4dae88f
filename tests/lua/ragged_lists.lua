-- Tests programs over lists of tensors whose sizes change, with sizes 0 and 1: eager's values, few graphs, and the
-- questions that an op asks where a later call may answer otherwise.
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local F = lt.nn.functional

local state = 1
local function random(n)
  state = state * 16807 % 2147483647
  return state % n + 1
end
local function ragged(count)
  local list = {}
  for i = 1, count do list[i] = lt.rand(random(9), 4) end
  return list
end

-- Calls f, compiled, with the arguments of 30 draws. Returns the number of graphs.
local function graphs(f, draw)
  lt.reset()
  local compiled = lt.compile(f)
  for _ = 1, 30 do
    local x = draw()
    truthy(compiled(x):equal(f(x)))
  end
  return lt.counters().stats.unique_graphs
end

local function longest(list)
  local n = 0
  for _, x in ipairs(list) do n = math.max(n, x.shape[1]) end
  return n
end

test("two elements of a list teach that the sizes of all change", function()
  lt.reset()
  local f = lt.compile(function(t) return lt.cat(t, 0):sum(0) end)
  for _, n in ipairs {{2, 3, 4, 5}, {2, 6, 7, 5}, {8, 9, 2, 3}} do
    local list = {}
    for i = 1, 4 do list[i] = lt.ones(n[i], 4) end
    equal(f(list)[0]:item(), n[1] + n[2] + n[3] + n[4])
  end
  equal(lt.counters().stats.unique_graphs, 2)
end)

test("rows of a ragged list written into a padded tensor", function()
  local n = graphs(function(list)
    local out = lt.zeros(#list, longest(list), 4)
    for i, x in ipairs(list) do out[{i - 1, {0, x.shape[1]}}] = x end
    return out
  end, function() return ragged(4) end)
  truthy(n <= 4, n .. " graphs")
end)

test("a slice of any length, written, is one graph", function()
  lt.reset()
  local f = lt.compile(function(x, m)
    local out = lt.zeros(m, 4)
    out:narrow(0, 0, x.shape[1]):copy_(x)
    return out
  end)
  for _, n in ipairs {5, 7, 1, 9, 3, 1, 8} do
    local x, out = lt.rand(n, 4), lt.zeros(9, 4)
    out:narrow(0, 0, n):copy_(x)
    truthy(f(x, 9):equal(out), n)
  end
  truthy(lt.counters().stats.unique_graphs <= 3, lt.counters().stats.unique_graphs .. " graphs")
end)

test("code made for a write of one row is not taken for another broadcast", function()
  local function f(src)
    local one = lt.slice_scatter(lt.zeros(2, 4), src, 0, nil, nil, 2)
    return lt.cat({one, lt.slice_scatter(lt.zeros(3, 4), one, 0, 0, 2, 1)})
  end
  local src = lt.arange(4):float():view(1, 4) + 1
  for _, backend in ipairs {"native", "eager", "aot_eager"} do
    truthy(lt.compile(f, {backend = backend})(src):equal(f(src)), backend)
  end
end)

test("lists of one to five tensors of any sizes, padded, stacked and joined", function()
  local function lists(f, most)
    local n = graphs(f, function() return ragged(random(5)) end)
    truthy(n <= most, n .. " graphs")
  end
  local pad_sequence = lt.nn.utils.rnn.pad_sequence
  lists(function(list) return pad_sequence(list) * 2 end, 6)
  lists(function(list) return pad_sequence(list, {batch_first = true, padding_side = "left"}) * 2 end, 6)
  lists(function(list) return lt.cat(list) * 2 end, 6)
  lists(function(list) return lt.stack({list[1], list[1] * 2}) end, 3)
end)

-- Calls f with tensors of these sizes in turn, eager and compiled: values and errors must be the same.
local function same_as_eager(f, sizes)
  local compiled = lt.compile(f)
  for _, size in ipairs(sizes) do
    local x = lt.rand(size)
    local what = table.concat(size, "x")
    local ok, want = pcall(f, x)
    local fine, got = pcall(compiled, x)
    equal(fine, ok, what)
    if ok then truthy(got:equal(want), what) else equal((got:gsub("^.-: ", "")), (want:gsub("^.-: ", ""))) end
  end
end

test("a size of 0 is asked for by the checks of positions, even if it was another before", function()
  local at = lt.zeros({2}, {dtype = "int64"})
  local sizes = {{4, 3}, {5, 3}, {0, 3}, {1, 3}, {3, 0}, {0, 0}}
  same_as_eager(function(x) return (x * 2)[at] end, sizes)
  same_as_eager(function(x) return (x * 2):take(at) end, sizes)
end)

test("rows written into a tensor that may be empty", function()
  same_as_eager(function(x)
    local out = lt.zeros(x.shape[1], x.shape[2], 2)
    for i = 0, x.shape[1] - 1 do out[i] = i + 1 end
    return out:mul_(2)
  end, {{3, 4}, {3, 5}, {3, 0}, {4, 0}, {0, 3}})
  local x = lt.rand(2, 3):requires_grad_()
  local view = x:clone()
  view:as_strided({0, 0}, {1, 1}, 0):add_(1)
  view:sum():backward()
  truthy(x.grad:equal(lt.ones(2, 3)))
end)

test("normalisation of an empty batch is empty", function()
  for _, size in ipairs {{0, 2, 3}, {2, 0, 3}, {0, 2, 3, 3}} do
    h.deep(F.instance_norm(lt.rand(size)).shape, size)
  end
  h.deep(F.batch_norm(lt.rand(3, 0, 4), nil, nil, nil, nil, true).shape, {3, 0, 4})
end)

test("batch norm of one value is an error, of none no change, even if there were many before", function()
  local bn = lt.nn.BatchNorm1d(2)
  same_as_eager(function(x) return bn(x) end, {{4, 2}, {5, 2}, {2, 2}, {1, 2}})
  local statistics = lt.nn.BatchNorm1d(2)
  statistics(lt.randn(0, 2, 3))
  h.deep({statistics.running_mean:totable(), statistics.running_var:totable()}, {{0, 0}, {1, 1}})
  local f = lt.compile(function(x) return statistics(x) end)
  for _, n in ipairs {3, 4, 5, 0, 1} do f(lt.rand(n, 2, 3)) end
  truthy(statistics.running_var:isfinite():all():item())
end)

h.finish()
