-- Tests bad input: every error names the op or class, the argument and the value, and has the script's line, both
-- eagerly and compiled.
local h = require "harness"
local lt = require "lutra"
local nn, F = lt.nn, lt.nn.functional
local test, equal, deep, truthy = h.test, h.equal, h.deep, h.truthy

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

test("what is said of any tensor's sizes names the op, too", function()
  local many = {}
  for i = 1, 17 do many[i] = 1 end
  told("ones: tensors have at most 16 dimensions, got 17", lt.ones, many)
  both("view: tensors have at most 16 dimensions, got 17", function(t) return t:view(many) end, lt.ones(1))
  local array = require("ffi").new("float[6]")
  told("from_blob: a tensor cannot have negative size -2", lt.from_blob, array, {-2, 3})
  told("from_blob: a tensor cannot have negative stride -1", lt.from_blob, array, {2, 3}, {strides = {-1, 1}})
  told("from_blob: sizes {2, 3} and strides {1} differ in length", lt.from_blob, array, {2, 3}, {strides = {1}})
end)

test("numbers that an integer dtype cannot hold", function()
  local x, mask = lt.zeros({3}, {dtype = "uint8"}), lt.tensor({true, false, true})
  local at = lt.tensor({0}, {dtype = "int64"})
  told("tensor: data 300 cannot be converted to uint8 without overflow", lt.tensor, {1, 300}, {dtype = "uint8"})
  told("tensor: data 300 cannot be converted to uint8 without overflow", lt.tensor, 300, {dtype = "uint8"})
  told("tensor: data nan cannot be converted to int64 without overflow", lt.tensor, {0 / 0}, {dtype = "int64"})
  told("tensor: data 1e+30 cannot be converted", lt.tensor, {1e30}, {dtype = "int64"})
  told("full: fill_value -129 cannot be converted to int8", lt.full, {2}, -129, {dtype = "int8"})
  both("masked_fill: value 300 cannot be converted to uint8 without overflow",
    function(t, m, v) return t:masked_fill(m, v) end, x, mask, 300)
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
      both("multinomial: probabilities must be finite and not negative",
        function(x) return lt.multinomial(x, 3, true) end, t)
    end
  end
  local none = "multinomial: the probabilities of a row must not sum to zero"
  both(none, function(x) return lt.multinomial(x, 1) end, lt.tensor({{1, 2}, {0, 0}}))
  both(none, function(x) return lt.multinomial(x, 3, true) end, lt.tensor({{1, 2}, {0, 0}}))
  both("normal: std must not be negative", function(x) return lt.normal(x, x) end, lt.tensor({1, -1}))
  both("binary_cross_entropy: the input must be between 0 and 1", function(x) return F.binary_cross_entropy(x, x) end,
    lt.tensor({0.5, 1.5}))
  told("bernoulli: p must be between 0 and 1, got 2", lt.bernoulli, lt.zeros(3), 2)
  equal(lt.multinomial(lt.tensor({0, 3, 0}), 1):item(), 1)
  local p = lt.tensor({0.25, 0.5}, {requires_grad = true})
  F.binary_cross_entropy(p, lt.tensor({1, 1})):backward()
  deep(p.grad:totable(), {-2, -1})
end)

