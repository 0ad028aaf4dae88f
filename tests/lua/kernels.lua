-- Tests kernels at sizes where they are split into chunks, with kept rows and several fork-joins: eager and compiled,
-- on one and on two threads, agree bit for bit, and the results are right.
local lt = require "lutra"
local h = require "harness"
local test, truthy, near = h.test, h.truthy, h.near

-- A float32 sum is float64's but for its own rounding and, of what it added, a part that does not grow with its length.
local function sum_near(name, got, exact, magnitude, part)
  local allowed = exact:abs() * 2 ^ -23 + magnitude * (part or 2 ^ -28)
  local worst = ((got:double() - exact):abs() / allowed):amax():item()
  truthy(worst <= 1, name .. " is off by " .. worst .. " of what is allowed; it")
end

local function same(a, b) return a:equal(b) or a:allclose(b, {rtol = 0, atol = 0, equal_nan = true}) end

local function agree(name, f, ...)
  local compiled = lt.compile(f)
  local expected
  for _, threads in ipairs {2, 1} do
    lt.config.num_threads = threads
    for _, run in ipairs {f, compiled} do
      local got = run(...)
      expected = expected or got
      truthy(same(got, expected), name .. " on " .. threads .. " threads")
    end
  end
  lt.config.num_threads = 2
  return expected
end

lt.manual_seed(7)
local n = 300007 -- prime: chunks leave a rest
local long = lt.randn(n)
local wide = long:double()

test("a long vector is reduced in chunks", function()
  sum_near("sum", agree("sum", function(x) return x:sum() end, long), wide:sum(), wide:abs():sum())
  sum_near("mean", agree("mean", function(x) return x:mean(0, true) end, long), wide:mean(), wide:abs():mean())
  sum_near("of squares", agree("of squares", function(x) return (x * x):sum() end, long), (wide * wide):sum(),
    (wide * wide):sum())
  truthy(agree("amax", function(x) return x:amax() end, long):item() == wide:amax():item())
  truthy(agree("amin", function(x) return x:reshape(1, -1):amin(1) end, long):item() == wide:amin():item())
  truthy(agree("any", function(x) return x:gt(100):any() end, long):item() == false)
  truthy(agree("all", function(x) return x:gt(-100):all() end, long):item() == true)
  local ints = lt.arange(n)
  truthy(agree("ints", function(x) return x:sum() end, ints):item() == n * (n - 1) / 2)
end)

test("the few rows of a large loop are shared, too", function()
  local x = lt.randn(2, 300, 1100)
  local part = x:narrow(1, 3, 200)
  local tiled = agree("tile", function(x) return x:narrow(1, 3, 200):tile {1, 2, 2} end, x)
  for _, rows in ipairs {0, 200} do
    for _, columns in ipairs {0, 1100} do
      truthy(tiled:narrow(1, rows, 200):narrow(2, columns, 1100):equal(part), rows .. ", " .. columns)
    end
  end
  for _, dtype in ipairs {"float16", "bfloat16"} do
    local h = (x / 16):to(dtype)
    local got = agree(dtype, function(x) return x:sum() end, h)
    truthy(got:equal(agree(dtype, function(x) return x:float():sum():to(dtype) end, h)), dtype)
  end
end)

test("a histogram is counted in pieces", function()
  local x = lt.randn(700, 450)
  for name, t in pairs {rows = x, columns = x:t(), part = x:narrow(1, 7, 401):narrow(0, 1, 600), line = x[3]} do
    local got = agree(name, function(t) return t:histc(17, {min = -2, max = 2}) end, t)
    local inside = t:masked_select(t:ge(-2):logical_and(t:le(2)))
    local want = lt.floor((inside + 2) * 17 / 4):clamp {max = 16}:long():bincount(nil, 17)
    truthy(got:long():equal(want), name)
    local all = agree(name, function(t) return t:histc(9) end, t)
    truthy(all:sum():item() == t:numel(), name)
    truthy(all:equal(t:histc(9, {min = t:amin():item(), max = t:amax():item()})), name)
  end
  truthy(lt.tensor(0.5):histc(3, {min = 0, max = 1}):equal(lt.tensor {0, 1, 0}))
  truthy(not pcall(function() return (x / 0):histc(3):tolist() end))
end)

