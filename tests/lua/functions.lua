-- lt.autograd.Function, x.data, deepcopy, isinstance, the state of random numbers, dtypes of results; amp.GradScaler.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises, deep = h.test, h.equal, h.truthy, h.raises, h.deep
local nn, optim, Function = lt.nn, lt.optim, lt.autograd.Function

local function leaf(...) return lt.tensor({...}, {dtype = "float64", requires_grad = true}) end

local Exp = Function:extend "Exp"
function Exp.forward(ctx, x)
  local y = x:exp()
  ctx:save_for_backward(y)
  return y
end
function Exp.backward(ctx, gradient)
  local y = unpack(ctx.saved_tensors)
  return gradient * y
end

test("a function's gradient is its backward's, twice too, in compiled code too", function()
  local x = leaf(1, 2)
  local y = Exp.apply(x)
  truthy(y:equal(x:exp()) and y.requires_grad)
  equal(y.grad_fn, "<ExpBackward>")
  y:sum():backward()
  truthy(x.grad:equal(x:exp()))
  raises("a second time", function() y:sum():backward() end)
  local first = lt.grad(Exp:apply(x):sum(), x, {create_graph = true})
  truthy(lt.grad(first:sum(), x):equal(x:exp()), "through a result that was saved")
  for _, make in ipairs {
    function() return lt.compile(function() Exp(x * 2):sum():backward() end) end,
    function()
      local f = lt.compile(function() return Exp(x * 2):sum() end)
      return function() f():backward() end
    end,
  } do
    local step = make()
    for _ = 1, 3 do
      x.grad = nil
      step()
      truthy(x.grad:equal((x * 2):exp() * 2))
    end
  end
end)

-- f(x) leaves its gradient in x.grad: the same compiled, in so many graphs.
local function graphs(wanted, breaks, f)
  local x = leaf(1, 2, 3)
  f(x)
  local gradient = x.grad
  lt.reset()
  local compiled = lt.compile(f)
  for _ = 1, 3 do
    x.grad = nil
    compiled(x)
    truthy(x.grad:equal(gradient), "compiled")
  end
  equal(h.breaks() > 0, breaks, "breaks")
  equal(lt.counters().stats.unique_graphs, wanted, "graphs")
end

test("a function and its backward in one compiled function are one graph", function()
  local Round = Function:extend "Round"
  function Round.forward(_, x) return x:round() end
  function Round.backward(_, gradient) return gradient * 3 end
  graphs(1, false, function(x) Exp(x * 2):sum():backward() end)
  graphs(1, false, function(x)
    local loss = (Exp(x * 2) + Exp.apply(x)):sum()
    loss:backward()
    return loss
  end)
  graphs(1, false, function(x)
    local loss = (Round(x) + Round(x * 2)):square():sum()
    loss:backward()
    return loss
  end)
  graphs(1, false, function(x) lt.grad(Exp(x):sum(), x, {create_graph = true}):sum():backward() end)
  graphs(1, false, function(x)
    for _ = 1, 3 do Exp(x):sum():backward() end
  end)
end)

test("what backward reads, and what goes on after the segment, breaks the graph", function()
  local Reads = Function:extend "Reads"
  function Reads.forward(ctx, x)
    ctx:save_for_backward(x)
    return x * 2
  end
  function Reads.backward(_, gradient) return gradient * gradient:sum():totable() end
  graphs(2, true, function(x) Reads(x * 2):sum():backward() end)
  local Asks = Function:extend "Asks"
  function Asks.forward(ctx, x)
    ctx.sum = x:sum():totable()
    return x * 2
  end
  function Asks.backward(ctx, gradient) return gradient * ctx.sum end
  graphs(3, true, function(x) Asks(x * 2):sum():backward() end)
  -- Such a function saves nothing to release, so a second backward of the loss is valid.
  local Plain = Function:extend "Plain"
  function Plain.forward(_, x) return x * 2 end
  function Plain.backward(_, gradient) return gradient * 7 end
  local x = leaf(1, 2)
  local step = lt.compile(function()
    local loss = Plain(x):sum()
    loss:backward()
    return loss
  end)
  step():backward()
  deep(x.grad:tolist(), {14, 14})
end)

local Mix = Function:extend "Mix"
function Mix.forward(ctx, x, scale, y)
  deep(ctx.needs_input_grad, {x.requires_grad, false, y.requires_grad})
  equal(lt.is_grad_enabled(), false)
  ctx.scale = scale
  ctx:save_for_backward(x, nil, y)
  return x * scale + y, x * y