test("sizes beyond all memory", function()
  local image = lt.zeros(1, 1, 4, 4)
  told("interpolate: out of memory: a result of shape {1, 1, 4000000000, 4000000000}", F.interpolate, image,
    {scale_factor = 1e9})
  told("interpolate: scale_factor 1e+300 does not go with a size of 4", F.interpolate, image, {scale_factor = 1e300})
  told("interpolate: scale_factor nan does not go", F.interpolate, image, {scale_factor = 0 / 0})
  told("interpolate: scale_factor -1 does not go", F.interpolate, image, {scale_factor = -1})
  told("interpolate: out of memory", F.interpolate, image, {size = 1e9})
  told("zeros: out of memory: tried to allocate 4000000000000 bytes", lt.zeros, 1e12)
  told("randn: out of memory", lt.randn, 1e12)
  both("zeros: out of memory: tried to allocate 72057594037927936 bytes", function(x)
    local dead = lt.zeros(2 ^ 53, 2) -- eager code raises although nobody reads it
    return x, lt.zeros(-1)
  end, lt.ones(1))
  told("add: out of memory", function() return lt.zeros(1):expand(1e12) + 1 end)
  both("expand: shape {1, 4} cannot be expanded to {4611686018427387904, 4} (64 bits cannot count its elements)",
    function(x, n) return x:sum(), x:expand(n, 4) end, lt.ones(1, 4), 2LL ^ 62)
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
  told("to: 'foo' is neither a dtype", x.to, x, "foo")
  told("zeros: device 'foo' is unknown", lt.zeros, 3, {device = "foo"})
  told("requires_grad_: only tensors of floating point dtype", x.requires_grad_, x:long())
  told("zeros: requires_grad: only tensors of floating point dtype", lt.zeros, 3,
    {dtype = "int64", requires_grad = true})
  told("zeros: argument 'size' must be an integer, got number nan", lt.zeros, 0 / 0)
  told("mark_dynamic: argument 'dim' must be an integer, got a table", lt.mark_dynamic, x, {})
  told("dropout: p must be between 0 and 1, got nan", F.dropout, x, 0 / 0)
  local logits, classes = lt.randn(3, 4), lt.tensor({0, 9, 1}, {dtype = "int64"})
  both("cross_entropy: target 9 is out of bounds for 4 classes", function(a, b) return F.cross_entropy(a, b) end,
    logits, classes)
  both("nll_loss: target 9 is out of bounds for 4 classes", function(a, b) return F.nll_loss(a, b) end, logits, classes)
  both("nll_loss: target -9 is out of bounds for 4 classes", function(a, b) return F.nll_loss(a, -b) end, logits,
    classes)
end)

test("the name that was called, not that of a part", function()
  local x = lt.randn(3, 4)
  told("clip: at least one of 'min' or 'max' must be given", lt.clip, x)
  both("clip: shapes {3, 4} and {7} cannot be broadcast", function(a, b) return lt.clip(a, b) end, x, lt.randn(7))
  told("clip_: shapes {3, 4} and {7} cannot be broadcast", x.clip_, x, lt.randn(7))
  both("multiply: shapes {3, 4} and {2} cannot be broadcast", function(a, b) return lt.multiply(a, b) end, x,
    lt.randn(2))
  both("softsign: not defined for bool tensors", function(a) return F.softsign(a) end, x:gt(0))
  both("slice_scatter: step must be greater than zero, got 0",
    function(a, b) return lt.slice_scatter(a, b, 0, 0, 2, 0) end, x, x)
  told("select_scatter: index 9 is out of range", lt.select_scatter, x, lt.randn(4), 0, 9)
  told("soft_margin_loss: shapes {3, 4} and {2, 2} cannot be broadcast", F.soft_margin_loss, x, lt.randn(2, 2))
  both("fmod: not defined for bool tensors", function(a) return a:fmod(a) end, x:gt(0))
end)

test("a part that runs by itself too", function()
  local x, classes = lt.randn({3, 4}, {requires_grad = true}), lt.tensor({0, 9, 1}, {dtype = "int64"})
  told("nll_loss: target 9 is out of bounds for 4 classes", F.nll_loss, x, classes)
  told("gather: index 9 is out of bounds for dimension 1 with size 4", lt.gather, x, 1, classes:unsqueeze(1))
  told("gather: index 9 is out of bounds for dimension 1 with size 4", lt.gather, x:detach(), 1, classes:unsqueeze(1))
end)