test("a NaN in the rest reaches the result", function()
  local x = long:clone()
  x[n - 1] = 0 / 0
  truthy(x:sum():isnan():item())
  truthy(x:amax():isnan():item())
end)

test("tall columns are reduced in chunks", function()
  local tall = lt.randn(40009, 7)
  local function check(name, f, x)
    local wide = x:double()
    sum_near(name, agree(name, f, x), f(wide), f(wide:abs()))
  end
  check("dim 0", function(x) return x:sum(0) end, tall)
  check("kept", function(x) return (x * 2):sum(0, true) end, tall)
  check("all", function(x) return x:sum() end, tall)
  truthy(agree("amax", function(x) return x:amax(0) end, tall):equal(tall:double():amax(0):float()))
  local images = lt.randn(70, 31, 33, 5):permute(0, 3, 1, 2)
  check("channels", function(x) return x:sum({0, 2, 3}) end, images)
  local middle = lt.randn(3, 90001, 2)
  check("middle", function(x) return x:sum(1) end, middle)
end)

test("adds by index go along the other dimensions", function()
  local rows = lt.randint(0, 50, {3000})
  for _, case in ipairs {{0, {50, 129}, {3000, 129}}, {1, {12, 50}, {12, 3000}}, {1, {6, 50, 33}, {6, 3000, 33}}} do
    local dim, to, from = unpack(case)
    local source = lt.randn(from)
    local got = agree("index_add " .. dim, function(z, i, s) return z:index_add(dim, i, s) end, lt.ones(to), rows,
      source)
    local expected = lt.ones(to):double()
    for i = 0, 2999 do
      local target = expected:select(dim, rows[i]:item())
      target:add_(source:select(dim, i):double())
    end
    local magnitude = lt.ones(to):double():index_add(dim, rows, source:double():abs())
    sum_near("index_add " .. dim, got, expected, magnitude, 2 ^ -22)
  end
  agree("scatter_add", function(z, i, s) return z:scatter_add(0, i, s) end, lt.zeros(50, 40),
    lt.randint(0, 50, {900, 40}),
        lt.randn(900, 40))
end)

-- An index that is expanded says the same as its copy, whatever reduces and however operands lie.
test("scatter by an expanded index", function()
  lt.config.recompile_limit = 64
  local rows = lt.randint(0, 50, {700})
  local index = rows:view(700, 1, 1):expand(700, 4, 8)
  local nan = lt.where(lt.rand(700, 4, 8):lt(0.01), 0 / 0, lt.randn(700, 4, 8))
  for _, source in ipairs {nan, lt.randn(4, 700, 8):transpose(0, 1), lt.randn(8, 4, 700):permute(2, 1, 0)} do
    for _, reduce in ipairs {"sum", "prod", "mean", "amax", "amin"} do
      for _, include in ipairs {true, false} do
        local options = {include_self = include}
        local function f(z, i, s) return z:scatter_reduce(0, i, s, reduce, options) end
        local z = lt.randn(8, 50, 4):permute(1, 2, 0)
        local got = agree("scatter_reduce by " .. reduce, f, z, index, source)
        truthy(same(got, f(z, index:contiguous(), source)), reduce)
      end
    end
    local z = lt.zeros(50, 4, 8)
    local added = agree("index_add", function(t, i, s) return t:index_add(0, i, s) end, z, rows, source)
    truthy(same(added, z:scatter_add(0, index:contiguous(), source)))
  end
  local bad = lt.tensor({0, 50}, {dtype = "int64"}):view(2, 1):expand(2, 4)
  h.raises("scatter_add: index 50 is out of bounds for dimension 0 with size 50", lt.scatter_add, lt.zeros(50, 4), 0,
    bad, lt.ones(2, 4))
end)

