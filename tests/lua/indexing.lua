-- Every form of index, read and assigned.
local h = require "harness"
local lt = require "lutra"
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

local x = lt.arange(24):view(2, 3, 4)
local function fresh() return lt.arange(6):view(2, 3):clone() end

test("integers", function()
  deep(x[1][2][3]:totable(), 23)
  deep(x[-1][-1][-1]:totable(), 23)
  deep(x[{1, 0}]:totable(), {12, 13, 14, 15})
  deep(x["1, 0"]:totable(), {12, 13, 14, 15})
  equal(x[{0, 2, 3}]:item(), 11)
  raises("out of", function() return x[2] end)
end)

test("slices", function()
  deep(x[{0, {1, 3}}]:totable(), {{4, 5, 6, 7}, {8, 9, 10, 11}})
  deep(x[{0, 0, {0, nil, 2}}]:totable(), {0, 2})
  deep(x[{0, 0, {nil, -1}}]:totable(), {0, 1, 2})
  deep(x[{0, 0, {-2}}]:totable(), {2, 3})
  deep(x[{":", 0, 0}]:totable(), {0, 12})
  deep(x["0, 1:3, ::2"]:totable(), {{4, 6}, {8, 10}})
  deep(x["0:1"].shape, {1, 3, 4})
  deep(x[":, 0, -1"]:totable(), {3, 15})
  deep(x[{0, 0, {3, 100}}]:totable(), {3})
  raises("step", function() return x["::0"] end)
end)

test("newaxis and ellipsis", function()
  deep(x[{lt.newaxis, lt.ellipsis, 0}].shape, {1, 2, 3})
  deep(x["None, ..., 0"].shape, {1, 2, 3})
  deep(x[{lt.ellipsis, lt.newaxis}].shape, {2, 3, 4, 1})
  deep(x["..."].shape, {2, 3, 4})
  truthy(not rawequal(x["..."], x))
  raises("more than one ellipsis", function() return x["..., ..."] end)
end)

test("lt.newaxis and lt.ellipsis stand alone, too", function()
  local x = lt.arange(3)
  local function both(t) return t[lt.newaxis], t["None"], t[lt.ellipsis] end
  for _, f in ipairs {both, lt.compile(both, {fullgraph = true})} do
    local a, b, c = f(x)
    deep(a:totable(), {{0, 1, 2}})
    deep(b:totable(), {{0, 1, 2}})
    deep(c:totable(), {0, 1, 2})
  end
  x[lt.newaxis] = lt.tensor({{5, 6, 7}}, {dtype = "int64"})
  deep(x:totable(), {5, 6, 7})
  raises("Tensor has no attribute or method 'none'", function() return x.none end)
end)

test("a position out of range is told by the tensor's own dimension and shape", function()
  local x = lt.zeros(2, 3, 4)
  local function told(message, index)
    for _, f in ipairs {function(t, k) return t[k] end, lt.compile(function(t, k) return t[k] end)} do
      raises("index: " .. message, f, x, index)
    end
  end
  told("index 3 is out of range for dim 1 of shape {2, 3, 4} (x[{0, 2}] is x[0, 2]; a list", {0, 3})
  told("index 4 is out of range for dim 2 of shape {2, 3, 4}", "0, :, 4")
  told("index -5 is out of range for dim 2 of shape {2, 3, 4}", {lt.newaxis, lt.ellipsis, -5})
  told("index 3 is out of range for dim 1 of shape {2, 3, 4}", {lt.ones({2}, {dtype = "bool"}), 3})
  told("index 2 is out of range for dim 0 of shape {2, 3, 4}", 2)
  raises("index: 1 index for a tensor of 0 dimensions", function() return lt.tensor(1)[0] end)
end)

