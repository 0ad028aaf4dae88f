-- Autograd from Lua: hooks, accumulation, retained graphs, double backward (through compiled code, too), grad modes,
-- versions.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises

local function leaf(...) return lt.tensor({...}, {requires_grad = true}) end
local function same(got, ...) truthy(got:equal(lt.tensor({...})), tostring(got)) end

test("hooks of leaves and of results replace gradients until they are removed", function()
  local x = leaf(1, 2, 3)
  local handle = x:register_hook(function(g) return g * 10 end)
  local seen
  local y = x * 2
  y:register_hook(function(g) seen = g end)
  y:sum():backward()
  same(x.grad, 20, 20, 20)
  same(seen, 1, 1, 1)
  handle:remove()
  x.grad = nil
  (x * 2):sum():backward()
  same(x.grad, 2, 2, 2)
end)

test("a tensor with a hook breaks the graph, one whose hook is gone does not", function()
  local x = leaf(1, 2, 3)
  local handle = x:register_hook(function(g) return g * 2 end)
  local function f(a) return lt.grad((a * a):sum(), a) end
  local cf = lt.compile(f)
  same(cf(x), 4, 8, 12)
  handle:remove()
  same(lt.compile(f)(x), 2, 4, 6)
  equal(lt.explain(f)(x).graph_break_count, 0)
end)

test("a hook that holds its own tensor goes with the history that was freed", function()
  local kept = setmetatable({}, {__mode = "v"})
  for i = 1, 50 do
    local x = leaf(1, 2)
    local y = x:exp()
    y:register_hook(function(g) return g * y:size(0) end)
    y:sum():backward()
    same(x.grad:gt(5), true, true)
    kept[i] = y
  end
  collectgarbage()
  collectgarbage()
  equal(next(kept), nil)
end)

test("a leaf that wants no gradient any more gets none of an earlier graph, but its hooks run", function()
  local w, v, hooked = leaf(1, 2), leaf(3, 4), 0
  w:register_hook(function() hooked = hooked + 1 end)
  local y = (w * v):sum()
  w:requires_grad_(false)
  y:backward({retain_graph = true})
  equal(w.grad, nil)
  same(v.grad, 1, 2)
  w:requires_grad_(true)
  y:backward()
  same(w.grad, 3, 4)
  equal(hooked, 2)
end)

test("gradients accumulate, also into chosen inputs only", function()
  local a, b = leaf(1, 2), leaf(3, 4)
  for _ = 1, 3 do (a * b):sum():backward() end
  same(a.grad, 9, 12)
  a.grad, b.grad = nil, nil
  (a * b):sum():backward(nil, {inputs = {a}})
  same(a.grad, 3, 4)
  equal(b.grad, nil)
  raises("backward: input 1 does not require grad", function() (a * b):sum():backward(nil, {inputs = {lt.ones(2)}}) end)
end)

test("a graph is used once unless it is retained", function()
  local x = leaf(1, 2)
  local y = (x * x):sum()
  y:backward(nil, {retain_graph = true})
  y:backward()
  same(x.grad, 4, 8)
  raises("a second time", function() y:backward() end)
end)

test("gradients of gradients", function()
  local x = leaf(1, 2, 3)
  local g = lt.grad((x ^ 4):sum(), x, {create_graph = true})
  same(lt.grad(g, x, {grad_outputs = lt.ones(3)}), 12, 48, 108)
end)

test("gradients of gradients through a compiled function equal eager's", function()
  local w, x = lt.randn(4, 4, {requires_grad = true}), lt.randn(4, 4)
  local function f(a)
    local noise = lt.rand(4, 4)
    local y = (a:matmul(w) * noise):tanh()
    return y:sum(), (y * y):sum()
  end
  local function penalty(of)
    lt.manual_seed(3)
    w.grad = nil
    local p, q = of(x)
    local g = lt.grad(p + q * 2, w, {create_graph = true})
    ;(g * g):sum():backward()
    return w.grad, lt.rand(1):item()
  end
  local want, number = penalty(f)
  local got, again = penalty(lt.compile(f))
  truthy(got:equal(want))
  equal(again, number, "the random numbers after it")
end)

test("double backward of a compiled function that writes its input", function()
  local function again(compile)
    local w, n = leaf(1, 2), lt.zeros(2)
    local f = compile(function(a) n:add_(1) return (a * a * a * n):sum() end)
    f(w)
    local g = lt.grad(f(w), w, {create_graph = true})
    ;(g * g):sum():backward()
    return w.grad, n
  end
  local want, got = {again(function(f) return f end)}, {again(lt.compile)}
  for i = 1, 2 do truthy(got[i]:equal(want[i])) end
end)