test("heavy values of a row are kept in its result", function()
  local x = lt.randn(150, 203)
  local p = agree("softmax", function(t) return t:softmax(-1) end, x)
  near((p:sum(-1) - 1):abs():amax():item(), 0, 1e-6)
  agree("used twice", function(t)
    local e = (t - t:amax(-1, true)):exp()
    return e / e:sum(-1, true) + e * (e * e):sum(-1, true)
  end, x)
  agree("down columns", function(t) return t:softmax(0) end, x)
  agree("over two dims", function(t)
    local e = t:exp()
    return e / e:sum({1, 2}, true)
  end, lt.randn(40, 13, 17))
end)

test("kernels that do not depend on each other share a fork", function()
  local a, b, c = lt.randn(300, 500), lt.randn(77), lt.randn(100, 1000)
  agree("three", function(x, y, z) return lt.cat({(x * 2):reshape(-1), y:exp(), (z + 1):reshape(-1)}) end, a, b, c)
  -- One kernel writes memory that another one reads, so they do not run in parallel.
  local step = lt.compile(function(x, y)
    local s = (x * 2):sum(1)
    x:add_(1)
    y:mul_(3)
    return s, x + 0
  end)
  local x, y = a:clone(), c:clone()
  local s, after = step(x, y)
  truthy(s:equal((a * 2):sum(1)) and after:equal(a + 1) and x:equal(a + 1) and y:equal(c * 3))
end)

test("the short way of arithmetic is the long one", function()
  local a, b = lt.randn(5, 6), lt.randn(5, 6)
  truthy((a + b):equal(lt.add(a, b, {alpha = 1})))
  truthy((a / b):equal(a:div(b, {rounding_mode = nil})))
  truthy((a - b):equal(a + -b))
  local p = lt.randn(5, 6):requires_grad_()
  truthy((p * a).requires_grad and not (a * b).requires_grad)
  truthy((a:t() + b:t()):equal((a + b):t()))
  truthy((lt.randn(0, 3) + lt.randn(0, 3)):numel() == 0)
  local gone = lt.randn(3)
  gone:free()
  truthy(not pcall(function() return gone + lt.randn(3) end))
  local half = a:to(lt.bfloat16)
  truthy((half + half).dtype == lt.bfloat16)
end)

test("eager resampling runs as one graph", function()
  local x = lt.randn(2, 3, 8, 8)
  for _, mode in ipairs {"nearest", "bilinear", "bicubic"} do
    local function up() return lt.nn.functional.interpolate(x, {scale_factor = 2, mode = mode}) end
    local calls = 0
    for _, row in ipairs(lt.profile(up, {warmup = 1})().kernels) do calls = calls + row.calls end
    h.truthy(calls <= 6, mode .. ": " .. calls .. " launches")
    h.truthy(lt.compile(up)():equal(up()), mode)
  end
end)

local function launches(f)
  local calls = 0
  for _, row in ipairs(lt.profile(f, {warmup = 1})().kernels) do calls = calls + row.calls end
  return calls
end

test("an eager dot product makes no vector of products", function()
  for _, dtype in ipairs {"float32", "float64", "bfloat16", "float16", "int32", "int8"} do
    for _, size in ipairs {0, 1, 1000, n} do
      local a, b = (lt.randn(size) * 3):to(lt[dtype]), (lt.randn(size) * 3):to(lt[dtype])
      local got = lt.dot(a, b)
      truthy(got:equal((a * b):sum(nil, false, {dtype = lt[dtype]})), dtype .. " of " .. size)
      truthy(got:equal(lt.vdot(a, b)), dtype .. " of " .. size)
      if size == n then truthy(got:equal(lt.compile(function(x, y) return x:dot(y) end)(a, b)), dtype) end
    end
  end
  local a = lt.randn(1000)
  h.equal(launches(function() return a:dot(a) end), 1)
end)

