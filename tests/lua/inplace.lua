-- Tests in-place ops on the tape: gradients are those of the forms that make new tensors, eagerly and compiled, and no
-- copy is made that backward does not read.
local h = require "harness"
local lt = require "lutra"
local nn, F = lt.nn, lt.nn.functional
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises

-- Name, further arguments: a number or "tensor" for one that requires grad.
local ops = {
  {"abs"}, {"acos"}, {"acosh"}, {"add", "tensor"}, {"addcdiv", "tensor", "tensor"}, {"addcmul", "tensor", "tensor"},
    {"asin"}, {"asinh"}, {"atan"},
  {"atan2", "tensor"}, {"atanh"}, {"ceil"}, {"celu", 0.5}, {"clamp", 0.3, 0.6}, {"clamp", "tensor"},
    {"clamp_max", 0.4}, {"clamp_max", "tensor"},
  {"clamp_min", 0.4}, {"clamp_min", "tensor"}, {"copysign", "tensor"}, {"cos"}, {"cosh"}, {"cumprod", -1},
    {"cumsum", -1}, {"deg2rad"}, {"digamma"},
  {"div", "tensor"}, {"div", 3}, {"elu", 0.5}, {"erf"}, {"erfc"}, {"erfinv"}, {"exp"}, {"exp2"}, {"expm1"}, {"floor"},
    {"fmod", "tensor"}, {"frac"},
  {"gelu"}, {"hardshrink", 0.3}, {"hardsigmoid"}, {"hardswish"}, {"hardtanh", 0.3, 0.6}, {"hypot", "tensor"},
    {"ldexp", "tensor"}, {"leaky_relu", 0.1},
  {"lerp", "tensor", 0.3}, {"lerp", "tensor", "tensor"}, {"lgamma"}, {"log"}, {"log10"}, {"log1p"}, {"log2"}, {"logit"},
    {"logsigmoid"}, {"mish"},
  {"mul", "tensor"}, {"mul", 3}, {"nan_to_num"}, {"neg"}, {"polygamma", 2}, {"i0"}, {"mvlgamma", 1}, {"pow", 3},
    {"pow", "tensor"}, {"rad2deg"}, {"reciprocal"}, {"relu"}, {"relu6"},
  {"remainder", "tensor"}, {"round"}, {"rsqrt"}, {"selu"}, {"sgn"}, {"sigmoid"}, {"sign"}, {"silu"}, {"sin"}, {"sinc"},
    {"sinh"}, {"softplus"},
  {"softshrink", 0.3}, {"softsign"}, {"sqrt"}, {"square"}, {"sub", "tensor"}, {"tan"}, {"tanh"}, {"tanhshrink"},
    {"threshold", 0.4, 0.1}, {"tril"},
  {"triu"}, {"trunc"}, {"xlogy", "tensor"},
}

