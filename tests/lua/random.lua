-- Tests random numbers: their ranges and means, seeds, dropout, and that compiled code draws the same as eager code.
local h = require "harness"
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

local n = 40000
local function about(value, want, slack)
  truthy(math.abs(value - want) <= slack, value .. " is not about " .. want .. "; it")
end
local function mean(x) return x:to("float64"):mean():item() end

test("dropout keeps the mean, scales what it keeps", function()
  lt.manual_seed(1)
  local y = F.dropout(lt.ones(n), 0.25)
  about(mean(y), 1, 0.02)
  about(mean(y:eq(0)), 0.25, 0.02)
  equal(y:max():item(), lt.tensor(1 / 0.75):item())
  equal(F.dropout(lt.ones(4, {dtype = "bfloat16"}), 0.5).dtype, "bfloat16")
end)

test("dropout that does nothing gives the input itself", function()
  local x = lt.randn(3)
  truthy(rawequal(F.dropout(x, 0.5, false), x))
  truthy(rawequal(F.dropout(x, 0), x))
  deep(F.dropout(lt.tensor({1, 2}), 1):totable(), {0, 0})
end)

test("dropout in place, and its gradient", function()
  local x = lt.ones(100)
  truthy(rawequal(F.dropout(x, 0.5, true, true), x))
  truthy(x:eq(2):logical_or(x:eq(0)):all():item())
  local w = lt.ones(100):requires_grad_(true)
  local y = F.dropout(w, 0.5)
  y:sum():backward()
  truthy(w.grad:equal(y:detach()))
end)

test("uniform_ and normal_ round where draws times a factor plus an offset do", function()
  local function drawn(fill)
    lt.manual_seed(7)
    return fill()
  end
  for _, dtype in ipairs {"float32", "float64", "float16", "bfloat16"} do
    for _, shape in ipairs {{}, {7}, {0, 3}, {300, 5}} do
      local x = lt.empty(shape, {dtype = dtype})
      local even = drawn(function() return lt.rand(shape, {dtype = dtype}) * 2 - 0.3 end)
      local bell = drawn(function() return lt.randn(shape, {dtype = dtype}) * 1.3 + 0.7 end)
      local function fill_evenly() return x:uniform_(-0.3, 1.7) end
      local function fill_as_bell() return x:normal_(0.7, 1.3) end
      truthy(drawn(fill_evenly):equal(even))
      truthy(drawn(fill_as_bell):equal(bell))
      if shape[1] == 300 then
        truthy(drawn(lt.compile(fill_evenly)):equal(even))
        truthy(drawn(lt.compile(fill_as_bell)):equal(bell))
      end
    end
  end
  truthy(drawn(function() return lt.zeros(4, 6):t():uniform_() end):equal(drawn(function() return lt.rand(6, 4) end)))
end)

test("whole channels", function()
  local y = F.dropout2d(lt.ones(8, 16, 5, 5), 0.5)
  local sums = y:sum({2, 3})
  truthy(sums:eq(0):logical_or(sums:eq(50)):all():item())
  truthy(sums:eq(0):any():item() and sums:eq(50):any():item())
  deep(F.dropout1d(lt.ones(4, 6), 0.5):sum(1):eq(0):logical_or(F.dropout1d(lt.ones(4, 6), 0):sum(1):eq(6)):all():item(),
    true)
  raises("dropout2d: expected an input of 2 dimensions or more, got shape {3}", F.dropout2d, lt.ones(3))
end)

test("alpha dropout keeps mean and variance", function()
  lt.manual_seed(3)
  local y = F.alpha_dropout(lt.randn(n), 0.3)
  about(mean(y), 0, 0.03)
  about(y:var():item(), 1, 0.05)
end)

test("dropout errors", function()
  raises("dropout: p must be between 0 and 1, got 1.5", F.dropout, lt.ones(2), 1.5)
  raises("dropout: p must be between 0 and 1, got -0.1", F.dropout, lt.ones(2), -0.1)
  raises("dropout: expected a floating point input, got int64", F.dropout, lt.arange(3), 0.5)
  raises("Dropout: argument 'p' must be a number between 0 and 1", nn.Dropout, 2)
end)