test("an eager repeat copies once", function()
  local x = lt.randn(5, 7)
  for _, f in ipairs {
    function() return x["repeat"](x, 2, 1) end, function() return x:tile({2, 3}) end,
    function() return x:t():tile({2, 3}) end, function() return x["repeat"](x, 3, 1, 2) end,
  } do
    h.equal(launches(f), 1)
    truthy(f():is_contiguous() and lt.compile(f)():equal(f()))
  end
  -- Fresh memory, and laid out as its sizes say, even where nothing is repeated.
  local same = x:t():tile({1, 1})
  truthy(same:is_contiguous() and same:equal(x:t()) and same:data_ptr() ~= x:data_ptr())
end)

-- A sorter that changes nothing takes the search one by one.
test("searches side by side find what single ones find", function()
  for _, dtype in ipairs {"float32", "float64", "int64", "int32", "uint8", "float16", "bfloat16"} do
    for _, size in ipairs {0, 1, 2, 3, 7, 8, 9, 255, 256, 1000} do
      local sorted = (lt.randn(size) * 40 + 100):to(lt[dtype]):sort()
      local x = (lt.randn(3, 29) * 50 + 100):to(lt[dtype])
      if dtype:find "float" then x[1][3] = 0 / 0 end
      for _, right in ipairs {false, true} do
        for _, out_int32 in ipairs {false, true} do
          local options = {right = right, out_int32 = out_int32}
          local sorter = lt.arange(size)
          local want = lt.searchsorted(sorted, x, {right = right, out_int32 = out_int32, sorter = sorter})
          truthy(lt.searchsorted(sorted, x, options):equal(want), dtype .. " " .. size)
          truthy(lt.searchsorted(sorted, x:t():contiguous():t(), options):equal(want), dtype .. " " .. size)
          local rows = sorted:expand(3, size):contiguous()
          truthy(lt.searchsorted(rows, x, options):equal(want), dtype .. " rows of " .. size)
        end
      end
    end
  end
end)

test("bincount counts what is there, and names the first that cannot be", function()
  for _, dtype in ipairs {"uint8", "int8", "int16", "int32", "int64"} do
    local x = lt.randint(0, 100, {3001}):to(lt[dtype])
    local want = x:view(-1, 1):eq(lt.arange(120):to(lt[dtype])):sum(0)
    truthy(lt.bincount(x, {minlength = 120}):equal(want), dtype)
    truthy(lt.bincount(x:flip({0}):narrow(0, 0, 3000), x:narrow(0, 0, 3000):double()):sum():item() ==
      x:narrow(0, 0, 3000):double():sum():item(), dtype .. " with weights")
  end
  h.raises("must not be negative, got -7", function() lt.bincount(lt.tensor({3, -7, -9}):long()) end)
end)