test("a gradient penalty is one graph", function()
  local w, x = lt.randn(4, 4, {requires_grad = true}), lt.randn(4, 4)
  local function step(a)
    w.grad = nil
    local g = lt.grad(a:matmul(w):tanh():sum(), w, {create_graph = true})
    ;(g * g):sum():backward()
    return w.grad
  end
  local report = lt.explain(step)(x)
  equal(report.graph_count, 1)
  equal(report.graph_break_count, 0)
  truthy(report.result[1]:equal(step(x)))
end)

test("grad modes nest and are restored by errors, in compiled code as well", function()
  local x = leaf(1, 2)
  local function inner() return (x * 2).requires_grad end
  local function f()
    return inner(), lt.no_grad(inner), lt.no_grad(lt.enable_grad, inner), lt.inference_mode(inner), inner()
  end
  for _, run in ipairs {f, lt.compile(f)} do
    local got = {run()}
    for i, want in ipairs {true, false, true, false, true} do equal(got[i], want, "mode " .. i) end
  end
  truthy(not pcall(lt.no_grad, error, "x"))
  raises("no_grad: argument 'f' must be a function or a module, got nil", function() lt.no_grad() end)
  raises("no_grad: argument 'f' must be a function or a module, got number 3", function() lt.no_grad(3) end)
  raises("enable_grad: argument 'f' must be a function or a module, got a table", function() lt.enable_grad({}) end)
  raises("inference_mode: argument 'f' must be a function or a module, got string 'f'",
    function() lt.inference_mode("f") end)
  raises("enable_grad: argument 'f' must be", function() lt.enable_grad() end)
  truthy(lt.is_grad_enabled())
end)

test("writes after saving are errors, not wrong gradients", function()
  local x = leaf(1, 2)
  local y = x:exp()
  local z = y:sum()
  y:mul_(2)
  raises("modified by an inplace operation", function() z:backward() end)
  raises("a leaf Variable that requires grad", function() x:add_(1) end)
end)

test("detach_ of a leaf with a history behind it", function()
  local x = leaf(1, 2)
  local y = x * 2
  x:detach_()
  equal(x.requires_grad, false)
  x:requires_grad_(true)
  local z = (x * 3):sum()
  y, z = nil, z:backward()
  collectgarbage()
  same(x.grad, 3, 3)
end)

test("gradients that become small keep their digits", function()
  local x = lt.tensor({5, 20, 30, 80}, {requires_grad = true})
  lt.nn.functional.logsigmoid(x):sum():backward()
  local got = x.grad:totable()
  for i, v in ipairs {5, 20, 30, 80} do
    local want = 1 / (1 + math.exp(v))
    truthy(math.abs(got[i] - want) <= 1e-6 * want, "the gradient at " .. v .. " is " .. got[i] .. "; it")
  end
end)

test("misuse is named", function()
  local x, z = leaf(1, 2), leaf(1, 2)
  raises("grad can be implicitly created only for scalar outputs", function() (x * 2):backward() end)
  raises("does not require grad", function() lt.ones(2):sum():backward() end)
  raises("not have been used in the graph", lt.grad, (x * x):sum(), {x, z})
  local g, none = lt.grad((x * x):sum(), {x, z}, {allow_unused = true})
  same(g, 2, 4)
  equal(none, nil)
end)

test("writes through views that cross a graph break reach their base's history", function()
  local source
  local function of_input(w)
    local x = w * 1
    return (function(t) t[0]:mul_(2) return t * t end)(x)
  end
  local function of_value(w)
    local x = w * 1
    local v = x[0]
    lt.graph_break()
    v:mul_(2)
    return x * x
  end
  local function of_source()
    local x = lt.tensor({2, 3})
    local v = x[0]
    lt.graph_break()
    v:copy_(source * 1)
    return x * x
  end
  for i, f in ipairs {of_input, of_value, of_source} do
    local want, want_grad
    for _, run in ipairs {f, lt.compile(f)} do
      local w = leaf(2, 3)
      source = lt.tensor(5, {requires_grad = true})
      local y = run(w)
      local g = lt.grad(y:sum(), i < 3 and w or source)
      want, want_grad = want or y:detach(), want_grad or g
      truthy(y:equal(want) and g:equal(want_grad), "program " .. i .. ": " .. tostring(g))
    end
  end
  local inner = lt.compile(function(t) t[0]:mul_(2) return t * t end)
  local w = leaf(2, 3)
  same(lt.grad(inner(w * 1):sum(), w), 16, 6)
end)

-- Returns whether the result of make() is collected when nothing else refers to it.
local function is_collected(make)
  local seen = setmetatable({}, {__mode = "v"})
  seen[1] = make()
  for _ = 1, 4 do collectgarbage() end
  return seen[1] == nil
end

