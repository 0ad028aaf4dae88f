-- Tests what PyTorch refuses or allows, and the layouts of its results; lt.is_compiling; captures with long strings.
local lt = require "lutra"
local h = require "harness"
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy
local F = lt.nn.functional

-- f(...) raises `told`, eagerly and compiled.
local function refuses(told, f, ...)
  raises(told, f, ...)
  raises(told, lt.compile(f), ...)
end

test("options that are none", function()
  raises("disable: unknown option 'reasn'", lt.disable, print, {reasn = "x"})
  equal(lt.disable(print, {reason = "x"}), print)
end)

test("checks do not depend on how many elements there are", function()
  for _, n in ipairs {0, 2} do
    refuses("celu: alpha must not be zero", function(x) return F.celu(x, 0) end, lt.ones(n))
  end
end)

test("no bool is subtracted", function()
  local x, b = lt.ones(2), lt.ones(2):bool()
  for _, pair in ipairs {{x, b}, {b, x}, {x, true}, {b, b}, {b, 1}} do
    refuses("subtraction with a bool", function(a, c) return lt.sub(a, c) end, unpack(pair))
  end
  raises("subtraction with a bool", lt.rsub, b, 1)
  raises("subtraction with a bool", x.sub_, x, b)
end)

test("a variance is not negative", function()
  local x = lt.ones(2)
  refuses("gaussian_nll_loss: var must not be negative",
    function(a) return F.gaussian_nll_loss(a, a, lt.tensor {1, -1}) end, x)
  refuses("gaussian_nll_loss: var must not be negative", function(a) return F.gaussian_nll_loss(a, a, -1) end, x)
  equal(F.gaussian_nll_loss(x, x, lt.ones(2)):item(), 0)
end)

test("masked_fill casts its value", function()
  local f = function(x, m, v) return x:masked_fill(m, v) end
  for _, run in ipairs {f, lt.compile(f)} do
    local x = lt.tensor({2 ^ 53, 1}, {dtype = "int64"})
    deep(run(x, lt.tensor {false, true}, lt.tensor(1.5)):totable(), {2 ^ 53, 1})
    deep(run(x, lt.tensor {true, false}, lt.tensor(-2.5)):totable(), {-2, 1})
    equal(run(x, lt.tensor {true, false}, lt.tensor(1.5)).dtype, "int64")
  end
end)

test("out= is none of what a list is joined of", function()
  local x = lt.ones(2)
  local told = "share some memory"
  raises(told, lt.cat, {x, x}, {out = x})
  local y = lt.ones(4)
  raises(told, lt.stack, {y[{{0, 2}}], y[{{2, 4}}]}, {out = y:view(2, 2)})
  deep(lt.cat({x, x}, {out = lt.zeros(4)}):totable(), {1, 1, 1, 1})
end)

test("scatters, and fills and copies by a mask or an index, are contiguous as PyTorch's are", function()
  local x, source = lt.ones(3, 4, 2):permute(2, 1, 0), lt.ones(2, 1, 3)
  local i, at = lt.zeros({1}, {dtype = "int64"}), lt.zeros({2, 4, 3}, {dtype = "int64"})
  local mask = lt.ones(2, 4, 3):bool()
  local calls = {
    scatter = function(t) return t:scatter(1, at, t) end,
    scatter_number = function(t) return t:scatter(1, at, 2) end,
    scatter_add = function(t) return t:scatter_add(1, at, t) end,
    scatter_reduce = function(t) return t:scatter_reduce(1, at, t, "amax") end,
    index_add = function(t) return t:index_add(1, i, source) end,
    index_copy = function(t) return t:index_copy(1, i, source) end,
    index_reduce = function(t) return t:index_reduce(1, i, source, "amax") end,
    masked_fill = function(t) return t:masked_fill(mask, 2) end,
    masked_scatter = function(t) return t:masked_scatter(mask, lt.ones(24)) end,
  }
  for name, f in pairs(calls) do
    for _, run in ipairs {f, lt.compile(f)} do
      deep({run(x):stride()}, {12, 3, 1}, 0, name)
      deep({run(x:detach():requires_grad_()):stride()}, {12, 3, 1}, 0, name)
    end
  end
  deep({x:index_fill(1, i, 2):stride()}, {1, 2, 8})
end)