test("int64 tensors", function()
  local i = lt.tensor({0, 2}, {dtype = "int64"})
  deep(lt.arange(5)[i]:totable(), {0, 2})
  deep(x[{0, i, 0}]:totable(), {0, 8})
  deep(x[{0, ":", i}].shape, {3, 2})
  deep(x[lt.tensor({-1}, {dtype = "int64"})][0][0]:totable(), {12, 13, 14, 15})
  deep(lt.arange(5)[lt.tensor({{0, 1}, {2, -1}}, {dtype = "int64"})]:totable(), {{0, 1}, {2, 4}})
  local rows = lt.tensor({0, 1}, {dtype = "int64"})
  deep(x[{rows, i}].shape, {2, 4})
  deep(x[{rows, i, 1}]:totable(), {1, 21})
  deep(x[{rows, ":", i}].shape, {2, 3})
  deep(x[{rows, ":", i}]:totable(), {{0, 4, 8}, {14, 18, 22}})
  raises("index: index 5 is out of bounds for dimension 0 with size 5", function()
    return lt.arange(5)[lt.tensor({5}, {dtype = "int64"})]
  end)
  raises("must be int64 or bool (or int32, uint8), got float32", function() return x[lt.tensor({0})] end)
end)

test("masks", function()
  local a = fresh()
  deep(a[a:gt(2)]:totable(), {3, 4, 5})
  deep(a[lt.tensor({false, true})]:totable(), {{3, 4, 5}})
  deep(a[{":", lt.tensor({true, false, true})}]:totable(), {{0, 2}, {3, 5}})
  deep(a[a:gt(100)].shape, {0})
  raises("the mask has shape {3}", function() return a[lt.tensor({true, false, true})] end)
  deep(a:masked_select(a:gt(2)):totable(), {3, 4, 5})
  deep(a:gt(3):nonzero():totable(), {{1, 1}, {1, 2}})
end)

test("assignment", function()
  local a = fresh()
  a[0] = 7
  deep(a:totable(), {{7, 7, 7}, {3, 4, 5}})
  a[{":", 0}] = lt.tensor({1, 2}, {dtype = "int64"})
  deep(a:totable(), {{1, 7, 7}, {2, 4, 5}})
  a["1, 1:"] = 0
  deep(a:totable(), {{1, 7, 7}, {2, 0, 0}})
  a[a:eq(7)] = -1
  deep(a:totable(), {{1, -1, -1}, {2, 0, 0}})
  a[{1, {nil, nil, 2}}] = lt.tensor({{8, 9}}, {dtype = "int64"})
  deep(a:totable(), {{1, -1, -1}, {8, 0, 9}})
  a["..."] = 3
  deep(a:totable(), {{3, 3, 3}, {3, 3, 3}})
  a[lt.tensor({1}, {dtype = "int64"})] = lt.tensor({4, 5, 6}, {dtype = "int64"})
  deep(a:totable(), {{3, 3, 3}, {4, 5, 6}})
  a[lt.tensor({true, false})] = lt.tensor({{7, 8, 9}}, {dtype = "int64"})
  deep(a:totable(), {{7, 8, 9}, {4, 5, 6}})
  local i = lt.tensor({0, 1}, {dtype = "int64"})
  a[{i, i}] = 0
  deep(a:totable(), {{0, 8, 9}, {4, 0, 6}})
  raises("must be a Tensor or a number", function() a[0] = "x" end)
end)

local I = {dtype = "int64"}

test("captured: index tensors read and written, masks written", function()
  local function f(v, i, w)
    v[i] = w
    local picked = v[i] * 2
    v[v:gt(2)] = 0
    v[{i, lt.newaxis}] = v[i]:view(-1, 1) + 1
    return picked + v:sum()
  end
  local function run(g)
    local v = lt.arange(6):float()
    return g(v, lt.tensor({1, -1, 3}, I), lt.tensor({1.5, 2.5, 3.5})), v
  end
  local report = lt.explain(f)(lt.arange(6):float(), lt.tensor({1, -1, 3}, I), lt.tensor({1.5, 2.5, 3.5}))
  equal(report.graph_break_count, 0)
  equal(report.graph_count, 1)
  local r, v = run(f)
  local compiled = lt.compile(f, {fullgraph = true})
  for _ = 1, 2 do
    local cr, cv = run(compiled)
    deep(cr:totable(), r:totable())
    deep(cv:totable(), v:totable())
  end
end)

