-- Tests what changes sizes in place: out=, resize_, set_, and views that a tensor itself becomes; numbers that are
-- tensors.
local lt = require "lutra"
local h = require "harness"
local test, equal, deep, truthy = h.test, h.equal, h.deep, h.truthy

local function raises(message, f, ...)
  local ok, got = pcall(f, ...)
  truthy(not ok and tostring(got):find(message, 1, true), "'" .. tostring(got) .. "' says '" .. message .. "'; it")
end

test("out= takes the result's sizes", function()
  local x, out = lt.tensor{{1, 2}, {3, 4}}, lt.zeros(5)
  local function f(o) return lt.add(x, 1, {out = o}) end
  equal(f(out), out)
  deep(out:totable(), {{2, 3}, {4, 5}})
  out = lt.zeros(5)
  lt.compile(f)(out)
  deep(out:totable(), {{2, 3}, {4, 5}})
end)

test("out= of another dtype", function()
  local x = lt.tensor{1.5, 2}
  deep(lt.mul(x, 2, {out = lt.zeros(2, {dtype = "float64"})}):totable(), {3, 4})
  raises("abs: the result of dtype float32 cannot be written to out= of dtype float64", lt.abs, x,
    {out = lt.zeros(2, {dtype = "float64"})})
  raises("mul: the result of dtype float32 cannot be written", lt.mul, x, 2, {out = lt.zeros(2, {dtype = "int64"})})
  equal(lt.sum(lt.tensor({100, 100}, {dtype = "uint8"}), {out = lt.zeros({}, {dtype = "uint8"})}):item(), 200)
  equal(lt.arange(3, {out = lt.zeros(1, {dtype = "int16"})}).dtype, "int16")
end)

test("out= that shares memory with an argument", function()
  local x = lt.arange(6):float()
  raises("add: out= and an argument share some memory", lt.add, x:narrow(0, 0, 5), 1, {out = x:narrow(0, 1, 5)})
  deep(lt.add(x, 1, {out = x}):totable(), {1, 2, 3, 4, 5, 6})
end)

test("a tensor of no dimensions stands for a number", function()
  local x, one = lt.arange(6), lt.tensor(1, {dtype = "int64"})
  local function f(t, n) return t:narrow(0, n, lt.tensor(2, {dtype = "int64"})) end
  deep(f(x, one):totable(), {1, 2})
  deep(lt.compile(f)(x, one):totable(), {1, 2})
  deep(lt.linspace(lt.tensor(0), lt.tensor(1), 3):totable(), {0, 0.5, 1})
  equal(lt.max(x, lt.tensor(3, {dtype = "int64"})):dim(), 1)
  deep(lt.zeros(one, 2).shape, {1, 2})
  raises("narrow: argument 'start' must be an integer", f, x, lt.tensor(1.0))
end)

test("resize_ keeps elements and memory", function()
  local x = lt.arange(6)
  local view = x:narrow(0, 0, 2)
  x:resize_(2, 2)
  deep(x:totable(), {{0, 1}, {2, 3}})
  x:resize_(3, 4)
  equal(x:numel(), 12)
  x:fill_(7)
  deep(view:totable(), {7, 7})
  raises("resize_: a tensor that requires grad", function() lt.ones(2, {requires_grad = true}):resize_(3) end)
  deep({lt.zeros(1):resize_({2, 3, 4, 5}, {memory_format = "channels_last"}):stride()}, {60, 1, 15, 3})
end)

test("set_ shares the other's memory", function()
  local x, y = lt.zeros(2), lt.arange(6):float()
  x:set_(y)
  y:add_(1)
  deep(x:totable(), {1, 2, 3, 4, 5, 6})
  deep(x:set_(y, 1, {2, 2}, {1, 2}):totable(), {{2, 4}, {3, 5}})
  equal(x:set_():numel(), 0)
end)

test("set_ that raises leaves the tensor as it was", function()
  local x, y = lt.ones(1000), lt.zeros(2)
  raises("negative size -1", x.set_, x, y, 0, {-1})
  raises("negative stride -1000", x.set_, x, y, 0, {1000}, {-1000})
  raises("negative stride -2", x.set_, x, y, 0, {0, 3}, {1, -2})
  equal(x:sum():item(), 1000)
end)

test("a view that becomes a view of itself writes to its base", function()
  local x = lt.ones(2, 2, {requires_grad = true})
  local base = x * 2
  local view = base[0]
  view:unsqueeze_(0)
  view:mul_(3)
  base:sum():backward()
  deep(x.grad:totable(), {{6, 6}, {2, 2}})
  local row = x[0]
  row:unsqueeze_(0)
  raises("a view of a leaf Variable that requires grad", row.mul_, row, 3)
end)

