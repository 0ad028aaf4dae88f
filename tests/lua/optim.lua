-- Tests optim: each optimiser against its formula in Lua numbers, groups, state_dict, errors.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local optim = lt.optim

local function parameter(...) return lt.tensor({...}, {dtype = "float64", requires_grad = true}) end
local run, check = h.minimise, h.follows

test("SGD", function()
  check(optim.SGD, {lr = 0.1}, function(p, g) return p - 0.1 * g end)
  check(optim.SGD, {lr = 0.1, weight_decay = 0.2, maximize = true}, function(p, g) return p - 0.1 * (-g + 0.2 * p) end)
  for _, nesterov in ipairs {false, true} do
    check(optim.SGD, {lr = 0.1, momentum = 0.9, nesterov = nesterov}, function(p, g, s)
      s.b = s.b and 0.9 * s.b + g or g
      return p - 0.1 * (nesterov and g + 0.9 * s.b or s.b)
    end)
  end
  check(optim.SGD, {lr = 0.1, momentum = 0.9, dampening = 0.5}, function(p, g, s)
    s.b = s.b and 0.9 * s.b + 0.5 * g or g
    return p - 0.1 * s.b
  end)
end)

local function adam(lr, b1, b2, eps, decay, decoupled, amsgrad)
  return function(p, g, s, step)
    if decoupled then p = p * (1 - lr * decay) else g = g + decay * p end
    s.m = (s.m or 0) + (g - (s.m or 0)) * (1 - b1)
    s.v = (s.v or 0) * b2 + (1 - b2) * g * g
    local second = s.v
    if amsgrad then
      s.max = math.max(s.max or 0, s.v)
      second = s.max
    end
    local denominator = math.sqrt(second) / math.sqrt(1 - b2 ^ step) + eps
    return p - lr / (1 - b1 ^ step) * s.m / denominator
  end
end

test("Adam and AdamW", function()
  check(optim.Adam, {lr = 0.1}, adam(0.1, 0.9, 0.999, 1e-8, 0, false))
  check(optim.Adam, {lr = 0.1, weight_decay = 0.3, betas = {0.8, 0.99}, eps = 1e-3},
    adam(0.1, 0.8, 0.99, 1e-3, 0.3, false))
  check(optim.AdamW, {lr = 0.1}, adam(0.1, 0.9, 0.999, 1e-8, 0.01, true))
  check(optim.AdamW, {lr = 0.1, weight_decay = 0.3, amsgrad = true}, adam(0.1, 0.9, 0.999, 1e-8, 0.3, true, true))
end)

test("state: step is a Lua number, the rest tensors", function()
  local _, opt, p = run(optim.AdamW, {}, 3, {1, 2})
  equal(opt.state[p].step, 3)
  equal(type(opt.state[p].step), "number")
  equal(opt.state[p].exp_avg:numel(), 2)
  truthy(not opt.state[p].exp_avg.requires_grad)
end)

test("parameters without a gradient are left alone", function()
  local p, q = parameter(1, 2), parameter(3)
  local opt = optim.AdamW({p, q}, {lr = 0.1})
  p:sum():backward()
  opt:step()
  equal(q:detach():item(), 3)
  equal(opt.state[q].step, 0)
  truthy(p.requires_grad and p.is_leaf)
end)

test("zero_grad sets nil", function()
  local p = parameter(1, 2)
  local opt = optim.SGD({p}, {lr = 0.1})
  p:sum():backward()
  truthy(p.grad)
  opt:zero_grad()
  equal(p.grad, nil)
end)

test("groups have their own options, and take the others'", function()
  local p, q = parameter(1), parameter(1)
  local opt = optim.SGD({{params = {p}}, {params = {q}, lr = 0.5}}, {lr = 0.25});
  (p + q):sum():backward()
  opt:step()
  equal(p:detach():item(), 0.75)
  equal(q:detach():item(), 0.5)
  opt.param_groups[1].lr = 0.125
  opt:step()
  equal(p:detach():item(), 0.625)
end)

test("step takes a closure, and leaves grad mode as it was", function()
  local p = parameter(2)
  local opt = optim.SGD({p}, {lr = 0.5})
  local loss = opt:step(function()
    opt:zero_grad();
    local l = (p * p):sum()
    l:backward()
    return l
  end)
  equal(loss:item(), 4)
  equal(p:detach():item(), 0)
  truthy((p * 2).requires_grad)
end)