test("a hook that holds its own leaf goes with the leaf", function()
  local function leaf(after)
    return function()
      local x = lt.ones(3, {requires_grad = true})
      x:register_hook(function(g) return g * x:size(0) end)
      after(x)
      return x
    end
  end
  truthy(is_collected(leaf(function() end)), "never used: it")
  truthy(is_collected(leaf(function(x)
    (x * 2):sum():backward()
    equal(x.grad:totable()[1], 6)
  end)), "after a backward: it")
  truthy(is_collected(leaf(function(x) local _ = (x * x):sum() end)), "in a graph that is gone: it")
  local fresh = is_collected(function()
    local held = {}
    local x = lt.ones(3, {requires_grad = true})
    held.handle = x:register_hook(function() return held.x end)
    held.x = x
    held.handle:remove()
    return held
  end)
  truthy(fresh, "a removed hook: it")
end)

test("a hook that holds its own leaf runs while a graph leads there", function()
  local seen = {}
  local function graph()
    local x, other = lt.ones(3, {requires_grad = true}), lt.full({3}, 2)
    x:register_hook(function(g)
      seen[#seen + 1] = x.grad == nil and (g * other * x:size(0)):sum():item()
    end)
    return (x * 2):sum()
  end
  local loss = graph()
  for _ = 1, 4 do collectgarbage() end
  loss:backward({retain_graph = true})
  equal(seen[1], 36)
  for _ = 1, 4 do collectgarbage() end
  loss:backward()
  equal(seen[2], false)
end)

test("hooks of a leaf that Lua has let go of stay", function()
  local x, ran = lt.ones(2, {requires_grad = true}), 0
  do
    local g = lt.ones(2, {requires_grad = true})
    g:register_hook(function(h) ran = ran + 1 return h * 5 end)
    x.grad = g
  end
  for _ = 1, 3 do collectgarbage() end
  local g = x.grad
  for round = 1, 2 do
    (g * 3):sum():backward()
    for _ = 1, 3 do collectgarbage() end
    equal(ran, round)
  end
  equal(g.grad:totable()[1], 30)
end)

test("a retained gradient is what the hooks leave, once", function()
  local a = lt.tensor({1, 2}, {requires_grad = true}) * 2
  a:retain_grad()
  a:retain_grad()
  a:register_hook(function(g) return g * 3 end)
  a:sum():backward({retain_graph = true})
  same(a.grad, 3, 3)
  a:sum():backward()
  same(a.grad, 6, 6)
end)
test("a retained gradient is that of the last value", function()
  local a = lt.tensor({1, 2}, {requires_grad = true}) * 2
  a:retain_grad()
  a:mul_(3)
  a:sum():backward()
  same(a.grad, 1, 1)
end)

-- Eager adds the gradients of parts in place, with create_graph it adds tensors of the whole's size. Compiled code
-- joins many parts.
test("gradients of parts add up to the same bits in place", function()
  local state = 1
  local function random(n)
    state = state * 48271 % 2147483647
    return state % n
  end
  local special = {-0.0, 0.0, -0.0, 1.5, -1.5, 0 / 0, 1 / 0, -1 / 0, 3e-8, 60000}
  local parts = {
    function(x, i) return x[i % x.shape[1]] end, function(x, i) return x[{":", i % 4}] end,
    function(x, i) return x:split(1)[i % x.shape[1] + 1] end,
    function(x, i) return x[{{i % 2, 3}}] end, function(x, i) return x[{":", {i % 3, 4, 2}}] end,
    function(x, i) return x:unbind(1)[i % 4 + 1] end, function(x, i) return x:split(2, 1)[i % 2 + 1] end,
    function(x, i) return x:diagonal(i % 3 - 1) end, function(x) return x end, function(x) return x:t() end,
    function(x, i) return x[i % 3][i % 4] end,
  }
  for program = 1, math.max(40, math.floor(100 * h.scale)) do
    local dtype = ({"float32", "float64", "float16", "bfloat16"})[program % 4 + 1]
    local steps = {}
    local many = random(2) == 1
    for k = 1, many and 9 + random(6) or 1 + random(6) do
      steps[k] = many and {part = parts[1 + program % 3], i = k} or {part = parts[1 + random(#parts)], i = random(12)}
    end
    -- The gradient of the last use in the program is the first term of the sum.
    if many and random(2) == 1 then steps[#steps + 1] = {part = function(x) return x end, i = 0} end
    local x = lt.zeros(many and 16 or 3, 4, {dtype = dtype, requires_grad = true})
    for _, s in ipairs(steps) do
      local piece, values = s.part(x, s.i), {}
      for k = 1, piece:numel() do values[k] = special[1 + random(#special)] end
      s.c = lt.tensor(values, {dtype = dtype}):view(piece.shape)
    end
    local inner = random(2) == 1
    local function gradient(create_graph)
      x.grad = nil
      local y, loss = inner and x:t():t() or x, 0
      for _, s in ipairs(steps) do loss = loss + (s.part(y, s.i) * s.c):sum() end
      loss:backward {create_graph = create_graph}
      return x.grad
    end
    local integers = ({float32 = "int32", float64 = "int64"})[dtype] or "int16"
    local function bits(g) return tostring(lt.where(g:isnan(), 7, g:detach():view(integers))) end
    local want = bits(gradient(true))
    equal(bits(gradient(false)), want, "program " .. program)
    lt.reset()
    local compiled = lt.compile(gradient)
    for _ = 1, 2 do equal(bits(compiled(false)), want, "program " .. program .. ", compiled") end
  end
end)

test("a gradient that several segments add to has the sizes of each run", function()
  local function f(x, w)
    local h = x * w
    io.stderr:write("")
    local a = lt.cat({h, h:clamp(-1, 1)}, 1)[{":", {2, 6}}]
    io.stderr:write("")
    local b = h:view(-1):view(-1, 4)
    io.stderr:write("")
    return (a * b):sum()
  end
  local compiled = lt.compile(f, {dynamic = true})
  local w, v = lt.ones(1, {requires_grad = true}), lt.ones(1, {requires_grad = true})
  for _, n in ipairs {3, 2, 5, 3, 1} do
    local x = lt.arange(n * 4):float():view(n, 4) - 5
    w.grad, v.grad = nil, nil
    f(x, w):backward()
    compiled(x, v):backward()
    equal(v.grad:item(), w.grad:item(), n .. " rows")
  end
end)

-- Backwards are made when gradients come. What they take a size for is asked before the guards are made.
for name, f in pairs {
  ["a slice"] = function(x) return x["1:"] end, ["two slices"] = function(x) return x["1:-1"] * x["2:"] end,
  steps = function(x) return x["::2"] end, sorted = function(x) return (x:sort())["1:"] end,
  differences = function(x) return x:diff() end, windows = function(x) return x:unfold(0, 2, 1) end,
  ["a part"] = function(x) return x:narrow(0, 0, x:size(0) - 1):view(-1, 1) end,
  half = function(x) return x:view(2, -1):sum(0, true) end, joined = function(x) return lt.cat {x["1:"], x} end,
  pooled = function(x) return lt.nn.functional.avg_pool1d(x:view(1, 1, -1), 2, 1) end,
} do
  h.test("gradients of sizes beside the first one: " .. name, function()
    for _, dynamic in ipairs {true, false} do
      for _, sizes in ipairs {{2, 8, 2, 4}, {4, 2, 8}, {4, 6, 2, 8}} do
        local c = lt.tensor({2}, {requires_grad = true})
        local function both(x) x = x * c return x, f(x) end
        lt.reset()
        local g = lt.compile(both, {dynamic = dynamic or nil})
        for _, n in ipairs(sizes) do
          local function gradient(run)
            c.grad = nil
            local ok, y, z = pcall(run, lt.arange(n):float() - 3)
            if not ok then return (y:gsub("^.-:%d+: ", "")) end
            (y:sum() + z:sum()):backward()
            return h.text(c.grad)
          end
          h.equal(gradient(g), gradient(both), n)
        end
      end
    end
  end)
end

-- A graph keeps a copy of a written tensor for its backward. The error names the memory that the copy stands for.
local function beside_another(w)
  local base = lt.zeros(4, 4)
  local row, rest = base[0], base["1:"]
  rest:add_(w)
  local m = rest:clone()
  row:sub_(1)
  return (m * row):sum(), row, base
end
for name, f in pairs {
  ["a view is written beside another that was"] = beside_another,
  ["the same, its base is not kept"] = function(w)
    local loss, row = beside_another(w)
    return loss, row
  end,
  ["a view is written"] = function(w)
    local base = lt.zeros(4, 4)
    local row = base[0]
    row:sub_(1)
    return (w * row):sum(), row, base
  end,
  ["its base is written"] = function(w)
    local base = lt.zeros(4, 4)
    local row = base[0]
    base:add_(1)
    return (w * 2 * row):sum(), row
  end,
} do
  h.test("what a backward reads is written after the call: " .. name, function()
    local function outcome(run, writes)
      local w = lt.ones(3, 4, {requires_grad = true})
      local l, row = run(w)
      if writes then row:sub_(1) end
      local ok, message = pcall(l.backward, l)
      return ok and h.text(w.grad) or tostring(message):match("modified by an inplace operation")
    end
    lt.reset()
    local g = lt.compile(f)
    for _, writes in ipairs {true, false, true} do h.equal(outcome(g, writes), outcome(f, writes)) end
    h.truthy(outcome(f, true):find("inplace", 1, true))
  end)
end

h.finish()
