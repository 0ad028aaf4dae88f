-- Tests inputs of compiled functions that share memory, some of which are written.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- Compares f, compiled and eager, three times on views of new memory: its results and the memory after it. Returns
-- the number of graphs.
local function compare(views, f)
  return h.graphs_of(function(wrap)
    local compiled, seen = wrap(f), {}
    for i = 1, 3 do
      local base = lt.arange(24):to("float32") * i
      seen[#seen + 1] = h.text({compiled(views(base))})
      seen[#seen + 1] = h.text(base)
    end
    return table.concat(seen, "\n")
  end)
end

local function halves(b) return b:narrow(0, 0, 12), b:narrow(0, 12, 12) end
local function lapping(b) return b:narrow(0, 0, 16), b:narrow(0, 8, 16) end
local function rows(b) return b:view(4, 6), b:view(4, 6)[1] end
local function columns(b) return b:view(4, 6):narrow(1, 0, 4), b:view(4, 6):narrow(1, 2, 4) end
local function beside(b) return b:view(4, 6):narrow(1, 0, 3), b:view(4, 6):narrow(1, 3, 3) end

test("a write to one is seen through the other: one graph", function()
  for _, views in ipairs {halves, lapping, columns, beside} do
    equal(compare(views, function(u, v)
      u:add_(1)
      local y = v * 2
      v:mul_(3)
      return y, u + 1, v
    end), 1)
  end
  equal(compare(rows, function(table, row)
    row:copy_(table[2] * 2)
    table[0] = row
    return table:sum(0), row
  end), 1)
end)

test("views of them are returned, offsets and strides are read", function()
  equal(compare(lapping, function(u, v)
    u:neg_()
    local part = v:narrow(0, 2, 3)
    return part, u:storage_offset(), v:storage_offset(), part:storage_offset(), v:stride(0)
  end), 1)
end)

-- The memory that the graph has begins behind the storage's beginning.
local function behind(b) return b:narrow(0, 6, 12), b:narrow(0, 10, 8):view(2, 4), b:narrow(0, 9, 2) end

test("interpreted and verified, graphs of a memory count offsets from where it begins", function()
  local function f(u, v, w)
    local y = u * 2
    v:sub_(w[1] * 1)
    u:add_(v[1][2] * 2)
    return y, v:t(), w + 1, u:storage_offset()
  end
  local function told(wrap)
    local base, compiled, seen = lt.arange(24):to("float32"), wrap(f), {}
    for i = 1, 3 do
      seen[i] = h.text({compiled(behind(base))})
      base:mul_(2)
    end
    return table.concat(seen, "\n") .. h.text(base)
  end
  local want = told(function(g) return g end)
  for _, backend in ipairs {"native", "eager", "aot_eager", function() end} do
    lt.reset()
    equal(told(function(g) return lt.compile(g, {backend = backend}) end), want, tostring(backend))
    equal(lt.counters().stats.unique_graphs, 1)
  end
  lt.reset()
  local verify, before = lt.config.verify, lt.counters().verify.mismatches
  lt.config.verify = 1
  equal(told(lt.compile), want)
  lt.config.verify = verify
  equal(lt.counters().verify.mismatches, before)
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("another place in the memory, or memories apart, are other entries", function()
  local function f(u, v) u:add_(1) return v * 2 end
  local compiled = lt.compile(f)
  local function both(views)
    local a, b = lt.arange(24):to("float32"), lt.arange(24):to("float32")
    equal(h.text({compiled(views(a))}), h.text({f(views(b))}))
    equal(h.text(a), h.text(b))
  end
  for _ = 1, 2 do
    both(lapping)
    both(function(b) return b:narrow(0, 4, 16), b:narrow(0, 0, 16) end)
    both(function(b) return b:narrow(0, 0, 16), lt.ones(16) end)
    both(function(b) return b:narrow(0, 0, 8), b:narrow(0, 8, 8) end)
    both(function(b) return b:narrow(0, 8, 8), b:narrow(0, 0, 8) end)
    both(function(b) return b:narrow(0, 0, 8), b:narrow(0, 4, 8) end)
    both(function(b) local u = b:narrow(0, 0, 8) return u, u end)
  end
end)

test("other places in each call are a break, behind two graphs", function()
  for _, views in ipairs {
    function(b, i) return b:narrow(0, 0, 16), b:narrow(0, i, 16) end,
    function(b, i) return b:narrow(0, 0, 8 + i), b:narrow(0, 4, 12) end,
  } do
    lt.reset()
    local function f(u, v) u:add_(1) return v * 2 end
    local compiled = lt.compile(f)
    local function both(i, views)
      local a, b = lt.arange(24):to("float32"), lt.arange(24):to("float32")
      equal(h.text({compiled(views(a, i))}), h.text({f(views(b, i))}), i)
      equal(h.text(a), h.text(b), i)
    end
    for _ = 1, 2 do
      for i = 1, 8 do both(i, views) end
    end
    equal(lt.counters().stats.unique_graphs, 2)
    local found = lt._report(compiled).break_reasons
    equal(#found, 1)
    truthy(found[1].reason:find("tensors that share memory are written", 1, true), found[1].reason)
    truthy(found[1].hint:find("keep the sizes and offsets", 1, true), found[1].hint)
    for _ = 1, 3 do both(0, function(b) return b:narrow(0, 0, 9), lt.ones(9) end) end
    equal(lt.counters().stats.unique_graphs, 3, "tensors apart have an entry all the same")
  end
end)

test("a break, and a loop, between the writes", function()
  truthy(compare(lapping, function(u, v)
    u:add_(1)
    lt.graph_break()
    v:mul_(2)
    for i = 1, 3 do u:add_(v * i) end
    return u * 1, v
  end) <= 2)
end)

test("what has to do with gradients stays as it is", function()
  local function run(wrap)
    local w = lt.ones(4, {requires_grad = true})
    local d, seen = w:detach(), {}
    local f = wrap(function(x) d:add_(x) return (w * x):sum() end)
    for i = 1, 3 do
      local y = f(lt.ones(4) * i)
      y:backward()
      seen[i] = h.text({y, w, w.grad})
    end
    local u, v = lapping(lt.zeros(24))
    local g = wrap(function(u, v) u:add_(w:sum()) return (v * 2):sum() end)
    g(u, v):backward()
    seen[4] = h.text({u, v, w.grad})
    return table.concat(seen, "\n")
  end
  local want = run(function(f) return f end)
  equal(run(lt.compile), want)
end)

test("versions count the writes to both", function()
  local function run(wrap)
    local u, v = halves(lt.zeros(24))
    wrap(function(u, v) u:add_(1) v:add_(1) u:mul_(2) return u + v end)(u, v)
    return u._version
  end
  equal(run(lt.compile), run(function(f) return f end))
end)

test("empty views, integers, half types", function()
  for _, dtype in ipairs {"int64", "float16", "bool"} do
    local function run(wrap)
      local base = lt.ones(8, {dtype = dtype})
      local u, v, none = base:narrow(0, 0, 5), base:narrow(0, 2, 5), base:narrow(0, 3, 0)
      local f = wrap(function(u, v, none) u:copy_(lt.zeros(5, {dtype = dtype})) return v:clone(), none:clone() end)
      return h.text({f(u, v, none)}) .. h.text({f(v, u, none)}) .. h.text(base)
    end
    equal(run(lt.compile), run(function(f) return f end))
  end
end)

-- The order in which eager code writes an element twice shows, so nothing of it is in a graph.
test("what is written overlaps itself", function()
  local function lapped(b) return b:as_strided({2, 2}, {1, 1}) end
  local function windows(b) return b:unfold(0, 4, 2) end
  local function run(views, f)
    h.graphs_of(function(wrap)
      local compiled, seen = wrap(f), {}
      for i = 1, 3 do
        local base = lt.arange(8):to("float32") * i
        local ok, r = pcall(function() return h.text({compiled(views(base), base)}) end)
        seen[#seen + 1] = (ok and r or "raises") .. h.text(base)
      end
      return table.concat(seen, "\n")
    end)
  end
  for _, views in ipairs {lapped, windows, function(b) return b:narrow(0, 0, 1):expand(3) end} do
    run(views, function(a) a:add_(1) return a + 0 end)
    run(views, function(a, b) a:add_(1) return b + 0 end)
    run(views, function(a, b) local y = b * 2 a:mul_(y:sum()) a:add_(1) return a, b * 1, y end)
    run(views, function(a, b) a[0]:add_(1) return a + 0, b + 0 end)
    run(views, function(a, b) a:narrow(0, 0, 2):copy_(a:narrow(0, 0, 2) * 2) return a + 0, b + 0 end)
    run(views, function(a, b) a[0] = 7 return a + 0, b + 0 end)
    run(views, function(a, b) b:add_(1) return a + 0, b + 0 end)
    run(function(b) return b end, function(b)
      local x = b * 2
      local a = views(x)
      a:add_(1)
      return x + 0, a + 0
    end)
    run(function(b) return b end, function(b) views(b):mul_(3) return b + 0 end)
  end
end)

test("transposed, narrowed and permuted tensors are written in a graph", function()
  for _, views in ipairs {
    function(b) return b:view(4, 6):transpose(0, 1), lt.ones(1) end,
    function(b) return b:view(4, 6):narrow(1, 1, 3), lt.ones(1) end,
    function(b) return b:view(2, 3, 4):permute(2, 0, 1), lt.ones(1) end,
    function(b) return b:as_strided({3, 2}, {5, 2}), lt.ones(1) end,
  } do
    equal(compare(views, function(u) u:add_(1) return u * 2 end), 1)
  end
end)

test("a backward inside tells that a disjoint part was written", function()
  local function f(a, b)
    local w = lt.ones(2):requires_grad_(true)
    local l = (w * b):sum()
    a:add_(1)
    l:backward()
    return w.grad
  end
  local function outcome(f)
    local x = lt.zeros(4)
    local ok, why = pcall(f, x:narrow(0, 0, 2), x:narrow(0, 2, 2))
    return h.text(x) .. (ok and h.text(why) or tostring(why):gsub("^[^:]*:%d+: ", ""))
  end
  local want = outcome(f)
  truthy(want:find("modified by an inplace operation", 1, true), want)
  local g = lt.compile(f)
  for _ = 1, 3 do equal(outcome(g), want) end
end)

h.finish()