-- The op in place or not on what x makes, and gradients of x and of the tensors among the arguments.
local function run(op, in_place, view, x, others)
  local function f(a, b, c)
    local y = a * (op[1] == "acosh" and 16 or 1)
    local t = view and y[{{0, 2}, {0, 2}}] or y
    if view and not in_place then
      return lt.cat({lt.cat({t[op[1]](t, b, c), y[{{0, 2}, {2, 3}}]}, 1), y[{{2, 3}}]})
    end
    local r = t[op[1] .. (in_place and "_" or "")](t, b, c)
    return view and y or r
  end
  local leaves = {x:clone():requires_grad_(true)}
  local args = {}
  for i = 2, #op do
    if op[i] == "tensor" then
      local t = others[i - 1]
      if view then t = t[{{0, 2}, {0, 2}}] end
      leaves[#leaves + 1] = t:clone():requires_grad_(true)
      args[i - 1] = leaves[#leaves]
    else
      args[i - 1] = op[i]
    end
  end
  local r = (in_place == "compiled" and lt.compile(f) or f)(leaves[1], args[1], args[2])
  r:backward(lt.arange(9):view(3, 3):to("float64") + 1)
  local out = {r:detach()}
  for i, leaf in ipairs(leaves) do out[i + 1] = leaf.grad end
  return out
end

lt.manual_seed(7)
local x = lt.rand(3, 3, {dtype = "float64"}) * 0.8 + 0.1
local others = {lt.rand(3, 3, {dtype = "float64"}) * 0.8 + 0.1, lt.rand(3, 3, {dtype = "float64"}) * 0.8 + 0.1}
-- The in-place form of these saves its result instead of its input, so the gradient is rounded differently.
local by_result = {elu = true, celu = true, selu = true}

for _, op in ipairs(ops) do
  for _, view in ipairs {false, true} do
    lt.reset()
    test(op[1] .. "_" .. (view and " of a view" or ""), function()
      local want = run(op, false, view, x, others)
      local got = run(op, "eager", view, x, others)
      local compiled = run(op, "compiled", view, x, others)
      equal(#got, #want)
      for i, w in ipairs(want) do
        truthy(by_result[op[1]] and got[i]:allclose(w, {rtol = 1e-14}) or got[i]:equal(w), i .. ":\n"
          .. tostring(got[i]) .. "\n" .. tostring(w))
        truthy(compiled[i]:equal(got[i]), "compiled " .. i .. ":\n" .. tostring(compiled[i]) .. "\n"
          .. tostring(got[i]))
      end
    end)
  end
end

test("no in-place op is left out", function()
  local known = {}
  for _, op in ipairs(ops) do known[op[1] .. "_"] = true end
  -- Ops without a gradient, other names of tested ops, and ops with their own test below.
  local others = [[bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift eq ne lt le gt ge logical_and logical_or
    logical_xor logical_not gcd lcm heaviside floor_divide less_equal less greater greater_equal not_equal
    float_power __version_
    divide true_divide negative subtract multiply arctanh absolute clip fix arccos arccosh arcsin arcsinh arctan arctan2
    copy fill zero addr addmv baddbmm addbmm addmm renorm index_put scatter index_add index_copy
    index_fill index_reduce scatter_add scatter_reduce
    put masked_scatter masked_fill nextafter igamma igammac rrelu embedding_renorm]]
  for name in others:gmatch("%S+") do known[name .. "_"] = true end
  for name in pairs(lt) do truthy(known[name] or not name:match("_$"), name) end
end)

test("products, indices and masks in place", function()
  local index, mask = lt.tensor({2, 0}, {dtype = "int64"}), x:gt(0.5)
  local row, places = others[1][{{0, 2}}], lt.tensor({{2, 0, 1}, {0, 2, 1}}, {dtype = "int64"})
  local cases = {
    {"addmm", "", others[1], others[2]}, {"addr", "", others[1][0], others[2][1]}, {"renorm", "", 2, 0, 0.7},
      {"index_add", "", 0, index, row},
    {"index_copy", "", 0, index, row}, {"index_fill", "", 1, index, 2}, {"index_reduce", "", 0, index, row, "prod"},
      {"scatter", "", 0, places, row},
    {"scatter_add", "", 0, places, row}, {"scatter_reduce", "", 0, places, row, "prod"},
      {"scatter_reduce", "", 0, places, row, "amax"},
    {"put", "", index, row[0][{{0, 2}}]}, {"masked_scatter", "", mask, others[1]},
      {"masked_fill", "", mask, others[1][0][0]}, {"masked_fill", "", mask, 2},
    {"index_put", "", {index}, row},
  }
  for _, case in ipairs(cases) do
    lt.reset()
    local function grads(in_place, compiled)
      local leaves, args = {x:clone():requires_grad_(true)}, {}
      for i = 3, #case do
        args[i - 2] = case[i]
        if type(case[i]) == "userdata" and case[i].dtype == "float64" then
          args[i - 2] = case[i]:clone():requires_grad_(true)
          leaves[#leaves + 1] = args[i - 2]
        end
      end
      local function f(a, p, q, r, s)
        local y = a * 1
        local out = y[case[1] .. (in_place and "_" or "")](y, p, q, r, s)
        return out
      end
      (compiled and lt.compile(f) or f)(leaves[1], args[1], args[2], args[3], args[4]):backward(others[2])
      for i, leaf in ipairs(leaves) do leaves[i] = leaf.grad end
      return leaves
    end
    local want = grads(false)
    for _, got in ipairs {grads(true), grads(true, true)} do
      for i, w in ipairs(want) do
        truthy(got[i]:equal(w), case[1] .. "_ " .. i .. ":\n" .. tostring(got[i]) .. tostring(w))
      end
    end
  end
end)

-- Copies in the graph of f(h, w), which both need a gradient.
local function copies(f)
  local a, w = lt.rand(4, {requires_grad = true}), lt.rand(4, {requires_grad = true})
  local text = tostring(lt.explain(function(a) local y = a * 1 f(y, w) return y end)(a))
  return select(2, text:gsub("= clone%(", ""))
end

test("what backward does not read is not copied", function()
  for _, f in ipairs {
    function(y) y:mul_(2) end, function(y) y:add_(1) end, function(y, w) y:add_(w) end, function(y) y:relu_() end,
      function(y) y:leaky_relu_() end,
    function(y) y:elu_() end, function(y) y:selu_() end, function(y) y:celu_() end, function(y) y:sigmoid_() end,
      function(y) y:exp_() end,
    function(y, w) y:mul_(w:detach()) end, function(y, w) y:div_(w:detach()) end,
      function(y) y:masked_fill_(y:detach():gt(1), 0) end,
  } do equal(copies(f), 0) end
  for _, f in ipairs {
    function(y, w) y:mul_(w) end, function(y) y:sin_() end, function(y) y:relu6_() end, function(y, w) y:div_(w) end,
      function(y) y:silu_() end,
    function(y) y:clamp_min_(0.5) end,
  } do equal(copies(f), 1) end
end)

test("a tensor that is modified after it was saved is refused", function()
  local function refused(f)
    local y = lt.rand(4, {requires_grad = true}) * 1
    f(y)
    raises("modified by an inplace operation", function() y:sum():backward() end)
  end
  refused(function(y) y:relu_():mul_(3) end)
  refused(function(y) y:sigmoid_():add_(1) end)
  refused(function(y) y:mul_(y) end)
  refused(function(y) y:leaky_relu_():add_(1) end)
  refused(function(y) y:addcmul_(y, lt.rand(4, {requires_grad = true})) end)
  raises("no gradient for a negative negative_slope",
    function() (lt.rand(4, {requires_grad = true}) * 1):leaky_relu_(-0.1):sum():backward() end)
end)

test("the derivative of the derivative of in-place ops", function()
  local function of(f)
    local a, w = lt.tensor({0.3, -0.4, 0.9}, {requires_grad = true}), lt.tensor({2, 3, 4}, {requires_grad = true})
    local r = f(a, w):sum()
    local g = lt.grad(r, a, {create_graph = true})
    return lt.grad((g * g):sum(), {a, w})
  end
  local a1, w1 = of(function(a, w) return ((a * a) * w):sin():exp() end)
  local a2, w2 = of(function(a, w) return (a * a):mul_(w):sin_():exp_() end)
  truthy(a1:equal(a2) and w1:equal(w2))
end)

-- A block of a mobile net, every activation in place, trained by a step in one graph.
local function block(inplace)
  lt.manual_seed(3)
  local net = nn.Sequential(nn.Conv2d(3, 8, 3, {padding = 1, bias = false}), nn.BatchNorm2d(8),
    nn.ReLU6({inplace = inplace}),
    nn.Conv2d(8, 8, 3, {padding = 1, groups = 8, bias = false}), nn.BatchNorm2d(8), nn.ReLU6({inplace = inplace}),
      nn.Conv2d(8, 16, 1),
    nn.Hardswish({inplace = inplace}), nn.Conv2d(16, 16, 1), nn.SiLU({inplace = inplace}), nn.Flatten(),
      nn.Linear(16 * 64, 4))
  return net, lt.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
end

test("activations in place train in one graph", function()
  local function losses(inplace, compiled)
    local net, opt = block(inplace)
    local step = h.train_step(net, opt)
    if compiled then step = lt.compile(step, {fullgraph = true}) end
    lt.manual_seed(4)
    local out = {}
    for i = 1, 4 do out[i] = step(lt.randn(2, 3, 8, 8), lt.tensor({1, 3}, {dtype = "int64"})):item() end
    return out
  end
  local want = losses(false, false)
  h.deep(losses(true, false), want)
  h.deep(losses(true, true), want)
  h.deep(losses(false, true), want)
end)

test("the numbers of an op that is decomposed at its call decide its dtype in place, too", function()
  local v = lt.tensor {true, false}
  for _ = 1, 2 do
    equal(tostring(lt.zeros({2, 2}, {dtype = "bool"}):addr_(v, v)), "tensor([[ True, False],\n        [False, False]])")
  end
end)

test("inplace of nn.functional stands last, as in PyTorch, and is a boolean", function()
  local before = {
    relu = {}, relu6 = {}, selu = {}, silu = {}, mish = {}, hardswish = {}, hardsigmoid = {}, elu = {1}, celu = {1},
    leaky_relu = {0.01}, hardtanh = {-1, 1}, threshold = {0, 1}, rrelu = {0.1, 0.3, true}, dropout = {0.5, true},
    alpha_dropout = {0.5, true}, feature_alpha_dropout = {0.5, true}, dropout1d = {0.5, true}, dropout2d = {0.5, true},
    dropout3d = {0.5, true},
  }
  for name, args in pairs(before) do
    local n = #args + 1
    local function f(x, flag)
      local all = {unpack(args)}
      all[n] = flag
      return F[name](x, unpack(all, 1, n))
    end
    local shape = {2, 2, 3, 3, 3}
    for d = 3 + (tonumber(name:match("dropout(%d)d")) or 3), 5 do shape[d] = nil end
    lt.reset()
    for _, call in ipairs {f, lt.compile(f)} do
      for _, flag in ipairs {true, false} do
        local x = lt.randn(shape)
        local old, y = x:clone(), call(x, flag)
        equal(y:data_ptr() == x:data_ptr(), flag, name)
        if not flag then truthy(x:equal(old), name) end
      end
      raises(name .. ": argument 'inplace' must be a boolean, got number 1", call, lt.ones(shape), 1)
    end
  end
end)

test("an input that is copied into another and written then gives what it was", function()
  local programs = {
    function(c, d, e) c:copy_(d) e:copy_(c) d:mul_(2) c:add_(1) return c + e end,
    function(c, d, e) e:copy_(d) c:copy_(e) d:mul_(2) return c:t() end,
    function(c, d, e) local r = d * 2 c:copy_(d) d[0] = 5 return r + e end,
    function(c, d, e) local r = d + e c:copy_(d[1]:expand(3)) d:add_(1) e:view(3, 1):copy_(c:view(3, 1)) return r end,
    function(c, d, e) local old = d:clone() d:copy_(c) c:copy_(e) e:copy_(old) return d end,
  }
  for i, program in ipairs(programs) do
    for _, grad in ipairs {false, true} do
      local function seen(f)
        local c, d, e = lt.arange(3):float(), lt.tensor {4, 5, 6}, lt.tensor {-1, -2, -3}
        local w = lt.tensor({1, 2, 3}, {requires_grad = grad})
        c, d, e = c * w, d * w, e * w
        local out = f(c, d, e)
        return ("%s %s %s %s"):format(out:detach(), c:detach(), d:detach(), e:detach())
      end
      h.same_by_backends(seen, program, "program " .. i)
    end
  end
end)

h.finish()