test("modules drop while they train", function()
  local m = nn.Dropout(0.5)
  local x = lt.ones(64)
  truthy(m(x):eq(0):any():item())
  m:eval()
  truthy(rawequal(m(x), x))
  equal(tostring(m):match("Dropout%b()"), "Dropout(p=0.5, inplace=False)")
end)

test("compiled dropout draws the same numbers", function()
  local function f(x) return F.dropout(x * 2, 0.3) + F.dropout2d(x, 0.5) end
  local x = lt.randn(4, 6, 3, 3)
  local g = lt.compile(f)
  lt.manual_seed(7)
  local a, b = f(x), f(x)
  lt.manual_seed(7)
  local c, d = g(x), g(x)
  truthy(a:equal(c) and b:equal(d) and not a:equal(b))
end)

local function draws_as_eager(f, most, ...)
  local g = lt.compile(f)
  local function all(run, ...)
    lt.manual_seed(11)
    local list = {lt.rand(2)}
    for _ = 1, 4 do
      for _, v in ipairs {run(...)} do list[#list + 1] = v end
      list[#list + 1] = lt.rand(3)
    end
    return list
  end
  lt.reset()
  local want, got = all(f, ...), all(g, ...)
  equal(#got, #want)
  for i, v in ipairs(want) do truthy(got[i]:equal(v), "draw " .. i) end
  local found = h.breaks()
  truthy(found <= most, found .. " breaks")
end

test("a seed in compiled code", function()
  local x = lt.ones(3)
  draws_as_eager(function(x)
    local y = x * 2
    lt.manual_seed(3)
    return y + lt.rand(3), F.dropout(y, 0.5)
  end, 0, x)
  draws_as_eager(function(x)
    lt.manual_seed(3)
    return x * 2
  end, 0, x)
  draws_as_eager(function(x)
    lt.manual_seed(3)
    lt.manual_seed(-4)
    return x + lt.rand(3)
  end, 0, x)
  draws_as_eager(function(x)
    local y = x + lt.rand(3)
    lt.manual_seed(3)
    local z = y + lt.rand(3)
    lt.manual_seed(3)
    return y, z, lt.rand(3)
  end, 2, x)
  draws_as_eager(function(x)
    lt.manual_seed(5)
    local y = lt.cond(x:sum():gt(0), function(x) return x * 2 end, function(x) return x * 3 end, x)
    return y, lt.rand(3)
  end, 0, x)
  local w = lt.ones(3, {requires_grad = true})
  draws_as_eager(function(w)
    lt.manual_seed(3)
    local y = F.dropout(w * 2, 0.5)
    y:sum():backward()
    local g = w.grad
    w.grad = nil
    return y:detach(), g
  end, 1, w)
end)

test("a seed that changes", function()
  local function f(x, n)
    local y = x * 2
    lt.manual_seed(n)
    return y + lt.rand(3)
  end
  lt.reset()
  local g, x = lt.compile(f), lt.ones(3)
  for i = 1, 12 do truthy(g(x, i * 7):equal(f(x, i * 7)), "seed " .. i) end
  truthy(lt.counters().stats.unique_graphs <= 2, "graphs")
  equal(h.breaks(), 0)
  for _, n in ipairs {2 ^ 53, -1, 2 ^ 40} do truthy(g(x, n):equal(f(x, n)), "seed " .. n) end
  for _, n in ipairs {0.5, "a", 0 / 0, 1 / 0} do equal((pcall(g, x, n)), false) end
  truthy(g(x, 7LL):equal(f(x, 7LL)))
end)

test("bernoulli", function()
  lt.manual_seed(2)
  about(mean(lt.bernoulli(lt.full({n}, 0.3))), 0.3, 0.02)
  about(mean(lt.zeros(n):bernoulli(0.7)), 0.7, 0.02)
  local x = lt.empty({n})
  truthy(rawequal(x:bernoulli_(0.1), x))
  about(mean(x), 0.1, 0.02)
  about(mean(lt.empty({n}):bernoulli_(lt.full({n}, 0.9))), 0.9, 0.02)
  equal(lt.empty({4}, {dtype = "int64"}):bernoulli_().dtype, "int64")
  raises("bernoulli: p must be between 0 and 1, got 2", lt.bernoulli, lt.ones(2), 2)
  raises("bernoulli: expected a floating point input, got int64", lt.bernoulli, lt.arange(2))
end)

-- A search finds the place that a count of the sums up to a number gives.
test("multinomial counts sums", function()
  for _, dtype in ipairs {"float32", "float64"} do
    local p = lt.rand(5, 300, {dtype = dtype}) * lt.rand(5, 300):gt(0.5)
    local sums = p:cumsum(1)
    for _, samples in ipairs {1, 70} do
      lt.manual_seed(7)
      local drawn = lt.multinomial(p, samples, true)
      lt.manual_seed(7)
      local u = lt.rand(5, samples, {dtype = dtype}) * sums:narrow(1, 299, 1)
      truthy(drawn:equal(sums:unsqueeze(1):le(u:unsqueeze(2)):sum(2)), "places of " .. dtype)
      truthy(p:gather(1, drawn):gt(0):all():item(), "a place without weight")
      lt.manual_seed(7)
      truthy(lt.compile(function(p) return lt.multinomial(p, samples, true) end)(p):equal(drawn), "compiled")
    end
  end
end)

test("multinomial", function()
  lt.manual_seed(5)
  local p = lt.tensor({0, 3, 1, 0, 4})
  local drawn = lt.multinomial(p, n, true)
  equal(drawn.dtype, "int64")
  deep(drawn.shape, {n})
  for i, want in ipairs {0, 0.375, 0.125, 0, 0.5} do about(mean(drawn:eq(i - 1)), want, 0.02) end
  local rows = lt.multinomial(lt.ones(50, 6), 6)
  deep(rows.shape, {50, 6})
  truthy(rows:sum(1):eq(15):all():item(), "each row holds every category once")
  truthy(lt.multinomial(lt.tensor({{0, 1, 0}, {1, 0, 0}}), 1):totable()[1][1] == 1)
  raises("multinomial: cannot draw 6 of 5 without replacement", lt.multinomial, p, 6)
  raises("multinomial: num_samples must be positive, got 0", lt.multinomial, p, 0)
  raises("multinomial: expected a floating point dtype, got int64", lt.multinomial, lt.arange(3), 1)
end)

test("other distributions in place", function()
  lt.manual_seed(4)
  about(mean(lt.empty({n}):exponential_(2)), 0.5, 0.02)
  about(mean(lt.empty({n}):geometric_(0.25)), 4, 0.15)
  local cauchy = lt.empty({n}):cauchy_(2, 3)
  about(cauchy:median():item(), 2, 0.15)
  about(mean(cauchy:lt(-1):float()), 0.25, 0.02)
  about(mean(lt.empty({n}):log_normal_(0, 0.5):log()), 0, 0.02)
  local x = lt.empty({n}, {dtype = "uint8"}):random_()
  about(mean(x), 127.5, 2)
  x = lt.empty({n}):random_(3, 6)
  equal(x:min():item(), 3) equal(x:max():item(), 5)
  raises("exponential_: lambd must be positive, got 0", function() lt.empty({2}):exponential_(0) end)
  raises("random_: expected from < to, got 3 and 3", function() lt.empty({2}):random_(3, 3) end)
end)

test("normal", function()
  lt.manual_seed(6)
  local x = lt.normal(lt.full({n}, 3), 2)
  about(mean(x), 3, 0.05) about(x:std():item(), 2, 0.05)
  deep(lt.normal(0, lt.zeros(3)):totable(), {0, 0, 0})
  deep(lt.normal(lt.tensor({1, 2}), lt.zeros(2)):totable(), {1, 2})
  deep(lt.normal(0, 1, {2, 3}).shape, {2, 3})
  raises("normal: std must not be negative, got -1", lt.normal, 0, -1, {2})
end)

test("like another tensor", function()
  local x = lt.zeros(3, 4, {dtype = "int32"})
  local y = lt.randint_like(x, 5, 8)
  equal(y.dtype, "int32") deep(y.shape, {3, 4})
  truthy(y:ge(5):all():item() and y:lt(8):all():item())
  equal(x:new_tensor({1, 2}).dtype, "int32")
  deep(x:new_tensor({{1}, {2}}):totable(), {{1}, {2}})
  equal(x:new_tensor({1.5}, {dtype = "float64"}).dtype, "float64")
  deep(lt.rand_like(lt.zeros(2, 2)).shape, {2, 2})
  raises("randint_like", lt.randint_like, lt.zeros(2))
end)

h.finish()
