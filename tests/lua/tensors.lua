-- Making, reading, converting and filling tensors; attributes; autograd from Lua.
local h = require "harness"
local lt = require "lutra"
local test, equal, deep, raises, truthy, near = h.test, h.equal, h.deep, h.raises, h.truthy, h.near

test("lt.tensor", function()
  equal(lt.tensor({1, 2}).dtype, "float32")
  equal(lt.tensor({true, false}).dtype, "bool")
  equal(lt.tensor(3).dtype, "float32")
  deep(lt.tensor(3).shape, {})
  deep(lt.tensor({{1, 2}, {3, 4}}):totable(), {{1, 2}, {3, 4}})
  deep(lt.tensor({true, false}):totable(), {true, false})
  equal(lt.tensor(true):item(), true)
  deep(lt.tensor({{}, {}}).shape, {2, 0})
  deep(lt.tensor({1.7, -1.7}, {dtype = "int64"}):totable(), {1, -1})
  deep(lt.tensor({1, 2}, {dtype = "float64", requires_grad = true}).requires_grad, true)
  deep(lt.tensor({data = {1, 2}, dtype = "int32"}):totable(), {1, 2})
  local t = lt.tensor({1, 2})
  truthy(not rawequal(lt.tensor(t), t))
  raises("tensor: data[2] is a list of 1 where its neighbours are a list of 2", lt.tensor, {{1, 2}, {3}})
  raises("tensor: data[2] is number 3 where its neighbours are a list of 2", lt.tensor, {{1, 2}, 3})
  raises("tensor: data[1][2] must be a number, a boolean or a list of them, got string 'a'", lt.tensor, {{1, "a"}})
  raises("tensor: unknown keyword 'grad' (known: dtype, device, requires_grad)", lt.tensor, {1}, {grad = true})
  raises("tensor: argument 'data' is missing", lt.tensor)
end)

test("arrays of the ffi library", function()
  local ffi = require "ffi"
  local x = lt.tensor(ffi.new("double[?]", 3, {1, 2.5, 3}))
  equal(x.dtype, "float64") deep(x:totable(), {1, 2.5, 3})
  x = lt.tensor(ffi.new("float[2][3]", {{1, 2, 3}, {4, 5, 6}}))
  equal(x.dtype, "float32") deep(x:totable(), {{1, 2, 3}, {4, 5, 6}})
  equal(lt.tensor(ffi.new("uint8_t[2]")).dtype, "uint8") equal(lt.tensor(ffi.new("int8_t[2]")).dtype, "int8")
  equal(lt.tensor(ffi.new("int64_t[2]")).dtype, "int64") equal(lt.tensor(ffi.new("bool[2]")).dtype, "bool")
  deep(lt.tensor(ffi.new("int[2]", {1, 2}), {dtype = "float32"}):totable(), {1, 2})
  deep(lt.tensor(ffi.new("short[?]", 0)).shape, {0})
  raises("must be a number, a boolean or a list of them, got a cdata", lt.tensor, ffi.new("struct { int x; }"))
  raises("got a cdata", lt.tensor, ffi.new("int *[2]"))
end)

test("creation", function()
  deep(lt.ones(2, 2):totable(), {{1, 1}, {1, 1}})
  deep(lt.eye(2, 3):totable(), {{1, 0, 0}, {0, 1, 0}})
  deep(lt.arange(1, 10, 4):totable(), {1, 5, 9})
  equal(lt.arange(3).dtype, "int64")
  equal(lt.arange(0, 1, 0.25).dtype, "float32")
  deep(lt.linspace(0, 1, 5):totable(), {0, 0.25, 0.5, 0.75, 1})
  deep(lt.full({2}, 7, {dtype = "int64"}):totable(), {7, 7})
  deep(lt.ones_like(lt.arange(2)):totable(), {1, 1})
  equal(lt.ones_like(lt.arange(2)).dtype, "int64")
  deep(lt.zeros(2):new_full({3}, 2):totable(), {2, 2, 2})
  deep(lt.empty(2, 3).shape, {2, 3})
  equal(lt.rand(3, {requires_grad = true}).requires_grad, true)
  equal(lt.randint(0, 10, {5}).dtype, "int64")
  raises("zeros: sizes must not be negative, got {-1}", lt.zeros, -1)
  raises("device 'cuda:99' is not available", lt.zeros, 2, {device = "cuda:99"})
  local loop = {}
  loop[1] = loop
  raises("nested more than 64 levels deep", lt.tensor, loop)
  raises("requires_grad: only tensors of floating point dtype", lt.zeros, {2}, {dtype = "int64", requires_grad = true})
end)