test("generator= of draws", function()
  local mine = lt.Generator(5)
  lt.manual_seed(5)
  for _, draw in ipairs {
    function(o) return lt.randn(3, o) end, function(o) return lt.rand({2, 2}, o) end,
      function(o) return lt.randint(10, {4}, o) end,
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
  told("zeros: unknown keyword 'generator' (known: size, dtype, device, out, requires_grad)", lt.zeros, 3,
    {generator = one})
end)

test("options of compile and explain", function()
  local function f(x) return x end
  told("compile: option 'dynamic' must be a boolean, or a table of arguments and their dimensions, got string 'x'",
    lt.compile, f, {dynamic = "x"})
  told("compile: option 'fullgraph' must be a boolean, got number 3", lt.compile, f, {fullgraph = 3})
  told("compile: option 'options' must be a table, got number 3", lt.compile, f, {options = 3})
  told("compile: option 'mode' must be a name, got number 3", lt.compile, f, {mode = 3})
  told("explain: option 'dynamic' must be a boolean, or a table of arguments and their dimensions, got string 'x'",
    lt.explain, f, {dynamic = "x"})
  told("explain: unknown option 'foo' (known: dynamic,", lt.explain, f, {foo = 1})
  told("patch: option 'fullgraph' must be a boolean", lt.patch, f, {fullgraph = 3})
  told("compile: options are a table, not string 'default'", lt.compile, f, "default")
  told("compile: options are a plain table, not one with a metatable", lt.compile, f, lt.nn.Linear(2, 2))
end)

test("what is compiled", function()
  told("compile: the backend must return a function, nil or its graph, not a number",
    lt.compile(function(x) return x + 1 end, {backend = function() return 3 end}), lt.zeros(2))
  local x = lt.zeros(2)
  told("compile: argument 'f' must be a function or a module, got nil", lt.compile)
  told("compile: argument 'f' must be a function or a module, got nil", lt.compile, nil, {dynamic = true})
  told("compile: argument 'f' must be a function or a module, got a Tensor", lt.compile, x)
  told("explain: argument 'f' must be a function or a module, got number 3", lt.explain, 3)
  told("patch: a C function has no bytecode to capture", lt.patch, print)
  told("patch: argument 'f' must be a Lua function, got string 'f'", lt.patch, "f")
  told("unpatch: argument 'f' must be a function, got number 3", lt.unpatch, 3)
  told("guards: argument 'f' must be a compiled function or module, got nil", lt.guards)
  told("recompiles: argument 'f' must be a compiled function or module, got number 3", lt.recompiles, 3)
  told("guards: the function is not compiled", lt.guards, print)
  told("guards: the module is not compiled", lt.guards, nn.Linear(1, 1))
  told("mark_dynamic: argument 'x' must be a Tensor, got nil", lt.mark_dynamic)
  told("mark_static: argument 'dim' must be an integer, got string 'a'", lt.mark_static, x, "a")
  told("auto: unknown option 'threshld' (known: threshold)", lt.auto, {threshld = 3})
  told("auto: option 'threshold' must be a number >= 1, got number 0", lt.auto, {threshold = 0})
  told("auto: argument 1 must be true, false or {threshold = n}, got nil", lt.auto)
end)

test("names that are not there", function()
  local x = lt.zeros(2, 2)
  told("Tensor has no attribute or method 'Shape' (did you mean 'shape'?)", function() return x.Shape end)
  told("Tensor has no attribute or method 'sqeeze' (did you mean 'squeeze'?)", function() return x:sqeeze(0) end)
  told("Tensor has no attribute or method 'resahpe' (did you mean 'reshape'?)", function() return x:resahpe(4) end)
  told("Tensor has no attribute 'requires_grd' (did you mean 'requires_grad'?)", function() x.requires_grd = true end)
  told("sum: unknown keyword 'dimm' (known: input, dim, keepdim, dtype, out); did you mean 'dim'?", x.sum, x,
    {dimm = 1})
  told("other); did you mean 'dtype'?", x.to, x, {dtyp = "float16"})
  told("compile: unknown option 'dynamc' (known: dynamic, fullgraph, wait, backend, mode, options); did you mean " ..
    "'dynamic'?", lt.compile, print,
    {dynamc = true})
  told("profit); did you mean 'num_threads'?", function() lt.config.num_thread = 1 end)
  told("Linear: unknown option 'bais' (known: bias, device, dtype, in_features, out_features); did you mean 'bias'?",
    nn.Linear, 2, 2,
    {bais = false})
  for _, f in ipairs {x.sum, lt.compile, nn.ReLU} do
    local _, message = pcall(f, f == x.sum and x or f == lt.compile and print or {elephant = 1}, {elephant = 1})
    truthy(not message:find("did you mean", 1, true), message)
  end
  local ok, message = pcall(function() return x.elephant end)
  truthy(not ok and message:find("method 'elephant'$"), message)
  both("lt.float33: no such dtype (known: bool, uint8,", function(t) return t:to(lt.float33) end, x)
  told("lt.complex32: no such dtype", function() return lt.zeros(2, {dtype = lt.complex32}) end)
  equal(lt.floaty, nil)
  both("to: 'flaot32' is neither a dtype (bool, uint8, ", function(t) return t:to("flaot32") end, x)
  told("nor a device ('cpu', 'cuda' or 'cuda:N')", x.to, x, "gpu")
  told("to: 'cuda:01' is neither", x.to, x, "cuda:01")
  told("to: unknown keyword 'dtyp' (known: input, dtype, non_blocking, copy, memory_format, device, other)", x.to, x,
    {dtyp = "float16"})
  told("zeros: argument 'dtype' must be a dtype, got string 'flaot' (known: bool, uint8,", lt.zeros, 2,
    {dtype = "flaot"})
  told("zeros: argument 'device' must be an integer, got number 1.5", lt.zeros, 2, {device = 1.5})
  told("set_default_device: device 'gpu' is unknown", lt.set_default_device, "gpu")
  told("set_default_device: argument 'device' must be a string or an integer, got nil", lt.set_default_device)
  told("cuda.device: argument 'f' must be a function or a module, got number 3", lt.cuda.device, 0, 3)
  told("cuda.memory_allocated: device 'cud' is unknown", lt.cuda.memory_allocated, "cud")
  told("cuda.Event: argument 'options' must be a table, got number 3", lt.cuda.Event, 3)
  told("cuda.Event: argument 'enable_timing' must be a boolean, got number 3", lt.cuda.Event, {enable_timing = 3})
  told("tensor: requires_grad: only tensors of floating point dtype can require gradients, got int64", lt.tensor, {1},
    {dtype = "int64", requires_grad = true})
  equal(lt.device("cpu", 0), "cpu")
  equal(lt.device("cuda"), "cuda")
  equal(lt.device("cuda", 1), "cuda:1")
  equal(lt.device(1), "cuda:1")
  told("device: device 'gpu' is unknown", lt.device, "gpu")
  told("device: the index is given twice, in string 'cuda:1' and number 1", lt.device, "cuda:1", 1)
  told("device: there is one CPU, got index 1", lt.device, "cpu", 1)
end)

test("sizes one by one", function()
  told("zeros: argument 'size' must be a list of integers, got nil in it", lt.zeros, 2, nil, 3)
  told("zeros: argument 'size' must be a list of integers, got string 'float16' in it", lt.zeros, 2, 3, "float16")
  told("view: argument 'size' must be a list of integers, got nil in it", lt.zeros(6).view, lt.zeros(6), 2, nil, 3)
  told("arange: argument 'end' is missing", lt.arange)
  told("arange: argument 'end' is missing", lt.arange, nil)
  deep(lt.arange({["end"] = 2}):totable(), {0, 1})
end)

test("labels of einsum", function()
  local x, y = lt.zeros(3, 4), lt.zeros(4, 5)
  both("einsum: label 'z' is in the result of 'ij,jk->iz' but in no operand",
    function(a, b) return lt.einsum("ij,jk->iz", a, b) end, x, y)
  told("einsum: label 'i' is twice in the result of 'ij,jk->ii'", lt.einsum, "ij,jk->ii", x, y)
  both("einsum: label 'i' of 'ij,ik->jk' has size 3 in operand 0 and 4 in operand 1",
    function(a, b) return lt.einsum("ij,ik->jk", a, b) end, x, y)
  both("einsum: label 'j' of 'ij,j->ij' has size 4 in operand 0 and 3 in operand 1",
    function(a, b) return lt.einsum("ij,j->ij", a, b) end, x, lt.zeros(3))
  told("einsum: label '...' of '...i,...i' has size 3 in operand 0 and 2 in operand 1", lt.einsum, "...i,...i", x,
    lt.zeros(2, 4))
  told("einsum: label 'i' has sizes 3 and 4 in one operand", lt.einsum, "ii->i", x)
  told("einsum: 'ij,kl->ik' is for 2 operands, got 1 tensor", lt.einsum, "ij,kl->ik", x)
  deep(lt.einsum("ij,ij->ij", x, lt.zeros(3, 1)).shape, {3, 4})
end)

test("statistics of one value", function()
  local text = "expected more than 1 value per channel"
  both("batch_norm: " .. text .. " when training, got shape {1, 2}",
    function(x) return F.batch_norm(x, nil, nil, {training = true}) end, lt.zeros(1, 2))
  both("group_norm: " .. text .. ", got shape {1, 2}", function(x) return F.group_norm(x, 2) end, lt.zeros(1, 2))
  told("instance_norm: expected more than 1 spatial element when training, got shape {2, 2, 1}", F.instance_norm,
    lt.zeros(2, 2, 1))
  deep(F.batch_norm(lt.zeros(1, 2, 2), nil, nil, {training = true}).shape, {1, 2, 2})
  deep(F.group_norm(lt.zeros(1, 2), 1).shape, {1, 2})
  deep(nn.BatchNorm1d(2):eval()(lt.zeros(1, 2)).shape, {1, 2})
end)

test("gradients", function()
  both("backward: trying to backward through the graph a second time, after its saved tensors were freed; give retain_graph=true the first time", function(x)
    local loss = (x * x):sum()
    loss:backward()
    loss:backward()
  end, lt.ones(2, {requires_grad = true}))
  local p = lt.ones(2, {requires_grad = true})
  told("grad: a tensor cannot be its own gradient", function() p.grad = p end)
end)

test("modules", function()
  local net = nn.Linear(2, 2)
  told("Linear: argument 'out_features' is missing", nn.Linear, 4)
  told("Linear: argument 'in_features' must be a whole number >= 0, got number 1.5", nn.Linear, 1.5, 2)
  told("Linear: argument 'bias' must be a boolean, got number 3", nn.Linear, 4, 2, {bias = 3})
  told("Linear: unknown option 'foo' (known: bias, device, dtype, in_features, out_features)", nn.Linear, 4, 2,
    {foo = 1})
  told("Conv2d: argument 'kernel_size' is missing", nn.Conv2d, 3, 4)
  told("Conv2d: padding 'same' goes with stride 1 only, got stride (1, 2)", nn.Conv2d, 3, 4, 3,
    {stride = {1, 2}, padding = "same"})
  told("linalg.diagonal: options are a table, not number 1", lt.linalg.diagonal, lt.eye(2), 1)
  told("Conv2d: argument 'kernel_size' must be a whole number >= 0, got string 'a'", nn.Conv2d, 3, 4, {"a", 3})
  told("LayerNorm: argument 'eps' must be a number, got string 'a'", nn.LayerNorm, 4, "a")
  told("Dropout: argument 'p' must be a number between 0 and 1, got number 2", nn.Dropout, 2)
  told("Parameter: argument 'data' must be a Tensor, got number 3", nn.Parameter, 3)
  told("load_state_dict of Linear: a table from names to tensors is needed, not nil", net.load_state_dict, net, nil)
  told("load_state_dict of Linear: weight is number 3, not a Tensor", net.load_state_dict, net,
    {weight = 3, bias = net.bias})
  told("load_state_dict: argument 'strict' must be a boolean", net.load_state_dict, net, {}, {strict = 0})
  told("register_buffer: argument 'name' must be a string, got nil", net.register_buffer, net, nil, lt.zeros(1))
  told("register_buffer: argument 'tensor' must be a Tensor, got number 3", net.register_buffer, net, "x", 3)
  told("register_parameter: argument 'parameter' must be an nn.Parameter, got a Tensor", net.register_parameter, net,
    "x", lt.zeros(1))
  told("add_module: argument 'module' must be a module, got number 3", net.add_module, net, "x", 3)
  told("train: argument 'mode' must be a boolean, got number 3", net.train, net, 3)
  told("Module.eval: is called with a colon, object:eval(), got nil as the object", net.eval)
  told("Module: methods are called with a colon", net.parameters)
  told("Sequential: a module is needed, not number 3", nn.Sequential, nn.ReLU(), 3)
  told("apply: argument 'f' must be a function, got nil", net.apply, net)
  told("Sequential: a module is needed, not nil", nn.Sequential, nn.ReLU(), nil, nn.ReLU())
  equal(#nn.Sequential(), 0)
  equal(#nn.ModuleList(nil), 0)
  told("ReLU: argument 'inplace' must be a boolean, got number 3", nn.ReLU, 3)
  told("zero_grad: argument 'set_to_none' must be a boolean, got number 3", net.zero_grad, net, 3)
  told("zero_grad: unknown option 'set_to_nil' (known: set_to_none)", net.zero_grad, net, {set_to_nil = true})
  told("randperm: argument 'generator' must be made by lt.Generator, got number 3", lt.randperm, 3, {generator = 3})
  told("Sequential: a module is needed, not the class ReLU: make one, ReLU(...)", nn.Sequential, nn.ReLU)
  told("ModuleList: a module is needed, not the class ReLU", nn.ModuleList, {nn.Linear(1, 1), nn.ReLU})
  told("ModuleDict: a module is needed, not the class ReLU", nn.ModuleDict, {a = nn.ReLU})
  told("Conv2d: argument 'padding' must be 'same', 'valid', a number or a list of numbers, got string 'sam'", nn.Conv2d,
    3, 8, 3, {padding = "sam"})
  told("ConvTranspose2d: argument 'padding' must be a number or a list of numbers, got string 'same'",
    nn.ConvTranspose2d, 3, 8, 3, {padding = "same"})
  told("Module.to: parameters can be converted to floating point dtypes only, got int64", net.to, net, "int64")
  told("to: 'flaot32' is neither a dtype", net.to, net, "flaot32")
  told("lt.float33: no such dtype", function() return net:to(lt.float33) end)
  told("xavier_uniform_: argument 'tensor' must be a Tensor, got number 3", nn.init.xavier_uniform_, 3)
  told("zeros_: argument 'tensor' must be a Tensor, got nil", nn.init.zeros_)
  told("normal_: unknown option 'st' (known: mean, std)", nn.init.normal_, net.weight, {st = 3})
  told("normal_: argument 'mean' is given twice", nn.init.normal_, net.weight, 1, {mean = 3})
  told("constant_: argument 'val' must be a number, got nil", nn.init.constant_, net.weight)
  told("calculate_gain: nonlinearity string 'foo' is unknown", nn.init.kaiming_normal_, net.weight,
    {nonlinearity = "foo"})
  told("save: field 'a' is a module or optimiser: save its :state_dict()", lt.save, os.tmpname() .. ".npz", {a = net})
  told("Generator: unknown option 'devic' (known: device)", lt.Generator, {devic = "cpu"})
  told("Generator: device 'gpu' is unknown", lt.Generator, "gpu")
  equal(net.x, nil)
end)

test("data and optimisers", function()
  local p = nn.Parameter(lt.zeros(2))
  told("TensorDataset: argument 1 must be a Tensor, got number 3", lt.data.TensorDataset, 3)
  told("TensorDataset: argument 2 must be a Tensor, got nil", lt.data.TensorDataset, lt.zeros(2), nil)
  told("TensorDataset: tensor 1 has no dimensions", lt.data.TensorDataset, lt.tensor(3))
  local set = lt.data.TensorDataset(lt.zeros(4))
  told("TensorDataset: is no list, got index 0; set:get(i) gives element i", function() return set[0] end)
  told("TensorDataset.batch: argument 'indices' must be a Tensor, got number 3", set.batch, set, 3)
  deep(set:batch({0, 2}).shape, {2})
  told("TensorDataset.get: argument 'i' must be a number, got string 'a'", set.get, set, "a")
  told("FashionMNIST: device 'cud' is unknown", lt.data.FashionMNIST, {device = "cud"})
  told("DataLoader: is no list, got index 1; for x, y in loader do", function() return lt.data.DataLoader(set)[1] end)
  told("DataLoader: argument 'batch_size' must be a whole number >= 1, got string 'a'", lt.data.DataLoader, set,
    {batch_size = "a"})
  told("DataLoader: argument 'shuffle' must be a boolean, got number 1", lt.data.DataLoader, set, {shuffle = 1})
  told("DataLoader: argument 'generator' must be made by lt.Generator, got number 3", lt.data.DataLoader, set,
    {generator = 3})
  told("DataLoader: argument 'dataset' must be a dataset", lt.data.DataLoader, 3)
  told("SGD: argument 'lr' must be a number >= 0, got string 'a'", lt.optim.SGD, {p}, {lr = "a"})
  told("SGD: argument 'params' must be a list of Tensors", lt.optim.SGD, p)
  told("SGD: params[2] is number 3, not a Tensor", lt.optim.SGD, {p, 3})
  told("Adam: argument 'amsgrad' must be a boolean, got number 1", lt.optim.Adam, {p}, {amsgrad = 1})
  local opt = lt.optim.SGD({p})
  told("Optimizer.step: is called with a colon", opt.step)
  told("Optimizer.step: argument 'closure' must be a function or a module, got number 3", opt.step, opt, 3)
  opt.param_groups[1].lr = "a"
  told("SGD: argument 'lr' must be a number, got string 'a'", opt.step, opt)
  told("progress: argument 'total' must be a number, got string 'a'", lt.progress, print, {total = "a"})
  told("progress: argument 'desc' must be a string, got number 3", lt.progress, print, {desc = 3})
  told("add_param_group: argument 'group' must be a table with params, got nil", opt.add_param_group, opt)
  told("load_state_dict: what state_dict gave is needed, not number 3", opt.load_state_dict, opt, 3)
  told("StepLR: argument 'step_size' must be a number, got nil", lt.optim.lr_scheduler.StepLR, opt)
end)

test("points without coordinates", function()
  both("histogramdd: the points must have 1 coordinate or more, got shape {5, 0}", function(x)
    return (lt.histogramdd(x))
  end, lt.randn(5, 0))
end)

h.finish()
