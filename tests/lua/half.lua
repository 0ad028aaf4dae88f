-- Tests float16 and bfloat16: values are rounded where PyTorch 2.11 does, and training agrees eagerly and compiled.
local lt = require "lutra"
local h = require "harness"
local test, equal, deep = h.test, h.equal, h.deep

local function values(t) return t:to("float64"):totable() end

test("numbers beside half tensors", function()
  local a = lt.tensor({0.1, 1.3, 3}, {dtype = "float16"})
  deep(values(a * 0.1), {0.0099945068359375, 0.1300048828125, 0.300048828125})
  deep(values(a ^ 0.3), {0.5009765625, 1.08203125, 1.390625})
  deep(values(a:remainder(0.3)), {0.0999755859375, 0.099609375, 0.299560546875})
  deep(values(0.3 - a), {0.2000732421875, -1.0, -2.69921875})
  deep(a:eq(0.1):totable(), {true, false, false})
  deep(values(a:clamp(0.3, 1.7)), {0.300048828125, 1.2998046875, 1.7001953125})
  local b = lt.tensor({0.1, 1.3, 3}, {dtype = "bfloat16"})
  deep(values(b * 0.1), {0.010009765625, 0.1298828125, 0.30078125})
  deep(values(b:remainder(0.3)), {0.10009765625, 0.09375, 0.29296875})
  deep(values(0.3 - b), {0.201171875, -0.99609375, -2.703125})
  deep(b:eq(0.1):totable(), {true, false, false})
  equal((a + b).dtype, "float32")
  equal((a * lt.tensor(0.1)).dtype, "float16")
end)

test("softmax's gradient is rounded once", function()
  local function gradient(f, dtype, x, g)
    x = lt.tensor(x, {dtype = dtype}):requires_grad_()
    f(x):backward(lt.tensor(g, {dtype = dtype}))
    return values(x.grad)
  end
  for _, wrap in ipairs {function(f) return f end, lt.compile} do
    local soft = wrap(function(x) return x:softmax(0) end)
    deep(gradient(soft, "bfloat16", {-2, 3}, {1.375, 2.484375}), {-0.007354736328125, 0.0101318359375})
    local logs = wrap(function(x) return x:log_softmax(0) end)
    local once = gradient(logs, "float32", {-2, 3}, {1.375, 2.484375})
    for i, v in ipairs(gradient(logs, "bfloat16", {-2, 3}, {1.375, 2.484375})) do
      h.truthy(math.abs(v - once[i]) <= math.abs(once[i]) * 2 ^ -7)
    end
  end
end)

test("rounding to half: ties to even, denormals, overflow, NaN", function()
  local x = lt.tensor({2049, 2051, 65519, 65520, 6e-8, 2e-8, 1 + 2 ^ -11, 0 / 0})
  local r = values(x:to("float16"))
  deep({r[1], r[2], r[3], r[5], r[6], r[7]}, {2048, 2052, 65504, 2 ^ -24, 0, 1})
  equal(r[4], math.huge)
  h.truthy(r[8] ~= r[8])
  deep(values(lt.tensor({257, 259, 1 + 2 ^ -8, 1 + 3 * 2 ^ -8}):to("bfloat16")), {256, 260, 1, 1 + 2 ^ -6})
end)

test("sums and means of halves accumulate in float32", function()
  equal(lt.ones({4096}, {dtype = "float16"}):sum():item(), 4096)
  equal(lt.full({70000}, 0.5, {dtype = "bfloat16"}):mean():item(), 0.5)
  equal(lt.full({300}, 300, {dtype = "float16"}):mean():item(), 300)
end)

for _, dtype in ipairs{"float16", "bfloat16"} do
  test("training in " .. dtype, function()
    local function train(compiled)
      lt.manual_seed(3)
      local net = lt.nn.Sequential(lt.nn.Linear(20, 32), lt.nn.ReLU(), lt.nn.Linear(32, 5)):to(dtype)
      local opt = lt.optim.SGD(net:parameters(), {lr = 0.1})
      local x, y = lt.randn({64, 20}):to(dtype), lt.randint(0, 5, {64})
      local function step()
        local loss = lt.nn.functional.cross_entropy(net(x), y)
        opt:zero_grad() loss:backward() opt:step()
        return loss
      end
      if compiled then step = lt.compile(step) end
      local first, last = step():item(), nil
      for _ = 1, 30 do last = step():item() end
      h.truthy(last < first, "the loss falls")
      return last
    end
    equal(train(true), train(false))
  end)

  test("products of " .. dtype, function()
    lt.manual_seed(5)
    local a, b = lt.randn({33, 70}):to(dtype), lt.randn({20, 70}):to(dtype)
    local want = a:to("float32"):matmul(b:t():to("float32")):to(dtype)
    deep(values(a:matmul(b:t())), values(want))
    deep(values(lt.stack({a, a}):matmul(b:t())[1]), values(want))
  end)
end

h.finish()