test("random numbers follow the seed", function()
  lt.manual_seed(7)
  local a, b, p = lt.rand(4), lt.randn(4), lt.randperm(10)
  lt.manual_seed(7)
  truthy(a:equal(lt.rand(4))) truthy(b:equal(lt.randn(4))) truthy(p:equal(lt.randperm(10)))
  truthy(not a:equal(lt.rand(4)))
  local g, same = lt.Generator(3), lt.Generator():manual_seed(3)
  local first = lt.randperm(50, {generator = g})
  truthy(first:equal(lt.randperm(50, {generator = same})))
  truthy(not first:equal(lt.randperm(50, {generator = g})))
  raises("argument 'generator' must be made by lt.Generator", lt.randperm, 3, {generator = 1})
  local seen = {}
  for _, v in ipairs(lt.randperm(100):totable()) do seen[v] = true end
  for i = 0, 99 do truthy(seen[i]) end
  local t = lt.empty(1000):uniform_(2, 3)
  truthy(t:min():item() >= 2) truthy(t:max():item() <= 3)
  near(lt.empty(1000):normal_(5, 0.1):mean():item(), 5, 0.05)
end)

test("queries", function()
  local x = lt.zeros(2, 3)
  equal(x:dim(), 2) equal(x.ndim, 2) equal(x:numel(), 6) equal(x:is_contiguous(), true)
  equal(x:t():is_contiguous(), false) equal(x:element_size(), 4)
  equal(x.device, "cpu") equal(x.is_leaf, true) equal(x.grad, nil) equal(x.grad_fn, nil)
  truthy(not rawequal(x.shape, x.shape))
  deep(x.T.shape, {3, 2})
  equal(type(x:data_ptr()), "number")
  equal(lt.is_tensor(x), true) equal(lt.is_tensor(1), false)
  raises("item: expects a tensor of one element, got shape {2, 3}", x.item, x)
end)

test("views, splits and joins", function()
  local x = lt.arange(6):view(2, 3)
  deep(x:narrow(1, 1, 2):totable(), {{1, 2}, {4, 5}})
  deep(x:t():totable(), {{0, 3}, {1, 4}, {2, 5}})
  deep(lt.cat({x, x:neg()}, 0):totable(), {{0, 1, 2}, {3, 4, 5}, {0, -1, -2}, {-3, -4, -5}})
  deep(lt.stack({x[0], x[1]}, 1):totable(), {{0, 3}, {1, 4}, {2, 5}})
  deep(lt.arange(2):tile(2, 2):totable(), {{0, 1, 0, 1}, {0, 1, 0, 1}})
  deep(x:ravel():totable(), {0, 1, 2, 3, 4, 5})
  deep(x:movedim(0, 1).shape, {3, 2})
  deep(lt.arange(7):chunk(3)[3]:totable(), {6})
  raises("do not add up to 3", x.split, x, {1, 1}, 1)
end)

test("filling in place", function()
  local x = lt.zeros(3)
  truthy(rawequal(x:fill_(2), x))
  deep(x:totable(), {2, 2, 2})
  deep(x:zero_():totable(), {0, 0, 0})
  deep(x:copy_(lt.arange(3)):totable(), {0, 1, 2})
  deep(x:add_(1):mul_(2):totable(), {2, 4, 6})
  equal(x._version > 0, true)
end)

test("free", function()
  local x = lt.zeros(1000)
  x:free()
  raises("freed", x.sum, x)
  x:free()
end)