test("beta 0: the input is not read, and its gradient is zeros", function()
  local shapes = {
    addmm = {{2, 2}, {2, 3}, {3, 2}},
    baddbmm = {{1, 2, 2}, {1, 2, 2}, {1, 2, 2}},
    addmv = {{2}, {2, 2}, {2}},
    addr = {{2, 2}, {2}, {2}},
  }
  for name, shape in pairs(shapes) do
    local f = function(a, b, c) return lt[name](a, b, c, {beta = 0}) end
    for _, run in ipairs {f, lt.compile(f)} do
      local a, b, c = lt.full(shape[1], 0 / 0, {requires_grad = true}), lt.ones(shape[2]), lt.ones(shape[3])
      local r = run(a, b, c)
      r:sum():backward()
      equal(a.grad:abs():max():item(), 0, name)
      truthy(r:isfinite():all():item(), name)
    end
  end
end)

test("is_compiling in the whole call of a compiled function", function()
  local seen = {}
  local f = lt.compile(function(x)
    seen[1] = lt.is_compiling()
    lt.graph_break("here")
    seen[2] = lt.is_compiling()
    return x * 2
  end)
  local opless = lt.compile(function() return lt.is_compiling() end)
  local function callee()
    local now = lt.is_compiling()
    return now
  end
  local hidden = lt.disable(function() return callee() end)
  local broken = lt.compile(function(x)
    tostring(print)
    lt.graph_break("here")
    local a = callee()
    lt.graph_break("there")
    return a, hidden(), x + 1
  end)
  for _ = 1, 3 do
    f(lt.ones(1))
    deep(seen, {true, true})
    equal(opless(), true)
    local a, b = broken(lt.ones(1))
    deep({a, b}, {true, false})
    equal(lt.is_compiling(), false)
  end
end)

test("a capture does not keep the square of a string", function()
  local function f(x, n)
    local s = ""
    for i = 1, n do s = s .. i end
    return x + #s
  end
  equal(lt.compile(f)(lt.ones(1), 500):item(), 1393)
  local long = lt.compile(function(...) return f(...) end)
  equal(long(lt.ones(1), 20000):item(), 88895)
  local peak = 0
  local status = io.open("/proc/self/status")
  if status then
    peak = tonumber(status:read("*a"):match "VmHWM:%s*(%d+)")
    status:close()
  end
  truthy(peak < 700000 + h.quarantine, "kB at most: " .. peak)
end)

test("keywords may have NumPy's names", function()
  local x = lt.tensor {{1, 2}, {3, 4}}
  local f = function(a) return a:sum {axis = 1, keepdims = true} end
  deep(f(x):totable(), {{3}, {7}})
  deep(lt.compile(f)(x):totable(), {{3}, {7}})
  deep(lt.add {x = x, x2 = x}:totable(), {{2, 4}, {6, 8}})
  deep(lt.abs {a = x}:totable(), x:totable())
  deep(lt.maximum {x1 = x, x2 = -x}:totable(), x:totable())
  deep(lt.cat({x, x}, {axis = 1}):totable(), {{1, 2, 1, 2}, {3, 4, 3, 4}})
  raises("sum: unknown keyword 'axes'", lt.sum, x, {axes = 1})
end)

test("a view of a leaf is not written, where the leaf is a view itself", function()
  local x = lt.zeros(6):view(2, 3):requires_grad_()
  raises("a view of a leaf Variable that requires grad", function() return x[0]:add_(1) end)
  raises("a leaf Variable that requires grad", x.add_, x, 1)
  lt.no_grad(function() x[0]:add_(1) end)
  deep(x:totable(), {{1, 1, 1}, {0, 0, 0}})
end)

test("results lie as PyTorch's do", function()
  local strides = function(t) return {t:stride()} end
  local x = lt.arange(12):view(3, 4)
  for k, want in pairs {[0] = {4, 1}, [1] = {1, 4}, [2] = {4, 1}, [3] = {1, 4}} do
    local f = function(a) return a:rot90(k) end
    deep(strides(f(x)), want)
    deep(strides(lt.compile(f)(x)), want)
  end
  deep(x:rot90():totable(), {{3, 7, 11}, {2, 6, 10}, {1, 5, 9}, {0, 4, 8}})
  local mask = x:gt(4)
  deep(strides(mask:nonzero()), {1, 7})
  deep(mask:nonzero():totable(), {{1, 1}, {1, 2}, {1, 3}, {2, 0}, {2, 1}, {2, 2}, {2, 3}})
  deep(strides(lt.where(mask)[1]), {1})
  deep(strides(lt.nonzero(mask, {out = lt.empty({0}, {dtype = "int64"})})), {1, 7})
  local y = lt.tensor {{{1, 2}, {0, 0}, {1, 2}}, {{3, 4}, {5, 5}, {3, 4}}}
  local different = y:unique {dim = 1}
  deep(different:totable(), {{{0, 0}, {1, 2}}, {{5, 5}, {3, 4}}})
  deep(strides(different), {2, 4, 1})
end)