end
function Mix.backward(ctx, a, b)
  local x, none, y = unpack(ctx.saved_tensors, 1, 3)
  equal(none, nil)
  return a * ctx.scale + b * y, nil, a + b * x
end

test("several arguments and results; what is not used has zeros as its gradient", function()
  local x, y = leaf(1, 2), leaf(3, 4)
  local a, b = Mix.apply(x, 5, y);
  (a:sum() + b:sum()):backward()
  deep(x.grad:tolist(), {8, 9})
  deep(y.grad:tolist(), {2, 3})
  x.grad, y.grad = nil, nil
  a = Mix.apply(x, 5, y)
  a:sum():backward()
  deep(x.grad:tolist(), {5, 5})
  local constant = lt.ones(2, {dtype = "float64"})
  x.grad = nil
  Mix.apply(x, 2, constant):sum():backward()
  deep(x.grad:tolist(), {2, 2})
  local _, plain = lt.no_grad(Mix.apply, constant, 2, constant)
  equal(plain.requires_grad, false)
end)

test("results that are not differentiable, inputs that come out, gradients that are left out", function()
  local Sort = Function:extend "Sort"
  function Sort.forward(ctx, x)
    local values, places = x:sort()
    local flags = values * 0
    ctx:mark_non_differentiable(flags)
    ctx:set_materialize_grads(false)
    ctx:save_for_backward(places)
    return values, places, flags
  end
  function Sort.backward(ctx, gradient, none)
    equal(none, nil)
    return gradient:gather(0, unpack(ctx.saved_tensors):argsort())
  end
  local x = leaf(3, 1, 2)
  local values, places, flags = Sort(x)
  equal(places.requires_grad, false)
  equal(flags.requires_grad, false);
  (values * lt.tensor({1, 10, 100})):sum():backward()
  deep(x.grad:tolist(), {100, 1, 10})
  local Same = Function:extend "Same"
  function Same.forward(_, t) return t end
  function Same.backward(_, gradient) return gradient * 7 end
  x.grad = nil
  Same(x):sum():backward()
  deep(x.grad:tolist(), {7, 7, 7})
end)