test("captured: a mask breaks, and says so", function()
  local mask = lt.tensor({true, false, true})
  local masked = lt.explain(function(a, m) return a[m] + 1 end)(lt.ones(3), mask)
  equal(masked.graph_break_count, 1)
  local reason = masked.break_reasons[1]
  equal(reason.reason, "a tensor is indexed by a mask")
  truthy(reason.hint:find("lt.where(mask, x, other) keeps the shape", 1, true))
  for _, call in ipairs {{"nonzero"}, {"unique"}, {"unique", {dim = 0}}, {"bincount"}} do
    local report = lt.explain(function(a) return lt[call[1]](a * 2, call[2]) end)(lt.tensor({1, 0, 2}, I))
    equal(report.graph_break_count, 0, call[1])
  end
  local report = lt.explain(function(a, m) a[m] = lt.tensor({7, 8}) return a * 2 end)(lt.ones(3), mask)
  equal(report.graph_break_count, 0)
end)

test("out of range: nothing is written, and the error names op, index, dim and size", function()
  local a = lt.zeros(2, 3)
  local bad = lt.tensor({0, 3}, I)
  local text = "index 3 is out of bounds for dimension 1 with size 3"
  raises("index: " .. text, function() return a[{":", bad}] end)
  raises("index: " .. text, function() a[{":", bad}] = 1 end)
  raises("index_add: " .. text, function() a:index_add_(1, bad, lt.ones(2, 2)) end)
  raises("index_copy: " .. text, function() a:index_copy_(1, bad, lt.ones(2, 2)) end)
  raises("index_fill: " .. text, function() a:index_fill_(1, bad, 1) end)
  raises("index_select: " .. text, function() return a:index_select(1, bad) end)
  raises("scatter: " .. text, function() a:scatter_(1, lt.tensor({{0, 3}}, I), 1) end)
  raises("scatter_add: " .. text, function() a:scatter_add_(1, lt.tensor({{0, 3}}, I), lt.ones(1, 2)) end)
  raises("take: index 6 is out of bounds for dimension 0 with size 6", function() return a:take(lt.tensor({6}, I)) end)
  raises("put: index -7 is out of bounds for dimension 0 with size 6",
    function() a:put_(lt.tensor({-7}, I), lt.ones(1)) end)
  raises("index_put_: index 9 is out of bounds for dimension 0 with size 2", function()
    a:index_put_({lt.tensor({9}, I)}, lt.ones(3))
  end)
  deep(a:totable(), {{0, 0, 0}, {0, 0, 0}})
  local compiled = lt.compile(function(v, i) return v[{":", i}] * 2 end)
  raises("index: " .. text, function() return compiled(a, bad) end)
end)

test("a 0-dim position out of range is refused even where nothing is at the places, as an integer is", function()
  local x, one = lt.zeros(5, 1, 2), lt.tensor(1, {dtype = "int64"})
  local text = "index: index 1 is out of bounds for dimension 1 with size 1"
  raises(text, function() return x[{"2:2", one}] end)
  raises(text, function() x[{"2:2", one}] = 3 end)
  raises(text, function() return x[{lt.zeros({0}, {dtype = "int64"}), one}] end)
  local compiled = lt.compile(function(v, i) return v[{"2:2", i}] * 2 end)
  for _ = 1, 2 do raises(text, function() return compiled(x, one) end) end
  deep(compiled(x, one - 2).shape, {0, 2})
  deep(x[{"2:2", lt.tensor({1}, {dtype = "int64"})}].shape, {0, 1, 2}) -- a vector's is never looked at
end)

