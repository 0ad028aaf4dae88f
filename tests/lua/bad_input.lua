-- Bad input: every error names op or class, argument and value, and carries the script's line; eager and compiled alike.
local h = require "harness"
local lt = require "lutra"
local nn, F = lt.nn, lt.nn.functional
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

-- f(...) must raise `text` at a line of this file.
local function told(text, f, ...)
  local ok, message = pcall(function(...)
    local result = f(...)
    return result
  end, ...)
  truthy(not ok, "no error; wanted " .. text)
  local here = tostring(message):match("^bad_input%.lua:%d+: (.*)$")
  truthy(here, "no line of the script in: " .. tostring(message))
  truthy(here:find(text, 1, true), "the error " .. here .. " does not contain " .. text)
end

-- Eager and in a graph.
local function both(text, f, ...)
  told(text, f, ...)
  told(text, lt.compile(f), ...)
end

test("numbers that an integer dtype cannot hold", function()
  local x, mask = lt.zeros({3}, {dtype = "uint8"}), lt.tensor({true, false, true})
  local at = lt.tensor({0}, {dtype = "int64"})
  told("tensor: data 300 cannot be converted to uint8 without overflow", lt.tensor, {1, 300}, {dtype = "uint8"})
  told("tensor: data 300 cannot be converted to uint8 without overflow", lt.tensor, 300, {dtype = "uint8"})
  told("tensor: data nan cannot be converted to int64 without overflow", lt.tensor, {0 / 0}, {dtype = "int64"})
  told("tensor: data 1e+30 cannot be converted", lt.tensor, {1e30}, {dtype = "int64"})
  told("full: fill_value -129 cannot be converted to int8", lt.full, {2}, -129, {dtype = "int8"})
  both("masked_fill: value 300 cannot be converted to uint8 without overflow", function(t, m, v) return t:masked_fill(m, v) end, x, mask, 300)
  both("clamp: max 300 cannot be converted to uint8", function(t, v) return t:clamp(0, v) end, x, 300)
  both("where: other 300 cannot be converted to uint8", function(m, t, v) return lt.where(m, t, v) end, mask, x, 300)
  both("fill_: fill_value 300 cannot be converted", function(t, v) return t:clone():fill_(v) end, x, 300)
  both("index_fill: value 300 cannot be converted", function(t, i, v) return t:index_fill(0, i, v) end, x, at, 300)
  told("scatter: src 300 cannot be converted", x.scatter, x, 0, at, 300)
  both("index: the assigned number 300 cannot be converted to uint8", function(t, v)
    t = t:clone()
    t[0] = v
    return t
  end, x, 300)
  told("pow: exponent 300 cannot be converted", function() return x ^ 300 end)
  told("add: alpha 300 cannot be converted", lt.add, x, x, {alpha = 300})
  told("pad: value 300 cannot be converted", F.pad, x, {1, 1}, "constant", 300)
  told("full: fill_value 1000000 cannot be converted to float16", lt.full, {1}, 1e6, {dtype = "float16"})
end)

test("numbers that PyTorch lets wrap or overflow", function()
  local x = lt.zeros({2}, {dtype = "uint8"})
  deep(lt.tensor({-1, -255}, {dtype = "uint8"}):totable(), {255, 1})
  deep((x + 300):totable(), {44, 44})
  deep((x * 300 - 300):totable(), {212, 212})
  deep(x:eq(300):totable(), {false, false})
  deep(lt.full({2}, 300, {dtype = "bool"}):totable(), {true, true})
  equal(lt.tensor({1e6}, {dtype = "float16"}):item(), math.huge)
  equal(lt.tensor(1e39):item(), math.huge)
  equal(lt.full({1}, math.huge, {dtype = "float16"}):item(), math.huge)
  deep(lt.tensor({1.75}, {dtype = "int32"}):totable(), {1})
  -- One graph for every number that fits.
  local f = lt.compile(function(t, v) return t:clamp(-3, v) * 1 end)
  local t = lt.full({1}, 5, {dtype = "float16"})
  for _, v in ipairs {2, -7, 250} do equal(f(t, v):item(), v < 5 and v or 5) end
  truthy(f(t, 0 / 0):isnan():item())
  equal(f(t, -math.huge):item(), -math.huge)
  told("clamp: max 70000 cannot be converted to float16", f, t, 70000)
end)