-- Pairs of rows by two loops; float64 holds the quadratic whose root is a pair's row.
h.test("pdist takes each pair of rows once", function()
  local compiled = lt.compile(function(x) return lt.pdist(x) end)
  for _, n in ipairs {0, 1, 2, 3, 4, 7, 64, 301} do
    local x, rows, others = lt.randn(n, 5), {}, {}
    for i = 0, n - 1 do
      for j = i + 1, n - 1 do rows[#rows + 1], others[#others + 1] = i, j end
    end
    local function at(list) return x:index_select(0, lt.tensor(list, {dtype = "int64"}):view(-1)) end
    local want = lt.linalg.vector_norm(at(rows) - at(others), 2, 1)
    h.truthy(lt.pdist(x):equal(want) and compiled(x):equal(want), n .. " rows")
  end
  -- A row waits for its place: the places are made by vectors, in a kernel of their own. Where many processors share
  -- the work, starting that kernel takes longer than it saves.
  local many = lt.randn(512, 64)
  if lt.get_num_threads() <= 4 then h.equal(launches(function() return lt.pdist(many) end), 2) end
  local x = lt.arange(0, 3000):to(lt.float64):view(-1, 1)
  local apart = lt.pdist(x)
  h.equal(apart[-1]:item(), 1)
  h.equal(apart:sum():item(), 3000 * (3000 ^ 2 - 1) / 6)
end)

-- A kernel that computes windows of windows again would have 49^5 loads: the scheduler must not count them.
h.test("padded windows of windows compile", function()
  local function smooth(x)
    for _ = 1, 5 do x = lt.nn.functional.avg_pool2d(x, 7, {stride = 1, padding = 3}) end
    return x
  end
  local x = lt.randn(1, 2, 20, 20)
  h.truthy(lt.compile(smooth)(x):equal(smooth(x)))
end)

-- A row-major loop that writes a transposed result would fetch a line for each element.
h.test("kernels of other directions stay apart", function()
  local a, b = lt.randn(512, 512), lt.randn(512, 512)
  local function count(f) -- of kernels of compiled code
    local compiled = lt.compile(f)
    compiled(a, b)
    local kernels = 0
    for _, row in ipairs(lt.profile(function() return compiled(a, b) end)().kernels) do
      kernels = kernels + (tonumber(row.name:match("^(%d+) kernels: ")) or 1)
    end
    return kernels
  end
  h.equal(count(function(x, y) return x:amax(1, true) - y:t() end), 2)
  h.equal(count(function(x) return x:t():relu(), x:relu() end), 2)
  h.equal(count(function(x, y) return x:amax(1, true) - y end), 1)
  h.equal(count(function(x) return x:relu(), x:tanh() end), 1)
end)

local F = lt.nn.functional

-- With a gradient, eager code runs the parts of grid_sample; without, a few kernels.
test("grid_sample has the bits of its parts, for images of any size", function()
  for _, mode in ipairs {"bilinear", "nearest", "bicubic"} do
    for _, padding in ipairs {"zeros", "border", "reflection"} do
      for _, align in ipairs {false, true} do
        lt.reset() -- each mode is an entry
        local function sample(x, grid)
          return F.grid_sample(x, grid, {mode = mode, padding_mode = padding, align_corners = align})
        end
        local compiled = lt.compile(sample)
        for _, size in ipairs {{9, 8}, {1, 5}, {7, 1}, {40, 33}} do
          local x, grid = lt.randn(2, 3, size[1], size[2]), (lt.rand(2, 6, 5, 2) * 4 - 2):transpose(1, 2)
          local parts = sample(x:clone():requires_grad_(), grid):detach()
          local name = ("%s, %s, %s of %d x %d"):format(mode, padding, align, size[1], size[2])
          truthy(sample(x, grid):equal(parts), name)
          truthy(compiled(x, grid):equal(parts), name .. ", compiled")
          local kernels = tonumber(tostring(lt.profile(sample)(x, grid)):match "(%d+) launch")
          truthy(kernels <= 3 or mode == "bicubic", name .. " launches " .. kernels)
        end
      end
    end
  end
end)

-- As in PyTorch.
test("grid_sample: a place at or beyond the edge has no gradient, and NaN is the first place", function()
  local theta = lt.tensor {{{1, 0, 0}, {0, 1, 0}}}
  local x = lt.arange(9):float():reshape(1, 1, 3, 3)
  local function gradient(f, grid)
    grid = grid:detach():requires_grad_()
    f(x, grid):sum():backward()
    return grid.grad
  end
  for _, padding in ipairs {"border", "reflection"} do
    for _, mode in ipairs {"bilinear", "nearest"} do
      lt.reset()
      local function sample(x, grid)
        return F.grid_sample(x, grid, {mode = mode, padding_mode = padding, align_corners = true})
      end
      local grid, compiled = F.affine_grid(theta, {1, 1, 3, 3}, {align_corners = true}), lt.compile(sample)
      local wanted = {0, 0, 1, 0, 0, 0, 0, 3, 1, 3, 0, 3, 0, 0, 1, 0, 0, 0}
      if mode == "nearest" then wanted = lt.zeros(18):tolist() end
      for _, f in ipairs {sample, compiled} do
        h.deep(gradient(f, grid):flatten():tolist(), wanted)
        local odd = lt.tensor {{{{0 / 0, 0}, {0, 0 / 0}, {0 / 0, 0 / 0}, {-math.huge, 0}}}}
        h.deep(f(x, odd):flatten():tolist(), {3, 1, 0, 3})
      end
    end
  end
end)

h.finish()