test("a tensor whose gradient would be lost stands for no number", function()
  local a, x = lt.tensor(2.0, {requires_grad = true}), lt.ones(2)
  raises("alpha", lt.add, x, x, {alpha = a})
  deep(lt.add(x, x, {alpha = a:detach()}):totable(), {3, 3})
end)

test("a tensor becomes a view of itself", function()
  local function f(x)
    x = x * 2
    x:unsqueeze_(0)
    x:transpose_(0, 1)
    return x
  end
  deep(f(lt.arange(2)):totable(), {{0}, {2}})
  deep(lt.compile(f)(lt.arange(2)):totable(), {{0}, {2}})
  local x = lt.ones(2, 3, {requires_grad = true})
  local y = x * 2
  y:t_()
  deep(y.shape, {3, 2})
  y:narrow(0, 0, 1):sum():backward()
  deep(x.grad:totable(), {{2, 0, 0}, {2, 0, 0}})
  raises("a leaf that requires grad", function() x:t_() end)
  deep(lt.ones(1, 2, 1):squeeze_().shape, {2})
end)

-- Tests that eager and compiled gradients of leaf x or w are those of PyTorch.
local function gradients(name, f, want, leaf)
  test(name, function()
    for _, run in ipairs{f, lt.compile(f)} do
      for _ = 1, 2 do
        local x = leaf()
        run(x)
        deep(x.grad:totable(), want)
      end
    end
  end)
end
local function grid() return lt.arange(6):float():view(2, 3):requires_grad_() end
local function ones(...) local n = {...} return function() return lt.ones(n, {requires_grad = true}) end end
local function weigh(t) return (t * (lt.arange(t:numel()):float() + 1):view(t.shape)):sum() end

gradients("a view made before t_ shows the memory it showed", function(x)
  local y = x * 2
  local v = y[0]
  y:t_()
  y:mul_(3)
  v:sum():backward()
end, {{6, 6, 6}, {0, 0, 0}}, grid)
gradients("a view made before t_ is written", function(x)
  local y = x * 2
  local v = y[0]
  y:t_()
  v:mul_(5)
  weigh(y):backward()
end, {{10, 30, 50}, {4, 8, 12}}, grid)
gradients("a view made before transpose_ of a square is written", function(x)
  local y = x * 2
  local v = y[0]
  y:transpose_(0, 1)
  v:mul_(5)
  y:sum():backward()
end, {{10, 10}, {2, 2}}, ones(2, 2))
gradients("a view that takes more elements is written", function(w)
  local b = lt.zeros(4)
  local v = b:narrow(0, 0, 2)
  v:resize_(3)
  v:add_(w)
  weigh(b):backward()
end, {1, 2, 3}, ones(3))
gradients("a view that out= gives other sizes is written", function(w)
  local b = lt.zeros(4)
  local v = b:narrow(0, 0, 2)
  lt.add(lt.ones(3), 1, {out = v})
  v:mul_(w)
  weigh(b):backward()
end, {2, 4, 6}, ones(3))
gradients("a view of what takes other sizes is written", function(w)
  local b = lt.zeros(4)
  local v = b:narrow(0, 2, 2)
  b:resize_(2, 2)
  v:add_(w)
  weigh(b):backward()
end, {3, 4}, ones(2))
gradients("a view of what becomes smaller is written", function(w)
  local b = lt.zeros(4)
  local v = b:narrow(0, 2, 2)
  b:resize_(3)
  v:add_(w)
  weigh(b):backward()
end, {3, 0}, ones(2))
gradients("a view that is transposed in no_grad is written", function(w)
  local b = lt.zeros(2, 2)
  local v = b:view(2, 2)
  lt.no_grad(function() v:t_() end)
  v[0]:add_(w)
  weigh(b):backward()
end, {1, 3}, ones(2))

test("a tensor that is transposed in place retains its gradient", function()
  local x = lt.ones(2, 3, {requires_grad = true})
  local y = x * 2
  y:retain_grad()
  y:t_()
  weigh(y):backward()
  deep(y.grad:totable(), {{1, 2}, {3, 4}, {5, 6}})
end)

test("a view is not written whose base took other memory", function()
  local w, b = lt.ones(2, {requires_grad = true}), lt.zeros(4)
  local v = b:narrow(0, 2, 2)
  b:set_(lt.zeros(4))
  raises("add_: a view is being modified in place whose base took other memory (set_); clone() it", v.add_, v, w)
  raises("took other memory", lt.compile(function(t) t:add_(w) end), v)
  b:requires_grad_()
  lt.no_grad(function() v:add_(1) end)
  truthy(not (v * 2).requires_grad, "what is read of it has no history; it")
end)

h.finish()