test("an empty out= of an elementwise op takes the result's strides", function()
  local x = lt.arange(6, {dtype = "float32"}):view(2, 3):t()
  local strides = function(t) return {t:stride()} end
  deep(strides(lt.add(x, 1, {out = lt.empty(0)})), {1, 3})
  deep(strides(lt.exp(x, {out = lt.empty(0)})), {1, 3})
  deep(strides(lt.add(x, 1, {out = lt.empty(3, 2)})), {2, 1})
  deep(strides(lt.cat({x, x}, {out = lt.empty(0)})), {2, 1})
end)

test("dims of a number are counted, too", function()
  local s = lt.tensor(2)
  refuses("sum: dim 0 appears multiple times", function(a) return a:sum {0, -1} end, s)
  refuses("flip: dim 0 appears multiple times", function(a) return a:flip(0, 0) end, s)
  refuses("squeeze: dim 0 appears multiple times", function(a) return a:squeeze {0, -1} end, s)
  refuses("mode: dim 2 is out of range", function(a) return a:mode(2) end, s)
  refuses("roll: dim 0 is none of a tensor of no dimensions", function(a) return a:roll(1, 0) end, s)
  equal(s:roll(1):item(), 2)
  equal(s:sum(-1):item(), 2)
end)

test("what PyTorch refuses of clamp and nanmean", function()
  local x = lt.tensor {1, 5}
  refuses("clamp: 'min' and 'max' are two numbers or two tensors",
    function(a) return a:clamp(a, 3) end, x)
  deep(x:clamp(lt.tensor(2), 3):totable(), {2, 3})
  deep(x:clamp(nil, x - 1):totable(), {0, 4})
  refuses("nanmean: expected a floating point dtype",
    function(a) return a:nanmean {dtype = "float64"} end, x:long())
end)

test("trapezoid of integers wraps where PyTorch's does", function()
  local u = lt.tensor({{200, 100}, {100, 90}, {80, 70}}, {dtype = "uint8"})
  for _, f in ipairs {lt.trapezoid, lt.compile(function(...) return lt.trapezoid(...) end)} do
    deep(f(u, {dim = 0}):totable(), {368, 175})
    deep(f(u, {dim = 1}):totable(), {278, 95, 75})
  end
end)

test("gradient of a number has no parts, and no steps go with it", function()
  local s = lt.tensor(1.5, {requires_grad = true})
  local f = function(a) return #lt.gradient(a) end
  equal(f(s), 0)
  equal(lt.compile(f)(s), 0)
  refuses("gradient: expected spacing of 0 dimensions, got 2",
    function(a) return lt.gradient(a, {spacing = {2, 3}}) end, s)
end)

test("linear with a vector: each gradient by itself", function()
  local x, w, b = lt.rand(2, 5, 4), lt.rand(4), lt.tensor(1.5)
  for k = 1, 3 do
    local inputs = {x:clone(), w:clone(), b:clone()}
    inputs[k]:requires_grad_()
    local f = function(...) return F.linear(...) end
    local want = lt.grad(f(unpack(inputs)):sum(), {inputs[k]})
    deep(want.shape, inputs[k].shape)
    truthy(lt.grad(lt.compile(f)(unpack(inputs)):sum(), {inputs[k]}):equal(want))
  end
end)

test("questions about dtypes and single elements", function()
  equal(lt.can_cast("int8", "float16"), true)
  equal(lt.can_cast("float32", "int64"), false)
  equal(lt.can_cast {from_ = "bool", to = "uint8"}, true)
  equal(lt.can_cast("complex64", "float32"), false)
  local signed = {bool = false, uint8 = false, uint16 = false, int8 = true, float16 = true, complex64 = true}
  for dtype, want in pairs(signed) do
    equal(lt.zeros({1}, {dtype = dtype}):is_signed(), want)
  end
  equal(lt.is_nonzero(lt.tensor {{2}}), true)
  equal(lt.tensor(-0.0):is_nonzero(), false)
  equal(lt.is_nonzero(lt.tensor {2i}), true)
  raises("is_nonzero: expects a tensor of one element, got shape {2}", lt.is_nonzero, lt.ones(2))
  equal(lt.ones(2):type("int8").dtype, "int8")
end)

test("copies of views have memory of their own, in compiled code, too", function()
  local x = lt.arange(6):float():view(2, 3)
  local function copies(a)
    return lt.expand_copy(a, {2, 2, 3}), lt.t_copy(a), lt.view_copy(a, {6}), lt.split_copy(a, 1)[2],
      lt.unbind_copy(a)[1]
  end
  for _, f in ipairs {copies, lt.compile(copies, {fullgraph = true})} do
    for _, copy in ipairs {f(x)} do
      truthy(copy:is_contiguous() and copy:data_ptr() ~= x:data_ptr(), "a contiguous copy")
      copy:zero_()
    end
    equal(x:sum():item(), 15)
  end
  truthy(not pcall(function() return x.expand_copy end), "a function only")
end)