test("backward, grad and hooks", function()
  local w = lt.tensor({1, 2, 3}, {requires_grad = true})
  local loss = (w * w):sum()
  truthy(loss.grad_fn ~= nil)
  equal(loss.is_leaf, false)
  loss:backward()
  deep(w.grad:totable(), {2, 4, 6})
  truthy(rawequal(w.grad, w.grad))
  w.grad = nil
  equal(w.grad, nil)
  w.grad = lt.ones(3)
  deep(w.grad:totable(), {1, 1, 1})
  raises("grad: has shape {2}, the tensor {3}", function() w.grad = lt.ones(2) end)
  raises("grad: must be a Tensor or nil", function() w.grad = 1 end)
  w.grad = nil
  local v = lt.ones(3, {requires_grad = true})
  local gw, gv, none = lt.grad((w * v):sum(), {w, v, lt.ones(1, {requires_grad = true})}, {allow_unused = true})
  deep(gw:totable(), {1, 1, 1}) deep(gv:totable(), {1, 2, 3}) equal(none, nil)
  deep(lt.grad((w * w):sum(), w):totable(), {2, 4, 6})
  local seen
  local y = w * 1
  local handle = y:register_hook(function(g) seen = g:totable() return g * 10 end)
  y:sum():backward()
  deep(seen, {1, 1, 1}) deep(w.grad:totable(), {10, 10, 10})
  handle.remove()
  local z = w * 2
  z:retain_grad()
  z:sum():backward()
  deep(z.grad:totable(), {1, 1, 1})
  raises("oops", function()
    local q = w * 1
    q:register_hook(function() error("oops") end)
    q:sum():backward()
  end)
end)

test("grad mode", function()
  local w = lt.ones(2, {requires_grad = true})
  equal(lt.is_grad_enabled(), true)
  local y, n = lt.no_grad(function(a, b) return a * 2, b end, w, 5)
  equal(y.requires_grad, false) equal(n, 5) equal(lt.is_grad_enabled(), true)
  raises("inside", lt.no_grad, function() error("inside") end)
  equal(lt.is_grad_enabled(), true)
  lt.set_grad_enabled(false)
  equal((w * 2).requires_grad, false)
  lt.set_grad_enabled(true)
  local co = coroutine.wrap(function() return lt.no_grad(function() return coroutine.yield(1) end) end)
  equal(co(), 1)
  co()
  equal(lt.is_grad_enabled(), true)
  raises("only change it on leaves", function() local q = w * 2 q.requires_grad = false end)
end)

test("a Tensor is always the same userdata", function()
  local list = {}
  local w = lt.ones(2, {requires_grad = true})
  list[w] = "w"
  w:sum():backward()
  list[w.grad] = "grad"
  collectgarbage() collectgarbage()
  equal(list[w], "w") equal(list[w.grad], "grad")
  local g = w.grad
  local id = tostring(g)
  g = nil
  list = {}
  collectgarbage() collectgarbage()
  equal(tostring(w.grad), id)
  deep(w.grad:totable(), {1, 1})
end)

test("resurrected userdata hold no tensor", function()
  -- A proxy's finalizer sees the tensor after the tensor's own.
  local saved
  do
    local proxy = newproxy(true)
    local t = lt.ones(2)
    getmetatable(proxy).__gc = function() saved = t end
    proxy, t = nil, nil
  end
  collectgarbage() collectgarbage()
  if saved then
    local ok = pcall(function() return saved:sum() end)
    truthy(ok or not ok) -- never a crash
  end
end)

test("norms, variance, products", function()
  local x = lt.tensor({{1, 2}, {3, 4}})
  near(x:norm():item(), math.sqrt(30), 1e-5)
  near(x:var():item(), 5 / 3, 1e-6)
  near(x:std(0)[0]:item(), math.sqrt(2), 1e-6)
  deep(lt.addmm(lt.ones(2, 2), x, x):totable(), {{8, 11}, {16, 23}})
  equal(lt.dot(lt.tensor({1, 2}), lt.tensor({3, 4})):item(), 11)
  deep(lt.outer(lt.tensor({1, 2}), lt.tensor({3, 4})):totable(), {{3, 4}, {6, 8}})
  deep(lt.tensor({1, lt.inf, lt.nan}):isfinite():totable(), {true, false, false})
end)

h.finish()