test("probabilities", function()
  local unit = "probabilities must be between 0 and 1"
  for _, p in ipairs {2, -0.5, 0 / 0, math.huge} do
    local t = lt.tensor({0.5, p})
    both("bernoulli: " .. unit, function(x) return lt.bernoulli(x) end, t)
    both("bernoulli_: " .. unit, function(x) return lt.zeros(2):bernoulli_(x) end, t)
    both("bernoulli: " .. unit, function(x) return lt.bernoulli(x:half()) end, t)
    if p ~= 2 then
      both("multinomial: probabilities must be finite and not negative", function(x) return lt.multinomial(x, 1) end, t)
      both("multinomial: probabilities must be finite and not negative", function(x) return lt.multinomial(x, 3, true) end, t)
    end
  end
  local none = "multinomial: the probabilities of a row must not sum to zero"
  both(none, function(x) return lt.multinomial(x, 1) end, lt.tensor({{1, 2}, {0, 0}}))
  both(none, function(x) return lt.multinomial(x, 3, true) end, lt.tensor({{1, 2}, {0, 0}}))
  both("normal: std must not be negative", function(x) return lt.normal(x, x) end, lt.tensor({1, -1}))
  both("binary_cross_entropy: the input must be between 0 and 1", function(x) return F.binary_cross_entropy(x, x) end, lt.tensor({0.5, 1.5}))
  told("bernoulli: p must be between 0 and 1, got 2", lt.bernoulli, lt.zeros(3), 2)
  equal(lt.multinomial(lt.tensor({0, 3, 0}), 1):item(), 1)
  local p = lt.tensor({0.25, 0.5}, {requires_grad = true})
  F.binary_cross_entropy(p, lt.tensor({1, 1})):backward()
  deep(p.grad:totable(), {-2, -1})
end)