test("a value has as many elements as the mask has places even where nothing is written", function()
  local x, mask = lt.zeros(5, 3), lt.tensor({true, false, true, true, true})
  local fill = function(v, m, value) v[{m, "2:1"}] = value return v end
  for _, f in ipairs{fill, lt.compile(fill)} do
    raises("index_put: shape mismatch: a value of shape {2, 1} cannot be broadcast to the indexing result of shape {4, 0}",
      function() f(x, mask, lt.ones(2, 1)) end)
    deep(f(x, mask, lt.ones(4, 1)).shape, {5, 3})
    deep(f(x, mask, lt.ones(4, 0)).shape, {5, 3})
    deep(f(x, mask, 7).shape, {5, 3})
  end
end)

test("views, copies and version counters", function()
  local a = fresh():float()
  a[{0, {1, 3}}]:add_(1)
  deep(a:totable(), {{0, 2, 3}, {3, 4, 5}})
  a[lt.tensor({0}, I)]:add_(100)
  deep(a:totable(), {{0, 2, 3}, {3, 4, 5}})
  a[{1, lt.tensor({0, 2}, I)}] = -1
  deep(a:totable(), {{0, 2, 3}, {-1, 4, -1}})
  local version = a._version
  a:index_put_({lt.tensor({0}, I)}, lt.ones(3))
  truthy(a._version > version)
  local w = lt.ones(3):requires_grad_(true)
  local b = w * 2
  local i = lt.tensor({0, 1}, I)
  local y = b[i]
  i:add_(1)
  raises("modified by an inplace operation", function() y:sum():backward() end)
  raises("leaf Variable that requires grad", function() w[i] = 1 end)
end)

test("duplicates: the last write wins, sums go in order", function()
  local i = lt.tensor({1, 1, 1}, I)
  local a = lt.zeros(3)
  a[i] = lt.tensor({1, 2, 3})
  deep(a:totable(), {0, 3, 0})
  a:index_put_({i}, lt.tensor({1, 2, 3}), true)
  deep(a:totable(), {0, 9, 0})
  local ids = lt.randint(0, 50, {4000})
  local rows = lt.randn(4000, 96)
  local function bits()
    return lt.zeros(50, 96):index_add(0, ids, rows), lt.zeros(50, 96):index_put({ids}, rows, true),
      lt.zeros(4000, 50):scatter_add(1, ids:view(-1, 1):expand(4000, 96), rows)
  end
  local threads = lt.get_num_threads()
  lt.set_num_threads(1)
  local one = {bits()}
  lt.set_num_threads(2)
  local two = {bits()}
  lt.set_num_threads(threads)
  for k = 1, 3 do truthy(one[k]:equal(two[k])) end
end)

-- Sorted, stable, and each element once.
local function sorted_well(what, x, descending)
  local values, at = x:sort(0, descending)
  local n = x:size(0)
  truthy(values:equal(x[at]), what .. ": elements")
  local before, after = values[{{nil, n - 1}}], values[{{1, nil}}]
  local wrong = descending and before:lt(after) or before:gt(after)
  truthy(not wrong:any():item(), what .. ": order")
  local swapped = before:eq(after):logical_and(at[{{nil, n - 1}}]:gt(at[{{1, nil}}]))
  truthy(not swapped:any():item(), what .. ": equal ones")
  truthy(at:bincount():eq(1):all():item(), what .. ": each once")
end

test("sorting wide keys of many distributions", function()
  lt.manual_seed(5)
  local n = 70001
  local function random(most) return lt.randint(0, most, {n}) end
  local signed = random(2 ^ 52) - 2 ^ 51
  local cases = {
    any = signed * 4093 + random(4093), few = random(3) * 2 ^ 50, one = lt.zeros(n, {dtype = lt.int64}),
    ["a crowded bucket"] = lt.where(random(10):gt(0), random(2 ^ 40), signed),
    ["equal but for the lowest bits"] = random(2) * 2 ^ 60 + random(7), rising = lt.arange(n),
    falling = lt.arange(n):flip(0) * 2 ^ 45, ["two ends"] = lt.where(random(2):eq(1), signed * 4096, signed * -4095),
  }
  for what, x in pairs(cases) do
    for _, size in ipairs {n, 8192, 8191} do
      for _, descending in ipairs {true, false} do
        local part = x[{{nil, size}}]
        sorted_well(what .. " " .. size, part, descending)
        sorted_well(what .. " as float64 " .. size, part:to(lt.float64), descending)
      end
    end
  end
end)