test("state_dict has PyTorch's layout and goes back in", function()
  local start = {0.5, -1.25}
  local whole = run(optim.AdamW, {lr = 0.1}, 6, start)
  local half, opt = run(optim.AdamW, {lr = 0.1}, 3, start)
  local saved = opt:state_dict()
  equal(saved.state[0].step, 3)
  equal(saved.param_groups[1].params[1], 0)
  equal(saved.param_groups[1].lr, 0.1)
  local p = parameter(unpack(half))
  local again = optim.AdamW({p}, {lr = 7})
  again:load_state_dict(saved)
  for _ = 1, 3 do
    again:zero_grad();
    ((p * p * p):sum() / 3):backward()
    again:step()
  end
  h.deep(p:detach():totable(), whole)
  equal(opt.state[opt.param_groups[1].params[1]].step, 3)
  raises("1 parameters, the optimiser's 2", function()
    optim.AdamW({parameter(1), parameter(2)}):load_state_dict(saved)
  end)
end)

test("a group keeps keys of the program's own", function()
  local p, q = parameter(1), parameter(2)
  local opt = optim.AdamW({{params = {p}, lr = 0.5, name = "head", lr_scale = 0.1}, {params = {q}}}, {lr = 0.1})
  equal(opt.param_groups[1].name, "head")
  equal(opt.param_groups[2].name, nil)
  for _, group in ipairs(opt.param_groups) do group.lr = group.lr * (group.lr_scale or 1) end
  equal(opt:state_dict().param_groups[1].lr_scale, 0.1)
  local other = optim.AdamW({{params = {parameter(1)}}, {params = {parameter(2)}}})
  other:load_state_dict(opt:state_dict())
  equal(other.param_groups[1].name, "head")
  opt:add_param_group {params = {parameter(3)}, kind = "late"}
  equal(opt.param_groups[3].kind, "late")
  raises("AdamW: argument 'lr' must be a number >= 0", optim.AdamW, {{params = {p}, lr = -1, name = "head"}})
end)

test("errors name what is wrong", function()
  local p = parameter(1)
  raises("not empty", optim.SGD, {}, {lr = 1})
  raises("SGD: argument 'lr' must be a number >= 0, got number -1", optim.SGD, {p}, {lr = -1})
  raises("betas are two numbers", optim.Adam, {p}, {betas = {1, 0}})
  raises("AdamW: unknown option 'lrr' (known: amsgrad, betas, capturable, differentiable, eps, foreach, fused, lr, maximize, weight_decay)", optim.AdamW, {p}, {lrr = 1})
  raises("params[1] is number 3, not a Tensor", optim.SGD, {{params = {3}}})
  raises("params[1] is not a leaf", optim.SGD, {p * 2})
  raises("appears twice", optim.SGD, {p, p})
  raises("nesterov needs", optim.SGD, {p}, {nesterov = true})
end)

test("foreach and fused compile the update of a group and change no bit", function()
  for _, name in ipairs {"SGD", "RMSprop", "Adagrad", "Adadelta", "Adam", "AdamW", "NAdam", "RAdam", "Adamax", "ASGD",
    "Rprop"} do
    local function trained(options)
      local a, b = parameter(0.5, -2, 3), parameter(1.5)
      local groups = {{params = {a}, lr = 0.01, weight_decay = name ~= "Rprop" and 0.1 or nil}, {params = {b}}}
      local opt = optim[name](groups, options)
      for step = 1, 6 do
        opt:zero_grad()
        local loss = (a * a):sum() * step
        if step ~= 3 then loss = loss + b:exp():sum() end -- once, b has no gradient
        loss:backward()
        opt:step()
        lt.wait_compiled()
      end
      return {a:tolist(), b:tolist()}, opt
    end
    collectgarbage() -- the optimisers before, and what was compiled for them
    local expected = trained {foreach = false}
    local before, graphs = lt.counters().async.ready, lt.counters().stats.unique_graphs
    local got, opt = trained {foreach = true}
    h.deep(got, expected)
    truthy(lt.counters().async.ready > before, name .. ": the update was compiled")
    equal(lt.counters().stats.unique_graphs, graphs) -- no graph of the program
    truthy(opt:state_dict().param_groups[1].foreach)
  end
end)

test("foreach is an option of each group", function()
  local function launches(of_a, of_b)
    local a, b = {}, {}
    for i = 1, 5 do a[i], b[i] = parameter(i, 1), parameter(-i, 2) end
    local opt = optim.SGD({{params = a, foreach = of_a}, {params = b, foreach = of_b}}, {lr = 0.1, momentum = 0.9})
    for step = 1, 5 do
      opt:zero_grad()
      local loss = lt.zeros(1)
      for i = 1, 5 do loss = loss + (a[i] * a[i]):sum() + (b[i] * b[i]):sum() end
      loss:backward()
      lt.wait_compiled()
      if step < 5 then opt:step() end
    end
    return tonumber(tostring(lt.profile(function() opt:step() end)()):match "(%d+) launch")
  end
  local none, one, both = launches(false, false), launches(false, true), launches(true, true)
  equal(both, 1)
  equal(one, none / 2 + 1)
end)