test("sizes beyond all memory", function()
  local image = lt.zeros(1, 1, 4, 4)
  told("interpolate: out of memory: a result of shape {1, 1, 4000000000, 4000000000}", F.interpolate, image, {scale_factor = 1e9})
  told("interpolate: scale_factor 1e+300 does not go with a size of 4", F.interpolate, image, {scale_factor = 1e300})
  told("interpolate: scale_factor nan does not go", F.interpolate, image, {scale_factor = 0 / 0})
  told("interpolate: scale_factor -1 does not go", F.interpolate, image, {scale_factor = -1})
  told("interpolate: out of memory", F.interpolate, image, {size = 1e9})
  told("zeros: out of memory: tried to allocate 4000000000000 bytes", lt.zeros, 1e12)
  told("randn: out of memory", lt.randn, 1e12)
  told("add: out of memory", function() return lt.zeros(1):expand(1e12) + 1 end)
  told("matmul: out of memory", lt.matmul, lt.zeros(1, 1):expand(1e6, 1), lt.zeros(1, 1):expand(1, 1e6))
  told("eye: n must not be negative, got -1", lt.eye, -1)
  local wide = lt.zeros(1):expand(1e12)
  told("tensor_split: 1000000000000 parts are more than", lt.tensor_split, lt.zeros(3), 1e12)
  told("unbind: 1000000000000 parts are more than", lt.unbind, wide)
  told("split: 1000000000000 parts are more than", lt.split, wide, 1)
  told("chunk: 1000000000000 parts are more than", lt.chunk, lt.zeros(0), 1e12)
  equal(#lt.zeros(3):chunk(2 ^ 53), 3)
  told("totable: 1000000000000 elements are more than", wide.totable, wide)
  told("eye: m must not be negative, got -2", lt.eye, 1, -2)
end)

test("what is named", function()
  local x = lt.zeros(3)
  told("to: device 'foo' is unknown", x.to, x, "foo")
  told("zeros: device 'foo' is unknown", lt.zeros, 3, {device = "foo"})
  told("requires_grad_: only tensors of floating point dtype", x.requires_grad_, x:long())
  told("zeros: requires_grad: only tensors of floating point dtype", lt.zeros, 3, {dtype = "int64", requires_grad = true})
  told("zeros: argument 'size' must be an integer, got number nan", lt.zeros, 0 / 0)
  told("mark_dynamic: argument 'dim' must be an integer, got a table", lt.mark_dynamic, x, {})
  told("dropout: p must be between 0 and 1, got nan", F.dropout, x, 0 / 0)
  local logits, classes = lt.randn(3, 4), lt.tensor({0, 9, 1}, {dtype = "int64"})
  both("cross_entropy: target 9 is out of bounds for 4 classes", function(a, b) return F.cross_entropy(a, b) end, logits, classes)
  both("nll_loss: target 9 is out of bounds for 4 classes", function(a, b) return F.nll_loss(a, b) end, logits, classes)
  both("nll_loss: target -9 is out of bounds for 4 classes", function(a, b) return F.nll_loss(a, -b) end, logits, classes)
end)

test("generator= of draws", function()
  local mine = lt.Generator(5)
  lt.manual_seed(5)
  for _, draw in ipairs {
    function(o) return lt.randn(3, o) end, function(o) return lt.rand({2, 2}, o) end, function(o) return lt.randint(10, {4}, o) end,
    function(o) return lt.randperm(5, o) end, function(o) return lt.bernoulli(lt.full({4}, 0.5), o) end,
    function(o) return lt.multinomial(lt.ones(4), 2, o) end, function(o) return lt.zeros(3):uniform_(0, 1, o) end,
    function(o) return lt.zeros(3):normal_(o) end, function(o) return lt.zeros(3):exponential_(1, o) end,
    function(o) return lt.normal(0, 1, {3}, o) end,
  } do
    truthy(draw({generator = mine}):equal(draw(nil)))
  end
  local before = lt.initial_seed()
  lt.randn(3, {generator = lt.Generator(9)})
  equal(lt.initial_seed(), before)
  local one, two = lt.Generator(3), lt.Generator(3)
  local f = lt.compile(function(x) return x + lt.rand(3, {generator = one}) end)
  for _ = 1, 3 do truthy(f(lt.zeros(3)):equal(lt.rand(3, {generator = two}))) end
  told("rand: argument 'generator' must be made by lt.Generator, got number 5", lt.rand, 3, {generator = 5})
  told("Generator: argument 'seed' must be an integer, got number 1.5", lt.Generator, 1.5)
  told("zeros: unknown keyword 'generator' (known: size, dtype, device, requires_grad)", lt.zeros, 3, {generator = one})
end)

test("options of compile and explain", function()
  local function f(x) return x end
  told("compile: option 'dynamic' is true or false, not a string", lt.compile, f, {dynamic = "x"})
  told("compile: option 'fullgraph' is true or false, not a number", lt.compile, f, {fullgraph = 3})
  told("compile: option 'options' is a table, not a number", lt.compile, f, {options = 3})
  told("compile: option 'mode' is a name, not a number", lt.compile, f, {mode = 3})
  told("explain: option 'dynamic' is true or false, not a string", lt.explain, f, {dynamic = "x"})
  told("explain: unknown option 'foo'", lt.explain, f, {foo = 1})
  told("patch: option 'fullgraph' is true or false", lt.patch, f, {fullgraph = 3})
end)

test("modules", function()
  local net = nn.Linear(2, 2)
  told("Linear: argument 'out_features' must be a whole number >= 0, got nil", nn.Linear, 4)
  told("Linear: argument 'in_features' must be a whole number >= 0, got number 1.5", nn.Linear, 1.5, 2)
  told("Linear: argument 'bias' must be a boolean, got number 3", nn.Linear, 4, 2, {bias = 3})
  told("Linear: unknown option 'foo' (known: bias, device, dtype)", nn.Linear, 4, 2, {foo = 1})
  told("Conv2d: argument 'kernel_size' is missing", nn.Conv2d, 3, 4)
  told("Conv2d: argument 'kernel_size' must be a whole number >= 0, got string 'a'", nn.Conv2d, 3, 4, {"a", 3})
  told("LayerNorm: argument 'eps' must be a number, got string 'a'", nn.LayerNorm, 4, "a")
  told("Dropout: argument 'p' must be a number between 0 and 1, got number 2", nn.Dropout, 2)
  told("Parameter: argument 'data' must be a Tensor, got number 3", nn.Parameter, 3)
  told("load_state_dict of Linear: a table from names to tensors is needed, not nil", net.load_state_dict, net, nil)
  told("load_state_dict of Linear: weight is number 3, not a Tensor", net.load_state_dict, net, {weight = 3, bias = net.bias})
  told("load_state_dict: argument 'strict' must be a boolean", net.load_state_dict, net, {}, {strict = 0})
  told("register_buffer: argument 'name' must be a string, got nil", net.register_buffer, net, nil, lt.zeros(1))
  told("register_buffer: argument 'tensor' must be a Tensor, got number 3", net.register_buffer, net, "x", 3)
  told("register_parameter: argument 'parameter' must be an nn.Parameter, got a Tensor", net.register_parameter, net, "x", lt.zeros(1))
  told("add_module: argument 'module' must be a module, got number 3", net.add_module, net, "x", 3)
  told("train: argument 'mode' must be a boolean, got number 3", net.train, net, 3)
  told("Module.eval: is called with a colon, object:eval(), got nil as the object", net.eval)
  told("Module: methods are called with a colon", net.parameters)
  told("Sequential: a module is needed, not number 3", nn.Sequential, nn.ReLU(), 3)
  told("apply: argument 'f' must be a function, got nil", net.apply, net)
  equal(net.x, nil)
end)

test("data and optimisers", function()
  local p = nn.Parameter(lt.zeros(2))
  told("TensorDataset: argument 1 must be a Tensor, got number 3", lt.data.TensorDataset, 3)
  told("TensorDataset: argument 2 must be a Tensor, got nil", lt.data.TensorDataset, lt.zeros(2), nil)
  told("TensorDataset: tensor 1 has no dimensions", lt.data.TensorDataset, lt.tensor(3))
  local set = lt.data.TensorDataset(lt.zeros(4))
  told("DataLoader: argument 'batch_size' must be a whole number >= 1, got string 'a'", lt.data.DataLoader, set, {batch_size = "a"})
  told("DataLoader: argument 'shuffle' must be a boolean, got number 1", lt.data.DataLoader, set, {shuffle = 1})
  told("DataLoader: argument 'generator' must be made by lt.Generator, got number 3", lt.data.DataLoader, set, {generator = 3})
  told("DataLoader: argument 'dataset' must be a dataset", lt.data.DataLoader, 3)
  told("SGD: argument 'lr' must be a number >= 0, got string 'a'", lt.optim.SGD, {p}, {lr = "a"})
  told("SGD: argument 'params' must be a list of Tensors", lt.optim.SGD, p)
  told("SGD: params[2] is number 3, not a Tensor", lt.optim.SGD, {p, 3})
  told("Adam: argument 'amsgrad' must be a boolean, got number 1", lt.optim.Adam, {p}, {amsgrad = 1})
  local opt = lt.optim.SGD({p})
  told("Optimizer.step: is called with a colon", opt.step)
  told("add_param_group: argument 'group' must be a table with params, got nil", opt.add_param_group, opt)
  told("load_state_dict: what state_dict gave is needed, not number 3", opt.load_state_dict, opt, 3)
  told("StepLR: argument 'step_size' must be a number, got nil", lt.optim.lr_scheduler.StepLR, opt)
end)

h.finish()