-- The first of a row, with equal elements, both zeros and NaNs among them, along and across memory.
test("topk and kthvalue give what sort gives", function()
  lt.manual_seed(6)
  local few = lt.randint(-3, 4, {7, 1000})
  local floats = lt.where(lt.rand(7, 1000):lt(0.1), 0 / 0, few / lt.where(few:eq(0), -1, 8))
  for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8"} do
    local x = (dtype:find "int" and few or floats):to(dtype)
    for _, at in ipairs {x, x:t():contiguous():t()} do
      for _, k in ipairs {1, 31, 32, 33, 200, 600} do
        for _, largest in ipairs {true, false} do
          local what = ("%s, the first %d, largest %s"):format(dtype, k, tostring(largest))
          local values, places = at:sort(1, largest)
          local first, where = at:topk(k, 1, largest)
          truthy(where:equal(places:narrow(1, 0, k)), what)
          truthy(first:nan_to_num(9):equal(values:narrow(1, 0, k):nan_to_num(9)), what)
          if not largest then
            local value, place = at:kthvalue(k, 1)
            truthy(place:equal(places:select(1, k - 1)), what)
            truthy(value:nan_to_num(9):equal(values:select(1, k - 1):nan_to_num(9)), what)
          end
        end
      end
    end
  end
end)

-- Elements of 4 and 8 bytes along rows, whole vectors and rests of them.
test("gathers along rows take each element", function()
  lt.manual_seed(7)
  for _, dtype in ipairs {"float32", "float64", "int32", "int64", "float16", "int8", "bool"} do
    for _, n in ipairs {1, 7, 8, 9, 64, 100} do
      local x = lt.randint(-100, 100, {3, 50}):to(dtype)
      local at = lt.randint(0, 50, {n})
      local got = x:index_select(1, at)
      for k = 0, n - 1 do truthy(got:select(1, k):equal(x:select(1, at[k]:item())), dtype .. " " .. n) end
    end
  end
end)

test("sorting large rows", function()
  for _, n in ipairs {300, 9000, 70000} do
    local v = lt.randint(-1000, 1000, {n})
    for _, x in ipairs {v, v:float(), v:double(), v:to("int32"), v:to("int16")} do
      for _, descending in ipairs {false, true} do
        local values, places = x:sort(0, descending)
        truthy(x:index_select(0, places):equal(values))
        local a, b = values:narrow(0, 0, n - 1), values:narrow(0, 1, n - 1)
        truthy((descending and a:ge(b) or a:le(b)):all():item())
        local p, q = places:narrow(0, 0, n - 1), places:narrow(0, 1, n - 1)
        truthy(lt.logical_or(a:ne(b), p:lt(q)):all():item(), "equal ones keep their order")
        local top, at = x:topk(37, 0, descending)
        truthy(top:equal(values:narrow(0, 0, 37)))
        truthy(at:equal(places:narrow(0, 0, 37)))
      end
    end
  end
end)

test("a bad index is found at any place among many", function()
  local n = 70000 -- looked at by several threads
  local x, from = lt.zeros(100, 2), lt.ones(n, 2)
  for _, dtype in ipairs {"int64", "int32"} do
    local least = dtype == "int64" and -2 ^ 63 or -2 ^ 31
    for _, place in ipairs {0, 4321, n / 2, n - 1} do
      for _, bad in ipairs {100, 2 ^ 31 - 128, -1, least} do
        local index = lt.randint(0, 100, {n}):to(dtype)
        index[place] = bad
        local text = ("index_add: index %d is out of bounds for dimension 0 with size 100"):format(bad)
        raises(text, function() return x:index_add(0, index, from) end)
        -- The same elements with a stride of 2.
        local apart = lt.stack({index, index}, 1):select(1, 0)
        raises(text, function() return x:index_add(0, apart, from) end)
      end
    end
    local index = lt.arange(n):remainder(100):to(dtype)
    truthy(x:index_add(0, index, from):equal(lt.full({100, 2}, n / 100)))
    -- Negative places count from the end.
    local put = x:index_put({index - 100}, from, true)
    truthy(put:equal(lt.full({100, 2}, n / 100)))
    raises("index 100 is out of bounds", function() return x:index_put({index + 1}, from, true) end)
    raises("index -101 is out of bounds", function() return x:index_put({index - 101}, from, true) end)
  end
end)

