-- Tests hooks of modules, parametrisations, and norms that are made of both; each eagerly and compiled.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises, deep = h.test, h.equal, h.truthy, h.raises, h.deep
local nn = lt.nn
local parametrize = nn.utils.parametrize

local function both(f)
  f(function(g) return g end)
  f(lt.compile)
end

test("forward hooks see and replace what goes in and comes out", function()
  both(function(run)
    local net = nn.Sequential(nn.Identity(), nn.Identity())
    local seen = {}
    local pre = net[1]:register_forward_pre_hook(function(module, args)
      seen[#seen + 1] = module == net[1] and args.n
      return args[1] + 1
    end)
    local post = net[2]:register_forward_hook(function(module, args, out)
      truthy(module == net[2] and args[1] ~= nil)
      return out * 10
    end)
    net[2]:register_forward_hook(function(_, _, out) return out + 0.5 end, {prepend = true})
    local f = run(function(x) return net(x) end)
    equal(f(lt.tensor(2)):item(), 35)
    deep(seen, {1})
    pre.remove()
    equal(f(lt.tensor(2)):item(), 25)
    post.remove()
    equal(f(lt.tensor(2)):item(), 2.5)
    equal(net[1]._hooks, false)
  end)
end)

test("a module of several results gives its hooks a list", function()
  local Two = nn.Module:extend "Two"
  function Two:forward(x, y) return x + y, x - y end
  both(function(run)
    local two = Two()
    two:register_forward_pre_hook(function(_, args) return {args[2], args[1]} end)
    two:register_forward_hook(function(_, args, out)
      equal(args.n, 2)
      equal(out.n, 2)
      return {out[1], out[2] * 2}
    end)
    local a, b = run(function(x, y) return two(x, y) end)(lt.tensor(1), lt.tensor(3))
    equal(a:item(), 4)
    equal(b:item(), 4)
  end)
end)

test("a train step with forward hooks is one graph", function()
  local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
  local kept = {}
  net[2]:register_forward_hook(function(_, _, out) kept.features = out end)
  local step = lt.compile(function(x)
    net:zero_grad()
    local loss = net(x):sum()
    loss:backward()
    return loss
  end)
  lt.reset()
  for _ = 1, 3 do step(lt.randn(4, 2)) end
  equal(h.breaks(), 0)
  equal(lt.counters().stats.unique_graphs, 1)
  deep(kept.features.shape, {4, 3})
end)

test("a hook that ends a graph leaves two", function()
  local x = lt.ones(2, 3)
  for _, register in ipairs {"register_forward_hook", "register_forward_pre_hook"} do
    for _, count in ipairs {1, 3} do
      local function make()
        lt.manual_seed(1)
        local inner = nn.Linear(3, 3)
        for i = 1, count do
          inner[register](inner, function() return i == 1 and lt.graph_break() or nil end)
        end
        local model = nn.Sequential(nn.Linear(3, 3), inner, nn.ReLU())
        return function(input) return model(input * 2) + 1 end
      end
      lt.reset()
      local eager, compiled = make(), lt.compile(make())
      for i = 1, 3 do truthy(compiled(x * i):equal(eager(x * i))) end
      equal(lt.counters().stats.unique_graphs, 2, register)
    end
  end
end)

test("full backward hooks", function()
  both(function(run)
    local net, log = nn.Linear(2, 2), {}
    local handle = net:register_full_backward_hook(function(module, grad_input, grad_output)
      truthy(module == net)
      log[#log + 1] = {grad_input.n, grad_input[1]:clone(), grad_output.n, grad_output[1]:clone()}
    end)
    local x = lt.randn(3, 2, {requires_grad = true})
    local step = run(function() net(x):sum():backward() end)
    step()
    equal(#log, 1)
    equal(log[1][1], 1)
    truthy(log[1][2]:equal(x.grad))
    equal(log[1][3], 1)
    truthy(log[1][4]:equal(lt.ones(3, 2)))
    handle.remove()
    net:register_full_backward_hook(function(_, grad_input) return {grad_input[1] * 2} end)
    local before = x.grad:clone()
    x.grad = nil
    step()
    truthy(x.grad:equal(before * 2))
    equal(#log, 1)
    net:register_full_backward_pre_hook(function(_, grad_output) return {grad_output[1] * 3} end)
    net.bias.grad = nil
    step()
    truthy(net.bias.grad:equal(lt.full({2}, 9)))
  end)
end)

test("a train step with backward hooks is one graph", function()
  local net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
  net[2]:register_full_backward_hook(function(_, grad_input) return {grad_input[1] * 2} end)
  local step = lt.compile(function(x)
    net:zero_grad()
    local loss = net(x):square():sum()
    loss:backward()
    return loss
  end)
  lt.reset()
  for _ = 1, 3 do step(lt.ones(4, 2)) end
  local compiled = net[1].weight.grad:clone()
  net:zero_grad()
  net(lt.ones(4, 2)):square():sum():backward()
  truthy(compiled:equal(net[1].weight.grad))
  equal(h.breaks(), 0)
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("a module whose input needs no gradient has its backward hooks all the same", function()
  local net, seen = nn.Linear(2, 2), nil
  net:register_full_backward_hook(function(_, grad_input, grad_output) seen = {grad_input.n, grad_input[1],
    grad_output[1]} end)
  net(lt.ones(3, 2)):sum():backward()
  equal(seen[1], 1)
  equal(seen[2], nil)
  truthy(seen[3]:equal(lt.ones(3, 2)))
  net:register_full_backward_hook(function() return {} end)
  local x = lt.ones(3, 2, {requires_grad = true})
  raises("a backward hook gave 0 gradients, the module has 1 inputs", function() net(x):sum():backward() end)
end)

test("both inputs of a module have their gradients when its hooks run", function()
  local Product = nn.Module:extend "Product"
  function Product:forward(x, y) return x * y end
  local net, seen = Product(), nil
  net:register_full_backward_hook(function(_, grad_input) seen = grad_input end)
  local x, y = lt.tensor({2}, {requires_grad = true}), lt.tensor({5}, {requires_grad = true})
  net(x, y):sum():backward()
  equal(seen[1]:item(), 5)
  equal(seen[2]:item(), 2)
  equal(x.grad:item(), 5)
end)

test("arguments of registering are checked", function()
  local net = nn.Linear(1, 1)
  raises("register_forward_hook: argument 'hook' must be a function or a module, got number 3",
    net.register_forward_hook, net, 3)
  raises("unknown option 'pre'", net.register_forward_hook, net, print, {pre = true})
  raises("is called with a colon", net.register_forward_hook, print)
end)

-- Parametrisations ----------------------------------------------------------------------------------------------------

local Symmetric = nn.Module:extend "Symmetric"
function Symmetric:forward(x) return x:triu() + x:triu(1):t() end
local Twice = nn.Module:extend "Twice"
function Twice:forward(x) return x * 2 end
function Twice:right_inverse(x) return x / 2 end
local Factors = nn.Module:extend "Factors"
function Factors:forward(a, b) return a * b end
function Factors:right_inverse(x) return x, lt.ones_like(x) end

local function names(module)
  local out = {}
  for name in pairs(module:state_dict()) do out[#out + 1] = name end
  table.sort(out)
  return table.concat(out, " ")
end

test("a parametrised weight is computed where it is read", function()
  both(function(run)
    lt.manual_seed(1)
    local net = nn.Linear(3, 3)
    local weight = net.weight
    equal(parametrize.register_parametrization(net, "weight", Symmetric()), net)
    truthy(net.weight:equal(net.weight:t()))
    truthy(net.parametrizations.weight.original == weight, "the parameter stays the object that it is")
    equal(names(net), "bias parametrizations.weight.original")
    equal(#net:parameters(), 2)
    truthy(lt.isinstance(net, nn.Linear))
    equal(parametrize.type_before_parametrizations(net), nn.Linear)
    local x = lt.randn(2, 3)
    local step = run(function() net(x):sum():backward() end)
    step()
    truthy(weight.grad:equal(weight.grad:triu()), "only what is read has a gradient")
    truthy(weight.grad:abs():sum():item() > 0)
    local copy = lt.deepcopy(net)
    truthy(copy.weight:equal(net.weight) and copy.parametrizations.weight.original ~= weight)
    parametrize.remove_parametrizations(net, "weight")
    truthy(net.weight == weight and weight:equal(weight:t()))
    equal(names(net), "bias weight")
    equal(getmetatable(net), nn.Linear)
  end)
end)

test("a compiled train step of a parametrised net is one graph", function()
  local net = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3))
  parametrize.register_parametrization(net, "bias", Twice())
  local opt = lt.optim.SGD(net:parameters(), {lr = 0.1})
  local step = lt.compile(function(x)
    opt:zero_grad()
    local loss = net(x):square():sum()
    loss:backward()
    opt:step()
    return loss
  end)
  lt.reset()
  local first = step(lt.ones(1, 3)):item()
  for _ = 1, 5 do step(lt.ones(1, 3)) end
  truthy(step(lt.ones(1, 3)):item() < first)
  equal(h.breaks(), 0)
  equal(lt.counters().stats.unique_graphs, 1)
end)

test("right_inverse, chains, several tensors", function()
  local net = nn.Linear(2, 2)
  local before = net.weight:detach():clone()
  parametrize.register_parametrization(net, "weight", Twice())
  truthy(net.weight:allclose(before), "right_inverse keeps the value")
  net.weight = lt.ones(2, 2)
  truthy(net.weight:equal(lt.ones(2, 2)))
  truthy(net.parametrizations.weight.original:equal(lt.full({2, 2}, 0.5)))
  parametrize.register_parametrization(net, "weight", Symmetric())
  equal(net.parametrizations.weight:len(), 2)
  raises("Symmetric does not implement right_inverse", function() net.weight = lt.ones(2, 2) end)
  parametrize.remove_parametrizations(net, "weight", {leave_parametrized = false})
  truthy(net.weight:equal(lt.full({2, 2}, 0.5)))
  parametrize.register_parametrization(net, "weight", Factors(), {unsafe = true})
  equal(names(net), "bias parametrizations.weight.original0 parametrizations.weight.original1")
  truthy(net.weight:equal(lt.full({2, 2}, 0.5)))
  raises("made of several tensors", parametrize.remove_parametrizations, net, "weight", false)
  parametrize.remove_parametrizations(net, "weight")
  truthy(nn.is_parameter(net.weight))
end)

test("a buffer may be parametrised; cached computes once", function()
  local net = nn.Linear(2, 2)
  net:register_buffer("scale", lt.ones(2))
  parametrize.register_parametrization(net, "scale", Twice())
  equal(names(net), "bias parametrizations.scale.original weight")
  parametrize.cached(function() truthy(net.scale == net.scale) end)
  truthy(net.scale ~= net.scale)
end)

test("cached ends with its function, by an error, a yield or a dropped coroutine, too", function()
  local net = nn.Linear(2, 2)
  parametrize.register_parametrization(net, "weight", Twice())
  local function once() return net.weight == net.weight end
  local function in_cached()
    local w = net.weight
    coroutine.yield(w)
    return net.weight == w
  end
  raises("of the test", parametrize.cached, function()
    truthy(once())
    truthy(parametrize.cached(once) and once(), "nested")
    error("of the test")
  end)
  truthy(not once(), "after an error")
  local co = coroutine.create(parametrize.cached)
  truthy(coroutine.resume(co, in_cached))
  truthy(not once(), "while it is suspended")
  truthy(parametrize.cached(once) and not once(), "another one")
  truthy(select(2, coroutine.resume(co)), "its own goes on")
  co = coroutine.create(parametrize.cached)
  coroutine.resume(co, in_cached)
  co = nil
  truthy(not once(), "dropped")
  collectgarbage()
  collectgarbage()
  local f = lt.compile(function(x) return net(x) end, {fullgraph = true})
  truthy(f(lt.ones(1, 2)):equal(net(lt.ones(1, 2))), "one graph")
end)

test("what cannot be parametrised is an error", function()
  local net = nn.Linear(2, 2)
  raises("Linear has no parameter or buffer 'wait'", parametrize.register_parametrization, net, "wait", Twice())
  raises("the shape changes from {2, 2} to {4}", parametrize.register_parametrization, net, "weight", nn.Flatten(0))
  raises("has no parametrization of 'weight'", parametrize.remove_parametrizations, net, "weight")
  truthy(nn.is_parameter(net.weight), "an error leaves the module as it was")
end)

test("weight_norm and spectral_norm: names, removal", function()
  local x = lt.randn(2, 3)
  for _, kind in ipairs {"weight_norm", "spectral_norm"} do
    local net = nn.Linear(3, 3)
    nn.utils[kind](net)
    equal(names(net), kind == "weight_norm" and "bias weight_g weight_v" or "bias weight_orig weight_u weight_v")
    raises("has such a hook already", function()
      rawset(net, "weight", nn.Parameter(lt.ones(3, 3)))
      nn.utils[kind](net)
    end)
    net:eval()
    local y = lt.no_grad(net, x)
    local copy = lt.deepcopy(net)
    nn.utils["remove_" .. kind](copy)
    equal(names(copy), "bias weight")
    equal(copy._hooks, false)
    truthy(lt.no_grad(copy, x):allclose(y), "the copy")
    truthy(names(net) ~= "bias weight", "the copied stays")
    nn.utils["remove_" .. kind](net)
    equal(names(net), "bias weight")
    truthy(net(x):allclose(y))
    equal(net._hooks, false)
    raises("not found in Linear", nn.utils["remove_" .. kind], net)
  end
  raises("has no parameter 'wait'", nn.utils.weight_norm, nn.Linear(2, 2), "wait")
  raises("argument 'n_power_iterations' must be a whole number >= 1", nn.utils.spectral_norm, nn.Linear(2, 2),
    {n_power_iterations = 0})
end)

test("what is refused second does not keep the first from its hooks", function()
  local w, v = lt.tensor({1, 2}, {requires_grad = true}), lt.tensor({0.5, 0.25}, {requires_grad = true})
  local function f(x)
    local a = x * w
    local b = (x + v):sin()
    a:mul_(0.5);
    (b * 2):sum():backward();
    (a * 2):sum():backward()
    a:retain_grad()
    return (a * b):sum(), b, a
  end
  local function seen(g)
    local l, _, a = g(lt.ones(2))
    local ok, message = pcall(l.backward, l)
    truthy(not ok and message:find("a second time", 1, true), message)
    return tostring(a.grad)
  end
  local want, compiled = seen(f), lt.compile(f)
  for _ = 1, 2 do equal(seen(compiled), want) end
end)

h.finish()