test("setup_context, broadcast gradients, gradients of another dtype", function()
  local Add = Function:extend "Add"
  function Add.forward(x, y) return x + y end
  function Add.setup_context(ctx, inputs, output) ctx.seen = {#inputs, output:dim()} end
  function Add.backward(ctx, gradient)
    deep(ctx.seen, {2, 2})
    return gradient:float(), gradient
  end
  local x, y = leaf(1, 2, 3), leaf(1)
  Add(x:view(1, 3), y):sum():backward()
  deep(x.grad:tolist(), {1, 1, 1})
  equal(x.grad.dtype, "float64")
  deep(y.grad:tolist(), {3})
end)

test("what is wrong with a function is told", function()
  local Bad = Function:extend "Bad"
  raises("Bad: forward is not defined", Bad.apply, leaf(1))
  function Bad.forward(_, x) return x * 2 end
  raises("Bad: backward is not defined", Bad.apply, leaf(1))
  function Bad.backward() return lt.ones(3), lt.ones(1) end
  raises("more gradients than forward has arguments, 1", function() Bad(leaf(1)):sum():backward() end)
  function Bad.backward() return lt.ones(3) end
  raises("Bad.backward: gradient 1 has size {3}, its input {2}", function() Bad(leaf(1, 2)):sum():backward() end)
  function Bad.backward() return 4 end
  raises("'gradient 1' must be a Tensor, got number 4", function() Bad(leaf(1, 2)):sum():backward() end)
  local y = Exp(leaf(1, 2))
  y:mul_(2)
  raises("modified by an inplace operation", function() y:sum():backward() end)
end)

test("functions that nobody differentiates are collected", function()
  local alive = setmetatable({}, {__mode = "k"})
  local Kept = Function:extend "Kept"
  function Kept.forward(ctx, x)
    alive[ctx] = true
    local y = x * 2
    ctx:save_for_backward(y, x)
    return y
  end
  function Kept.backward(_, gradient) return gradient end
  for _ = 1, 3 do Kept(leaf(1)) end
  for _ = 1, 4 do collectgarbage() end
  equal(next(alive), nil)
end)

-- Tensors and random numbers ------------------------------------------------------------------------------------------

test("x.data shares memory, has no history, and can be replaced", function()
  local p = nn.Parameter(lt.ones(2))
  p.data:add_(1)
  deep(p:tolist(), {2, 2})
  equal(p.data.requires_grad, false)
  p.data = lt.zeros(3)
  deep(p:tolist(), {0, 0, 0})
  truthy(p.requires_grad and nn.is_parameter(p))
  raises("data: must be a Tensor, got number 3", function() p.data = 3 end)
  raises("data: a tensor that requires grad cannot be int64", function() p.data = lt.arange(3) end)
  raises("data: the tensor is a view or the result of an op", function() (p * 2).data = lt.ones(3) end)
  local f = lt.compile(function(value)
    p.data = value * 2
    return p.data + 1
  end)
  for i = 1, 2 do
    deep(f(lt.full({2}, i)):tolist(), {2 * i + 1, 2 * i + 1})
    deep(p:tolist(), {2 * i, 2 * i})
  end
end)

-- The rule is at ElementsMark (ops/core/tensor.h).
test("x.data = y is no write: what graphs saved of x and y stays valid", function()
  local function loss_of(w, y) return (w * y):sum() end
  for _, f in ipairs {loss_of, lt.compile(loss_of)} do
    for _, take in ipairs {function(x, y) x.data = y end, function(x, y) x:set_(y) end} do
      local w, x, y = leaf(1, 2), lt.zeros(2):double(), leaf(3, 4):detach()
      local saved_y, saved_x = f(w, y), f(w, x)
      take(x, y)
      saved_y:backward()
      deep(w.grad:tolist(), {3, 4})
      w.grad = nil
      saved_x:backward()
      deep(w.grad:tolist(), {0, 0})
      for _, written in ipairs {x, y} do
        local late = f(w, y)
        written:add_(1)
        raises("modified by an inplace operation", late.backward, late)
      end
    end
    local p, w = nn.Parameter(leaf(5, 6):detach()), leaf(1, 2)
    local saved_p = f(w, p)
    p.data = leaf(7, 8):detach()
    saved_p:backward()
    deep({w.grad:tolist(), p.grad:tolist()}, {{5, 6}, {1, 2}})
  end
end)

test("x.data = y is seen by who keeps casts of x", function()
  local y = lt.tensor {{1, 0}, {0, 1}, {2, 0}}
  for _, change in ipairs {
    function(x) x.data = y["1:"] end,
    function(x) x.data = lt.tensor {{0, 1}, {2, 0}} end,
    function(x) x:requires_grad_(false):set_(y["1:"]):requires_grad_() end,
    function(x) x:requires_grad_(false):set_(y, 2, {2, 2}, {2, 1}):requires_grad_() end,
  } do
    local x = lt.zeros(2, 2):requires_grad_()
    x.data = y[":2"]
    lt.autocast("cpu", function()
      deep(x:mm(x):tolist(), {{1, 0}, {0, 1}})
      change(x)
      deep(lt.eye(2):mm(x):tolist(), {{0, 1}, {2, 0}})
    end)
  end
end)

test("the state of random numbers comes back", function()
  lt.manual_seed(4)
  lt.rand(3)
  local state = lt.get_rng_state()
  equal(state.dtype, "uint8")
  local a = lt.rand(5)
  lt.set_rng_state(state)
  truthy(lt.rand(5):equal(a))
  raises("set_rng_state: argument 'new_state' must be a Tensor", lt.set_rng_state, 3)
  raises("16 bytes", lt.set_rng_state, lt.ones(16))
end)

test("dtypes of results", function()
  local int, half, double = lt.ones(2):int(), lt.ones(2):half(), lt.ones({}):double()
  equal(lt.result_type(int, 2), "int32")
  equal(lt.result_type(int, 2.5), "float32")
  equal(lt.result_type(half, double), "float16")
  equal(lt.result_type(double, int), "float64")
  equal(lt.promote_types("int8", "uint8"), "int16")
  equal(lt.promote_types("float16", "bfloat16"), "float32")
  raises("promote_types: argument 'type2' must be a dtype", lt.promote_types, "int8", 3)
end)

-- Copies --------------------------------------------------------------------------------------------------------------

test("a deep copy shares nothing, and keeps what is shared within it", function()
  local net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
  net[1].tied = net[1].weight
  net[1].weight:requires_grad_(false)
  net(lt.randn(3, 2)):sum():backward()
  local copy = lt.deepcopy(net)
  local theirs = net:state_dict()
  for name, value in pairs(copy:state_dict()) do
    truthy(value:equal(theirs[name]) and value:data_ptr() ~= theirs[name]:data_ptr(), name)
  end
  truthy(copy[1].tied == copy[1].weight and not copy[1].weight.requires_grad)
  truthy(copy[1].bias.grad:equal(net[1].bias.grad) and copy[1].bias.grad ~= net[1].bias.grad)
  copy[1].bias.grad:zero_()
  truthy(net[1].bias.grad:abs():sum():item() > 0)
  equal(getmetatable(copy), nn.Sequential)
  truthy(lt.deepcopy(lt.compile(net)):len() == 2)
  local opt = optim.Adam(net:parameters(), {lr = 0.5})
  local other = lt.deepcopy(opt)
  equal(other.param_groups[1].lr, 0.5)
  truthy(other.state[other.param_groups[1].params[1]].exp_avg ~= nil)
  raises("has a history", lt.deepcopy, {net[1].bias * 2})
  local list = lt.deepcopy({1, {lt.ones(2)}, nn.Linear})
  truthy(list[3] == nn.Linear and list[2][1]:equal(lt.ones(2)))
end)

test("check and check_is_size", function()
  local function f(x, n)
    lt.check(n % 2 == 0, function() return ("n is even, not %d"):format(n) end)
    lt.check_is_size(n, {min = 2, max = 8})
    return x:sum() / n
  end
  for _, g in ipairs {f, lt.compile(f, {fullgraph = true}), lt.compile(f)} do
    for n = 2, 8, 2 do h.near(g(lt.ones(4), n):item(), 4 / n, 1e-6) end
    raises("functions.lua:338: n is even, not 3", g, lt.ones(4), 3)
    raises("functions.lua:339: check_is_size: argument 'n' must be a whole number >= 2, got number 0", g, lt.ones(4), 0)
    raises("check_is_size: argument 'n' must be a whole number <= 8, got number 10", g, lt.ones(4), 10)
  end
  raises("check: the condition does not hold", lt.check, false)
  raises("check: argument 'condition' must be a boolean, got a Tensor", lt.check, lt.ones(1):gt(0))
  raises("check: argument 'message' must be a string, got number 3", lt.check, false, 3)
  lt.check_is_size(3LL)
  raises("check_is_size: argument 'n' must be a whole number >= 0, got number -1", lt.check_is_size, -1)
  raises("check_is_size: unknown option 'most' (known: max, min)", lt.check_is_size, 1, {most = 2})
end)

test("isinstance", function()
  local net, Mine = nn.Sequential(nn.Linear(1, 1)), nn.Linear:extend "Mine"
  truthy(lt.isinstance(net, nn.Sequential) and lt.isinstance(net, nn.Module) and not lt.isinstance(net, nn.Linear))
  truthy(lt.isinstance(Mine(1, 1), nn.Linear) and lt.isinstance(net, {nn.Linear, nn.Sequential}))
  truthy(lt.isinstance(lt.compile(net), nn.Sequential))
  local opt = optim.Adam(net:parameters())
  truthy(lt.isinstance(opt, optim.Optimizer) and lt.isinstance(opt, optim.Adam) and not lt.isinstance(opt, optim.SGD))
  truthy(not lt.isinstance(3, nn.Module) and not lt.isinstance(lt.ones(1), nn.Module))
  raises("isinstance: argument 'class' must be a class or a list of classes, got number 3", lt.isinstance, net, 3)
  local f = lt.compile(function(m, x) return lt.isinstance(m, nn.Linear) and x * 2 or x end, {fullgraph = true})
  equal(f(net[1], lt.tensor(2)):item(), 4)
  equal(f(net, lt.tensor(2)):item(), 2)
end)

-- amp -----------------------------------------------------------------------------------------------------------------

test("GradScaler: a loss of a half type does not overflow", function()
  local scaled = lt.amp.GradScaler {device = "cpu"}:scale(lt.tensor(2, {dtype = "float16"}))
  equal(scaled.dtype, "float32") equal(scaled:item(), 131072)
end)

test("a Function gives back what it may: results that are inputs are no free copies", function()
  local Same = lt.autograd.Function:extend("Same")
  function Same.forward(_, x) return x end
  function Same.backward(_, g) return g end
  local Thrice = lt.autograd.Function:extend("Thrice")
  function Thrice.forward(ctx, x)
    x:mul_(3)
    ctx:mark_dirty(x)
    return x
  end
  function Thrice.backward(_, g) return g * 3 end
  for _, run in ipairs {function(f) return f end, lt.compile} do
    local x = lt.ones(2, {requires_grad = true})
    local f = run(function(t)
      local a = t * 1
      local b = Same.apply(a)
      b:mul_(5)
      return (a + b):sum()
    end)
    raises("modified in place", f, x)
    local g = run(function(t) return Thrice.apply((t * 1):narrow(0, 0, 1)) end)
    raises("forward has written a view", g, x)
    raises("a leaf that requires grad", run(function(t) return Thrice.apply(t) end), x)
    equal(lt.grad(run(function(t) return Thrice.apply(t * 2):sum() end)(lt.ones(2, {requires_grad = true}) * x),
      x):sum():item(), 12)
  end
end)

test("deepcopy: a copied optimiser takes groups", function()
  local p, q = lt.ones(2, {requires_grad = true}), lt.ones(3, {requires_grad = true})
  for name, class in pairs(lt._native.lazy.all(lt.optim)) do
    local ok, optimizer = pcall(class, {p}, {lr = 0.1})
    if ok and lt.isinstance(optimizer, lt.optim.Optimizer) and name ~= "LBFGS" then
      local copy = lt.deepcopy(optimizer)
      copy:add_param_group {params = {q}}
      equal(#copy.param_groups, 2)
    end
  end
end)

test("the state of random numbers is refused once it is freed", function()
  local state = lt.get_rng_state()
  state:free()
  raises("was freed", lt.set_rng_state, state)
end)

test("GradScaler: the scale grows, falls, and steps that overflow are left out", function()
  for _, make in ipairs {function(f) return f end, lt.compile} do
    local p = nn.Parameter(lt.ones(2))
    local opt = optim.SGD({p}, {lr = 0.125})
    local scaler = lt.amp.GradScaler("cpu", {init_scale = 8, growth_interval = 2})
    local step = make(function(k)
      opt:zero_grad()
      scaler:scale((p * k):sum()):backward()
      scaler:step(opt)
      scaler:update()
    end)
    local wanted = {{1, 0.875, 8}, {1, 0.75, 16}, {math.huge, 0.75, 8}, {1, 0.625, 8}, {1, 0.5, 16}}
    for _, row in ipairs(wanted) do
      step(row[1])
      equal(p:detach()[0]:item(), row[2])
      equal(scaler:get_scale(), row[3])
    end
    local other = lt.amp.GradScaler("cpu")
    other:load_state_dict(scaler:state_dict())
    deep(other:state_dict(),
      {scale = 16, growth_factor = 2, backoff_factor = 0.5, growth_interval = 2, _growth_tracker = 0})
  end
end)

test("GradScaler: unscale_, and the order of calls", function()
  local p = nn.Parameter(lt.ones(2))
  local opt, scaler = optim.SGD({p}, {lr = 1}), lt.amp.GradScaler {device = "cpu", init_scale = 4}
  raises("GradScaler.step: scale() has not been called", scaler.step, scaler, opt)
  local scaled = scaler:scale({lt.tensor(1), {lt.tensor(2)}})
  equal(scaled[2][1]:item(), 8)
  raises("no gradients were checked", scaler.update, scaler)
  scaler:scale(p:sum()):backward()
  scaler:unscale_(opt)
  deep(p.grad:tolist(), {1, 1})
  raises("already since the last update()", scaler.unscale_, scaler, opt)
  scaler:step(opt)
  raises("already since the last update()", scaler.step, scaler, opt)
  raises("it is called after step()", scaler.unscale_, scaler, opt)
  scaler:update(32)
  equal(scaler:get_scale(), 32)
  raises("growth_factor must be > 1", lt.amp.GradScaler, "cpu", {growth_factor = 1})
  raises("the state is empty", scaler.load_state_dict, scaler, {})
  local off = lt.amp.GradScaler("cpu", {enabled = false})
  equal(off:scale(3), 3)
  equal(off:get_scale(), 1)
  local low = nn.Parameter(lt.ones(2):half())
  scaler:scale(low:sum()):backward()
  raises("a gradient is float16", scaler.step, scaler, optim.SGD({low}, {lr = 1}))
end)

h.finish()