test("lt.special has functions of lt by their names there", function()
  local x = lt.tensor {0.25, 0.5}
  truthy(lt.special.expit(x):equal(x:sigmoid()))
  truthy(lt.compile(function(a) return lt.special.gammaln(a) end, {fullgraph = true})(x):equal(x:lgamma()))
  raises("special.expit: argument 'input' must be a Tensor, got number 1", lt.special.expit, 1)
  equal(lt.special.airy_ai, nil)
end)

-- Values of PyTorch.
test("lgamma of a number near 0 is as large as its logarithm says", function()
  local x = lt.tensor({-1e-304, -2e-305, 1e-308, -1e-310, 5e-324}, {dtype = "float64"})
  local expected = {699.9858682701899, 701.595306182624, 709.1962086421661, 713.8013788281542, 744.4400719213812}
  for _, f in ipairs {lt.lgamma, lt.compile(function(t) return t:lgamma() end)} do
    truthy(f(x):allclose(lt.tensor(expected, {dtype = "float64"}), {rtol = 1e-15, atol = 0}))
  end
end)

test("as_strided_scatter goes by the strides and the offset of its input", function()
  local part = lt.arange(24, {dtype = "float32"}):reshape(4, 6):narrow(1, 0, 3)
  local with = part:as_strided_scatter(lt.full({2, 2}, 100), {2, 2}, {3, 1}, 0)
  truthy(with:equal(lt.tensor {{100, 100, 2}, {6, 7, 8}, {12, 13, 14}, {18, 19, 20}}))
  local later = lt.arange(12, {dtype = "float32"}):narrow(0, 4, 6)
  truthy(later:as_strided_scatter(lt.full({2}, 100), {2}, {2}, 5):equal(lt.tensor {4, 100, 6, 100, 8, 9}))
end)

test("what as_strided_scatter overwrites has no gradient", function()
  local function grads(x, src)
    local y = x:as_strided_scatter(src, {2, 2}, {4, 2}, 1)
    return lt.grad(y, {x, src}, {grad_outputs = lt.arange(12):float():view(3, 4)})
  end
  for _, f in ipairs {grads, lt.compile(grads)} do
    local of_x, of_src = f(lt.zeros(3, 4):requires_grad_(), lt.ones(2, 2):requires_grad_())
    deep(of_x:totable(), {{0, 0, 2, 0}, {4, 0, 6, 0}, {8, 9, 10, 11}})
    deep(of_src:totable(), {{1, 3}, {5, 7}})
  end
end)

test("dimensions lie in memory as empty_permuted says", function()
  for _, f in ipairs {lt.empty_permuted, lt.compile(function(...) return lt.empty_permuted(...) end)} do
    deep({f({2, 3, 4}, {2, 0, 1}):stride()}, {3, 1, 6})
    deep({f({2, 3}, {0, 1}, {dtype = "int8"}):stride()}, {3, 1})
  end
  local x = lt.zeros(2, {dtype = "int16"})
  local y = x:new_empty_strided({2, 3}, {1, 2})
  equal(y.dtype, "int16")
  deep({y:stride()}, {1, 2})
end)

test("a factor and a step a dimension, in compiled code, too", function()
  local x = lt.arange(20):float():view(1, 1, 4, 5)
  local function resampled(a) return F.interpolate(a, {scale_factor = {2, 1.5}, mode = "bilinear"}) end
  deep(resampled(x).shape, {1, 1, 8, 7})
  truthy(lt.compile(resampled, {fullgraph = true})(x):equal(resampled(x)))
  refuses("interpolate: scale_factor must be a number or a list of 2, got 3 numbers",
    function(a) return F.interpolate(a, {scale_factor = {2, 2, 1.5}}) end, x)
  local function slopes(a) return unpack(lt.gradient(a, {spacing = {2, 0.5}})) end
  local by_rows, by_columns = slopes(x:view(4, 5))
  equal(by_rows[{0, 0}]:item(), 2.5)
  equal(by_columns[{0, 0}]:item(), 2)
  truthy(lt.compile(slopes, {fullgraph = true})(x:view(4, 5)):equal(by_rows))
end)

test("lt.help is the session's help", function()
  truthy(tostring(lt.help):find("Lutra is a tensor language", 1, true))
  lt.help(lt.scan)
end)

h.finish()
