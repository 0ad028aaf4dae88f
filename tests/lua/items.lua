-- Tests numbers that item() reads from a graph's tensors: they stay in the graph as numbers in arithmetic, factors of
-- tensors, and results. If Lua has to know one, the graph ends there.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, breaks = h.test, h.equal, h.truthy, h.breaks

local text_of

local function text(v)
  if type(v) == "userdata" then return ("%s {%s} %s"):format(v.dtype, table.concat(v.shape, " "), text_of(v)) end
  if type(v) ~= "number" then return type(v) .. " " .. tostring(v) end
  return v ~= v and "nan" or v == 0 and (1 / v < 0 and "-0" or "0") or ("%.17g"):format(v)
end

function text_of(x)
  local all = {}
  for i, v in ipairs(x:detach():reshape(-1):totable()) do all[i] = text(v) end
  return table.concat(all, " ")
end

-- f's results are eager's. Returns how many graphs and breaks that took.
local function compare(f, ...)
  lt.reset()
  local cf = lt.compile(f)
  for _ = 1, 3 do
    local want, got = {f(...)}, {cf(...)}
    equal(#got, #want, "results")
    for i = 1, #want do equal(text(got[i]), text(want[i]), "result " .. i) end
  end
  return lt.counters().stats.unique_graphs, breaks()
end

local function one_graph(f, ...)
  local graphs, broken = compare(f, ...)
  equal(broken, 0, "breaks")
  equal(graphs, 1, "graphs")
end

local x = lt.tensor({0.3, -1.7, 2.9, 0.1})

test("a tensor is scaled by an element", function()
  one_graph(function(x)
    local most = x:abs():max():item()
    return x / most, most
  end, x)
  one_graph(function(x) return x:sub(x:mean():item()):mul(2) + (x * x):sum():item() end, x)
  one_graph(function(x) return 1 - x * x:sum():item(), 3 / (x + x:sum():item()) end, x:double())
end)

test("arithmetic of numbers is Lua's", function()
  local factor = 0.1
  local f = function(x, n)
    local a, b = x:sum():item(), (x * n):max():item()
    local c, d = a + factor, -(a * 0)
    return a + b, a - b, a * b, a / b, a % b, b % a, -a, c, 2 - b, n * a / 3, (a + 1) * x, a / 0, d, a % 0
  end
  for _, type in ipairs {"float32", "float64"} do
    lt.reset()
    local cf, y = lt.compile(f), x:to(type)
    for _, n in ipairs {0.7, 3, -2.5, 0, 1e30} do
      local want, got = {f(y, n)}, {cf(y, n)}
      for i = 1, #want do equal(text(got[i]), text(want[i]), type .. " " .. n .. ", result " .. i) end
    end
    equal(breaks(), 0)
  end
  one_graph(function(x)
    local y = x:half()
    return y:sum():item() / 3, y:to("bfloat16"):max():item() + 1
  end, x)
end)

test("rounding functions are Lua's", function()
  one_graph(function(x)
    local a, b = x:sum():item(), (x * 3):min():item()
    return math.floor(a), math.ceil(a), math.abs(b), math.sqrt(a), math.sqrt(b), math.max(a, b), math.min(a, b, 0),
      math.max(1, a / 0 - a / 0), math.max(a / 0 - a / 0, 1), math.min(-0.0, a * 0), math.floor(b / 100)
  end, x)
end)

test("gradients do not flow through a number", function()
  local function f(x)
    local w = x:detach():requires_grad_()
    local loss = (w * w):sum()
    local y = (w * loss:item()):sum()
    y:backward()
    return w.grad, loss:item(), y.requires_grad
  end
  compare(f, x)
  local w = x:clone():requires_grad_()
  one_graph(function(x)
    local y = x * w
    return y * y:sum():item()
  end, x)
end)

test("clipping by the norm is one graph", function()
  one_graph(function(x)
    local norm = (x * x):sum():sqrt():item()
    local by = math.min(1, 0.5 / (norm + 1e-6))
    return x * by, norm
  end, x)
end)

test("integers are numbers, too", function()
  local ids = lt.tensor({3, 1, 2}, {dtype = "int32"})
  one_graph(function(x, ids)
    local right = x:gt(0):sum():item()
    local at, all = (x * 2):argmax():item(), ids:max():item()
    return right / 4, at + 1, right + at, all * 2 + 1, x * all
  end, x, ids)
  local large = lt.tensor({2, 2}, {dtype = "int64"}):pow(62)
  compare(function(x)
    local n = (x - 1):max():item()
    return n, type(n)
  end, large)
  compare(function(x)
    local n = (x - 1):max():item()
    return n + 1, x + 1
  end, large)
  compare(function(x) return (x - 1):max():item() % 7 end, lt.tensor({2, 5}))
end)

test("answers of equal, allclose and item() are booleans of the graph", function()
  one_graph(function(x)
    local y = x * 2
    local same, close, any = lt.equal(y, x), y:allclose(x * 2), y:gt(1):any():item()
    y:zero_()
    return same, close, not any, not not any, ({any, n = same}).n, y, lt.equal(y, y[{{0, 2}}])
  end, x)
  one_graph(function(x)
    local y = x / 0 - x / 0
    return y, lt.equal(y, y), lt.allclose(y, y), lt.allclose(y, y, {equal_nan = true}), y:allclose(x, 1, 2)
  end, x)
  one_graph(function(x) return x + 1, lt.equal(x + 1, x + 1) end, lt.zeros(0))
  local w = lt.ones(4, {requires_grad = true})
  one_graph(function(w)
    local y = w * 2
    return y, lt.equal(y, w), y:requires_grad_().requires_grad
  end, w)
  one_graph(function(b) return b:logical_not(), b:any():item() end, lt.tensor({true, false}))
  one_graph(function(b)
    local c = b:logical_not()
    return c, b:item()
  end, lt.tensor({true}))
end)

test("of an answer that Lua has to know there is a break", function()
  local function f(x, n)
    local y = x * n
    if lt.equal(y, x) then return y + 1 end
    return lt.allclose(y, x, {atol = 3}) and y or -y
  end
  local cf = lt.compile(f)
  for round = 1, 3 do
    for _, n in ipairs {1, 2, 9, 1, 3} do equal(text(cf(x, n)), text(f(x, n)), round .. " " .. n) end
  end
  local function keys(x)
    local y = x * 2
    local answer = lt.equal(y, x)
    local z = lt.zeros(2, {requires_grad = answer})
    return y, ({[true] = 1, [false] = 2})[answer], answer == false, tostring(answer), z
  end
  compare(keys, x)
  compare(function(x) return x * 2, pcall(lt.equal, x * 2, 3), pcall(lt.allclose, x * 2, x:double()) end, x)
  compare(function(x) return x * 2, pcall(function() return -lt.equal(x * 2, x) end) end, x)
  compare(function(x)
    local y, all = x * 2, true
    for i = 1, 5 do all = all and lt.equal(y * i, x * 2 * i) end
    return y, all
  end, x)
end)

test("a number is read when item() is called", function()
  one_graph(function(x)
    local y = x * 2
    local before = y[0]:item()
    y:add_(1)
    return before, y[0]:item(), y
  end, x)
  local function f(x)
    x = x * 1
    local before = x:sum():item()
    x:mul_(3)
    return before, x
  end
  one_graph(f, x)
end)

test("tables and upvalues hold numbers", function()
  local total, list, log = 0, {}, {best = 1}
  local function f(x)
    local loss = (x * x):mean():item()
    total = total + loss
    list[#list + 1] = loss
    log.best = loss * 2
    return {loss = loss, x = x + loss}
  end
  local want = {}
  for i = 1, 3 do
    f(x + i)
    want[i] = text(total) .. text(list[#list]) .. text(log.best)
  end
  total, list, log = 0, {}, {best = 1}
  lt.reset()
  local cf = lt.compile(f)
  for i = 1, 3 do
    cf(x + i)
    equal(text(total) .. text(list[#list]) .. text(log.best), want[i])
  end
  equal(breaks(), 0)
end)

test("where Lua has to know it, the graph ends", function()
  local function breaks_at(f, ...)
    local _, broken = compare(f, ...)
    truthy(broken >= 1, "no break")
    lt.reset()
    return lt.explain(f)(...).break_reasons[1]
  end
  local why = breaks_at(function(x)
    local n = (x * 2):sum():item()
    x = x + n
    if n > 1 then x = x * 2 end
    return x, n
  end, x)
  truthy(why.reason:find("item"), why.reason)
  equal(why.anchor, "docs/graph_breaks.md#needs_number")
  equal(why.source, "if n > 1 then x = x * 2 end")
  breaks_at(function(x) return x + 1, (x * 2):sum():item() == 3 end, x)
  breaks_at(function(x)
    local n = (x * 0 + 2):max():item()
    local s = 0
    for i = 1, n do s = s + i * n end
    return x * s, lt.zeros(n), x[n], x:narrow(0, 0, n), ({4, 5, 6})[n], n ^ 2, math.exp(n), x:to("float16") * n
  end, x)
  breaks_at(function(x) return (x * 2):gt(0):all():item() and x or -x end, x)
  compare(function(x) return (x * 2):sum():item() end, lt.tensor({7}))
  local f = lt.compile(function(x) return (x * 2):item() end)
  h.raises("item: expects a tensor of one element", f, x)
end)

test("a text of it is made when the graph has run", function()
  one_graph(function(x)
    local loss = (x * 2):sum():item()
    return x + 1, ("%.3f"):format(loss), "loss " .. loss, tostring(loss)
  end, x)
end)

test("what was before the first op is Lua's", function()
  local _, broken = compare(function(x, n) return n:item() > 2 and x * 2 or x * 3 end, x, lt.tensor(3))
  equal(broken, 1)
end)

test("the largest of numbers that were read and others", function()
  one_graph(function(x)
    local s = (x * 2):sum():item()
    return math.max(1, 2, s), math.min(0, -1, s), math.max(s, 1, 2), math.max(2, s, 1)
  end, x)
end)

test("the steps of a loop that reads numbers share their code", function()
  local function steps(x, n)
    local total, list = 0, {}
    for i = 1, n do
      x = (x * 0.9):tanh()
      total = total + x:sum():item()
      if i % 10 == 0 then list[#list + 1] = x:mean():item() end
    end
    return total, x, #list, list[#list]
  end
  compare(steps, x, 100)
  lt.reset()
  lt.compile(steps)(x, 100)
  truthy(lt.counters().frames.total <= 8, lt.counters().frames.total)
  one_graph(function(x)
    local y = x
    for _ = 1, 5 do y = (y * 0.9):tanh() end
    return y / y:sum():item()
  end, x)
end)

test("a loop that needs numbers read before it is a break", function()
  local function f(x)
    local y, sum = x * 2, 0
    local list = x:totable()
    for i = 1, #list do if list[i] > 2 then sum = sum + list[i] end end
    return y * sum
  end
  local x = lt.arange(6):double()
  local report = lt.explain(f)(x)
  equal(#report.break_reasons, 1)
  equal(report.break_reasons[1].kind, "data")
  truthy(report.result[1]:equal(f(x)))
  h.raises("fullgraph=true, but the graph breaks: the value of a number that item() read is needed",
    lt.compile(f, {fullgraph = true}), x)
end)

test("a callee hands a number up", function()
  local function norm(x) return (x * x):sum():sqrt():item() end
  local function scaled(x, ...)
    local n = norm(x)
    lt.graph_break()
    return x / n, n, ...
  end
  compare(function(x)
    local y, n, m = scaled(x + 1, norm(x))
    return y * m, n + m
  end, x)
end)

h.finish()
