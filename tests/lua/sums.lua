-- Tests that the error of float32 sums does not grow with the number of terms: at most 1e-6 of the sum if the terms
-- have one sign. Eager and compiled sums are alike. Running extremes do not depend on the layout.
local lt = require "lutra"
local h = require "harness"

-- Terms that round badly when they are added one by one.
local kTerms = {0.1, 1 / 3, 0.7, 1.0000005}

local function check_sum(name, got, want)
  local worst = ((got:double() - want):abs() / want):max():item()
  h.truthy(worst <= 1e-6, string.format("%s: relative error %.3g", name, worst))
end

-- f eager and compiled gives equal bits and the sum of float64.
local function check_both(name, f, x)
  local eager, compiled = f(x), lt.compile(f)(x)
  h.truthy(eager:equal(compiled), name .. ": eager and compiled differ")
  check_sum(name, eager, f(x:double()))
end

local reductions = {
  whole = function(x) return x:sum() end,
  rows = function(x) return x:sum(-1) end,
  columns = function(x) return x:sum(0) end,
  outer_and_inner = function(x) return x:view(4, x.shape[1] / 4, -1):sum {dim = {0, 2}} end,
  mean = function(x) return x:mean() end,
  fused = function(x) return (x * 2 + 1):sum(-1) end,
}

h.test("sums of terms of one sign", function()
  for _, shape in ipairs {{64, 8}, {8, 20011}, {60000, 5}, {400, 1025}, {1000, 1000}, {100, 49}} do
    for _, term in ipairs(kTerms) do
      local constant, random = lt.full(shape, term), lt.rand(shape) + 0.001
      for name, f in pairs(reductions) do
        name = string.format("%s of %d x %d", name, shape[1], shape[2])
        check_both(name .. " times " .. term, f, constant)
        check_both(name .. " random", f, random)
      end
    end
  end
end)

h.test("sums of very many terms", function()
  local n = 2 ^ 27
  for _, term in ipairs(kTerms) do
    local x, exact = lt.tensor {term}, lt.tensor({term}):double() * n
    check_sum("whole", x:expand(n):sum(), exact)
    check_sum("rows", x:expand(2, n):sum(1), exact)
    check_sum("columns", x:expand(n / 8, 8):sum(0), exact / 8)
    check_sum("rows of columns", x:expand(n / 8, 8):sum(1), lt.tensor({term}):double() * 8)
  end
end)

h.test("bias gradients are sums of a column", function()
  local bias = lt.zeros(3, {requires_grad = true})
  local step = function(x) return ((x + bias) * 0.1):mean(0):sum() end
  for _, f in ipairs {step, lt.compile(step)} do
    bias.grad = nil
    f(lt.ones(65536, 3)):backward()
    check_sum("gradient", bias.grad, lt.full({3}, lt.tensor({0.1}):item(), {dtype = "float64"}))
  end
end)

h.test("infinities and NaN", function()
  local inf = math.huge
  for _, n in ipairs {3, 5000, 300000} do
    local sum = function(v) return lt.full({n}, v):sum():item() end
    h.equal(sum(inf), inf)
    h.equal(sum(-inf), -inf)
    h.truthy(sum(0 / 0) ~= sum(0 / 0), "NaN")
    h.equal(lt.full({n, 4}, 2e38):sum(0)[0]:item(), inf)
    local x = lt.ones(n)
    x[0], x[n - 1] = inf, -inf
    h.truthy(x:sum():item() ~= x:sum():item(), "inf - inf")
    x[n - 1] = 1
    h.equal(x:sum():item(), inf)
  end
end)

h.test("distances by a product", function()
  local a, b = lt.randn(40, 17), lt.randn(30, 17)
  local direct = lt.cdist(a:double(), b:double(), {compute_mode = "donot_use_mm_for_euclid_dist"})
  for _, f in ipairs {lt.cdist, lt.compile(function(x, y) return lt.cdist(x, y) end)} do
    h.truthy((f(a, b):double() - direct):abs():max():item() <= 1e-5, "cdist")
  end
  -- Rows that are the same are apart by the error's root, and have no gradient where that is 0.
  local c = lt.arange(26):float():view(-1, 1)
  c:requires_grad_()
  local d = lt.cdist(c, c:detach())
  h.equal(d:diagonal():abs():max():item(), 0)
  d:sum():backward()
  h.truthy(c.grad:isfinite():all():item(), "gradient at 0")
end)

h.test("terms that cancel", function()
  for _, n in ipairs {100, 4096, 100000} do
    local x = lt.randn(n)
    local error = math.abs(x:sum():item() - x:double():sum():item())
    h.truthy(error <= 1e-6 * x:abs():double():sum():item(), "of " .. n .. " terms: " .. error)
  end
end)

-- Compares with adding (multiplying) int32s one column at a time, which wraps as the scan does.
h.test("running sums and products of integers along rows", function()
  for _, n in ipairs {1, 2, 3, 4, 5, 7, 8, 9, 64, 131} do
    local x = lt.randint(-2 ^ 31, 2 ^ 31, {5, n}):to(lt.int32)
    local sum, product = lt.zeros({5}, {dtype = lt.int32}), lt.ones({5}, {dtype = lt.int32})
    local sums, products = {}, {}
    for i = 1, n do
      sum, product = sum + x:select(1, i - 1), product * x:select(1, i - 1)
      sums[i], products[i] = sum, product
    end
    for _, dtype in ipairs {"int32", "int16", "int8", "uint8"} do
      local to = {dtype = lt[dtype]}
      h.truthy(x:cumsum(1, to):equal(lt.stack(sums, 1):to(lt[dtype])), dtype .. " sums of " .. n)
      h.truthy(x:cumprod(1, to):equal(lt.stack(products, 1):to(lt[dtype])), dtype .. " products of " .. n)
    end
    local long = x:to(lt.int64) * 2 ^ 31
    h.truthy(long:cumsum(1):equal(long:t():contiguous():cumsum(0):t()), "int64 sums of " .. n)
    h.truthy(long:cumprod(1):equal(long:t():contiguous():cumprod(0):t()), "int64 products of " .. n)
  end
end)

h.test("running extremes along columns are those along rows", function()
  lt.manual_seed(9)
  for _, dtype in ipairs {"float32", "float64", "int32", "int64"} do
    for _, sizes in ipairs {{1, 3}, {40, 5}, {7, 300}, {600, 2}} do
      local x = lt.randint(-5, 5, sizes):to(dtype)
      if dtype:match("float") then x:masked_fill_(lt.rand(sizes):gt(0.98), 0 / 0) end
      for _, name in ipairs {"cummax", "cummin"} do
        local values, places = lt[name](x, 0)
        local wanted, wanted_places = lt[name](x:t():contiguous(), 1)
        h.truthy(values:allclose(wanted:t(), 0, 0, true), name .. " of " .. dtype)
        h.truthy(places:equal(wanted_places:t()), "places of " .. name .. " of " .. dtype)
        local cube = lt[name](lt.stack({x, x}), 1)
        h.truthy(cube[1]:allclose(values, 0, 0, true), name .. " of the second of two")
      end
    end
  end
end)

h.finish()