test("no stance or warning speaks of the update that an eager step compiles", function()
  local out = h.shell(([[%s -e '
    local ps = {}
    for i = 1, 6 do ps[i] = lt.ones(3):requires_grad_() end
    local opt = lt.optim.AdamW(ps, {lr = 0.1, foreach = true})
    lt.set_stance "fail_on_recompile"
    for step = 1, 40 do
      opt:zero_grad()
      for i, p in ipairs(ps) do
        if bit.band(step, bit.lshift(1, i - 1)) ~= 0 then (p * p):sum():backward() end
      end
      opt:step()
      lt.wait_compiled()
    end' 2>&1]]):format(h.program()))
  equal(out, "")
end)

test("options by position; those that say how a step is launched", function()
  local p = parameter(1)
  local opt = optim.Adam({p}, 0.5, {0.8, 0.9}, {eps = 1e-3})
  equal(opt.param_groups[1].lr, 0.5)
  h.deep(opt.param_groups[1].betas, {0.8, 0.9})
  equal(optim.SGD({p}, {foreach = true, fused = false}).param_groups[1].foreach, true)
  raises("Adam: fused and foreach cannot both be true", optim.Adam, {p}, {fused = true, foreach = true})
  raises("Adam: a group of parameters has keys such as params and lr, not number 1", optim.Adam, {{params = {p}, 0.5}})
  raises("Adam: differentiable = true does not exist yet", optim.Adam, {{params = {p}, differentiable = true}})
  raises("Adam: argument 'fused' must be a boolean, got string 'yes'", optim.Adam, {p}, {fused = "yes"})
  raises("etas are a number between 0 and 1, and one over 1", optim.Rprop, {p}, {etas = {1, 2}})
  raises("argument 'rho' must be a number from 0 to 1", optim.Adadelta, {p}, {rho = 2})
  raises("LBFGS: there is one group of parameters, got 2", optim.LBFGS, {{params = {p}}, {params = {parameter(2)}}})
  raises("LBFGS.step: argument 'closure' must be a function", function() optim.LBFGS({p}):step() end)
end)

test("params by name, as every argument", function()
  local p = lt.ones({1}, {requires_grad = true})
  local opt = optim.SGD{params = {p}, lr = 0.5, momentum = 0.9}
  equal(opt.param_groups[1].lr, 0.5)
  equal(opt.param_groups[1].params[1], p)
  equal(optim.Adam{params = {p}}.param_groups[1].lr, 1e-3)
  raises("SGD: unknown option 'lrr'", optim.SGD, {params = {p}, lrr = 1})
end)

test("groups have lists of their own", function()
  local one, two = optim.Adam({parameter(1)}), optim.Adam({parameter(1)})
  one.param_groups[1].betas[1] = 0.5
  equal(two.param_groups[1].betas[1], 0.9)
end)

test("optimisers of one's own", function()
  local Sign = optim.Optimizer:extend("Sign")
  function Sign:init(params, options) optim.Optimizer.init(self, params, {lr = options and options.lr or 0.5}) end
  function Sign:step()
    lt.no_grad(function()
      for _, group in ipairs(self.param_groups) do
        for _, p in ipairs(group.params) do
          local state = self.state[p]
          state.n = (state.n or 0) + 1
          p:sub_(p.grad:sign() * group.lr)
        end
      end
    end)
  end
  local p = parameter(1, 2)
  local opt = Sign({{params = {p}, lr = 0.25}})
  p:sum():backward()
  opt:step()
  h.deep(p:detach():tolist(), {0.75, 1.75})
  equal(opt:state_dict().state[0].n, 1)
  opt:zero_grad()
  equal(p.grad, nil)
  equal(tostring(opt), "Sign (\nParameter Group 0\n    lr: 0.25\n)")
  optim.lr_scheduler.StepLR(opt, 1, 0.5)
  equal(Sign({{params = {p}, rate = 1}}).param_groups[1].rate, 1)
  local Plain = optim.Optimizer:extend("Plain")
  function Plain:init(params) optim.Optimizer.init(self, params, {lr = 0.5}) end
  function Plain:update_group(group)
    for _, each in ipairs(group.params) do each:sub_(each.grad * group.lr) end
  end
  local plain = Plain({p})
  local step = lt.compile(function()
    plain:zero_grad()
    p:sum():backward()
    plain:step()
  end, {fullgraph = true})
  step()
  step()
  h.deep(p:detach():tolist(), {-0.25, 0.75})
  raises("Optimizer: neither step nor update_group is defined", function() optim.Optimizer({p}, {lr = 1}):step() end)
end)

test("state_dict of each optimiser goes back in", function()
  for name, class in pairs(lt._native.lazy.all(optim)) do
    if type(class) == "table" and rawget(class, "schema") and name ~= "LBFGS" then
      local start = {0.5, -1.25}
      local whole = run(class, {}, 6, start)
      local half, opt = run(class, {}, 3, start)
      local p = parameter(unpack(half))
      local again = class({p})
      again:load_state_dict(opt:state_dict())
      for _ = 1, 3 do
        again:zero_grad();
        ((p * p * p):sum() / 3):backward()
        again:step()
      end
      h.deep(p:detach():totable(), whole, 0, name)
    end
  end
end)

test("a rate that is set before the first step is that step's", function()
  for _, name in ipairs {"Rprop", "ASGD"} do
    local p, q = parameter(1, 2), parameter(1, 2)
    local late, early = optim[name]({p}, {lr = 0.5}), optim[name]({q}, {lr = 0.125})
    late.param_groups[1].lr = 0.125
    for _, pair in ipairs {{p, late}, {q, early}} do
      pair[1]:square():sum():backward()
      pair[2]:step()
    end
    h.deep(p:detach():tolist(), q:detach():tolist())
  end
end)

-- As in PyTorch, the optimiser may be made before the model is converted.
test("an optimiser follows parameters that to() converts", function()
  local function trained(make, when, compiled)
    lt.manual_seed(3)
    local net = lt.nn.Linear(4, 2)
    local x = lt.randn(3, 4)
    if when == "before" then net:to("float64") end
    local weight = net.weight
    local opt = make(net:parameters())
    local step = function(input)
      opt:zero_grad()
      net(input):square():sum():backward()
      opt:step()
    end
    if compiled then step = lt.compile(step) end
    if when == "between" then
      step(x)
      net:to("float64")
      equal(weight.grad.dtype, "float64")
    elseif when == "after" then
      net:to("float64")
    end
    for _ = 1, 3 do step(x:double()) end
    equal(net.weight, weight)
    equal(weight.dtype, "float64")
    equal(lt.nn.is_parameter(weight), true)
    return net.weight:totable(), opt.state[weight]
  end
  local makes = {
    function(p) return lt.optim.AdamW(p, {lr = 0.1}) end,
    function(p) return lt.optim.SGD(p, {lr = 0.1, momentum = 0.9}) end,
  }
  for _, make in ipairs(makes) do
    for _, compiled in ipairs {false, true} do
      local want = trained(make, "before", compiled)
      h.deep(trained(make, "after", compiled), want)
      local _, state = trained(make, "between", compiled)
      for _, value in pairs(state) do
        if lt.is_tensor(value) then equal(value.dtype, "float64") end
      end
    end
  end
end)

test("zero_grad drops gradients, or makes them zeros", function()
  for _, compiled in ipairs {false, true} do
    local p = parameter(1, 2)
    local opt = optim.SGD({p}, {lr = 1})
    local run = function(options)
      p:sum():backward()
      opt:zero_grad(options)
    end
    if compiled then run = lt.compile(run) end
    run()
    equal(p.grad, nil)
    run({set_to_none = false})
    h.deep(p.grad:totable(), {0, 0})
    run(false)
    h.deep(p.grad:totable(), {0, 0})
    run({set_to_none = true})
    equal(p.grad, nil)
  end
  local net = lt.nn.Linear(1, 1)
  net(lt.ones(1, 1)):sum():backward()
  net:zero_grad {set_to_none = false}
  h.deep(net.weight.grad:totable(), {{0}})
end)

test("to() keeps parameters and what shares them", function()
  local net = lt.nn.Linear(2, 2)
  net.tied = net.weight
  net:register_buffer("mask", lt.ones(2))
  net:register_buffer("ids", lt.arange(2))
  local weight, ids = net.weight, net.ids
  equal(net:to("float64"), net)
  equal(net.weight, weight)
  equal(net.tied, weight)
  equal(net.mask.dtype, "float64")
  equal(net.ids, ids)
  equal(#net:parameters(), 2)
  equal(net:to(lt.zeros(1)).weight.dtype, "float32")
  equal(net:to().weight.dtype, "float32")
  -- A graph holds what it has saved.
  local x, old = lt.ones(1, 2, {requires_grad = true}), net.weight:sum(0):totable()
  local loss = net(x):sum()
  net:to("float64")
  loss:backward()
  h.deep(x.grad:totable(), {old})
end)

test("a graph holds what it saved of parameters that to() has converted since, compiled, too", function()
  local net = lt.nn.Module:extend("Net")()
  local function loss() return net.weight:square():sum() end
  for _, f in ipairs {loss, lt.compile(loss)} do
    net.weight = lt.nn.Parameter(lt.randn(8))
    local before, old = f(), net.weight:detach():clone()
    net:to("float64")
    net.weight.grad = nil
    before:backward()
    truthy(net.weight.grad:to("float32"):equal(old * 2))
    net.weight.grad = nil
    f():backward()
    equal(net.weight.grad.dtype, "float64")
  end
end)

h.finish()