test("rows are scattered alike at any number of threads", function()
  local threads = lt.config.num_threads
  for _, columns in ipairs {1, 15, 16, 33, 1024, 5000} do
    local x, from = lt.randn(40, columns), lt.randn(300, columns)
    local index, want = lt.randint(0, 40, {300}), {}
    for count = 1, 4 do
      lt.config.num_threads = count
      local got = {x:index_add(0, index, from), x:index_put({index}, from, true), x:index_copy(0, index, from)}
      for i, t in ipairs(got) do
        want[i] = want[i] or t
        truthy(t:equal(want[i]))
      end
    end
  end
  lt.config.num_threads = threads
end)

test("errors of wrong guesses", function()
  local v = lt.arange(3)
  raises("a list of positions is a tensor", function() return v[{0, 2}] end)
  raises("nil is no index", function() return v[nil] end)
  raises("nil is no index", function() return lt.ones(2, 3)[{0, nil, 1}] end)
  raises("nil is no index", lt.compile(function(x) return (x + 1)[{0, nil, 1}] end), lt.ones(2, 3))
  raises("neither an integer, a slice", function() return v["0, a"] end)
  raises("no attribute or method 'a'", function() return v["a"] end)
  raises("must be an integer, got number 0.5", function() return v[0.5] end)
  raises("boolean true is no index", function() return v[true] end)
  raises("is a list, but has the key 'start'", function() return v[{start = 1}] end)
  raises("has more than start:stop:step", function() return v["1:2:3:4"] end)
end)

-- The runs of a list by a loop: values, the run of each element, lengths.
local function runs_of(list)
  local values, places, lengths = {}, {}, {}
  for i, x in ipairs(list) do
    if i == 1 or x ~= list[i - 1] then values[#values + 1], lengths[#lengths + 1] = x, 0 end
    places[i], lengths[#lengths] = #values - 1, lengths[#lengths] + 1
  end
  return values, places, lengths
end

test("unique_consecutive: values, inverse and counts are those of a loop", function()
  lt.manual_seed(3)
  for _, dtype in ipairs {"float32", "float64", "bfloat16", "int64", "int32", "uint8", "bool"} do
    for _, n in ipairs {1, 2, 17, 3000} do
      local x = lt.randint(0, 2, {2, n}):mul(3):to(dtype)
      for _, t in ipairs {x[0], x:t(), x} do
        local list = t:flatten():totable()
        local values, places, lengths = runs_of(list)
        local a, b, c = lt.unique_consecutive(t, true, true)
        deep(a:totable(), values)
        deep(b:flatten():totable(), places)
        deep(c:totable(), lengths)
        deep(b.shape, t.shape)
        truthy(lt.unique_consecutive(t):equal(a), "values alone")
      end
    end
  end
  local nan = 0 / 0
  local a, b, c = lt.unique_consecutive(lt.tensor({nan, nan, 0, -0.0, 1}), true, true)
  equal(a:size(0), 4)
  deep(b:totable(), {0, 1, 2, 2, 3})
  deep(c:totable(), {1, 1, 2, 1})
  a, b, c = lt.unique_consecutive(lt.zeros(0, 3), true, true)
  deep({a.shape, b.shape, c.shape}, {{0}, {0, 3}, {0}})
end)

h.finish()
