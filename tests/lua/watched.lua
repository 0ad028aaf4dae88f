-- Tests that guards check a tensor of a list again only if it has changed (ops/core/watch.h). However a parameter is
-- changed between two calls, a compiled call gives the same as the function: results, gradients, hooks that run,
-- errors.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

lt.config.recompile_limit = 1000

local kCount = 8
local kPlaces = {1, 4, 8}
local log = {}

-- The metamethods come first: all parameters are then one list.
local function body(m)
  return function(x)
    x = x * x - x + x
    return x + m.p1 * m.p2 + m.p3 * 2 - m.p4 * m.p5 + m.p6 * x - m.p7 + m.p8
  end
end

-- A step whose backward is a part of it.
local function step(m)
  local forward = body(m)
  return function(x)
    local y = forward(x)
    if y.requires_grad then y:sum():backward({retain_graph = true}) end
    return y:detach()
  end
end

local function text_of(v)
  if not lt.is_tensor(v) then return tostring(v) end
  return tostring(v.dtype) .. tostring(v:detach()) .. tostring(v.requires_grad) .. tostring(v.is_leaf)
end

-- All that a call does: its result or error, gradients, what hooks saw. Gradients are then as they were.
local function outcome(f, m, x)
  log = {}
  local before = {}
  for i = 1, kCount do
    local p = m["p" .. i]
    if lt.is_tensor(p) and p.is_leaf and p.grad then before[p] = p.grad:clone() end
  end
  local ok, y = pcall(f, x)
  local parts = {ok and text_of(y) or tostring(y):gsub("^.-:%d+: ", "")}
  if ok and y.requires_grad then
    ok, y = pcall(function() y:sum():backward({retain_graph = true}) end)
    parts[#parts + 1] = tostring(ok)
  end
  for i = 1, kCount do
    local p = m["p" .. i]
    if lt.is_tensor(p) and p.is_leaf then parts[#parts + 1] = tostring(p.grad) p.grad = before[p] end
  end
  return table.concat(parts, "\n") .. table.concat(log)
end

local function fresh_module(grads)
  local m = {}
  for i = 1, kCount do m["p" .. i] = lt.full({3}, i, {requires_grad = grads}) end
  return m
end

-- change(p, m, key): something happens to the parameter m[key], which is p.
local function check(name, change)
  test(name, function()
    for _, grads in ipairs {false, true} do
      for _, wrap in ipairs {function(f) return f end, lt.compile} do
        for i = 1, 2 * #kPlaces do
          lt.reset()
          local place, make = kPlaces[(i - 1) % #kPlaces + 1], i > #kPlaces and step or body
          local m, x, key = fresh_module(grads), lt.arange(3):to("float32"), "p" .. place
          local f = make(m)
          local g = lt.compile(f)
          for _ = 1, 5 do equal(outcome(g, m, x), outcome(f, m, x), "before") end
          local changed = wrap(change)
          for round = 1, 2 do
            pcall(changed, m[key], m, key)
            for call = 1, 3 do
              -- A call takes it first that has not looked since.
              equal(outcome(g, m, x), outcome(f, m, x),
                ("case %d, grads %s, round %d, call %d"):format(i, tostring(grads), round, call))
            end
          end
        end
      end
    end
  end)
end

local function off_grad(f)
  return function(p, ...) p.requires_grad = false return f(p, ...) end
end

-- requires_grad, history
check("requires_grad_ off", function(p) p:requires_grad_(false) end)
check("requires_grad_ turned", function(p) p:requires_grad_(not p.requires_grad) end)
check("requires_grad set", function(p) p.requires_grad = not p.requires_grad end)
check("turned twice", function(p) p.requires_grad = not p.requires_grad p.requires_grad = not p.requires_grad end)
check("detach_", function(p) p:detach_() end)
check("detach", function(p, m, key) m[key] = p:detach() end)
check("a history by a write", off_grad(function(p)
  local w = lt.ones(3, {requires_grad = true})
  p:mul_(w)
end))
check("a history by copy_, then detach_", off_grad(function(p)
  p:copy_(lt.ones(3, {requires_grad = true}) * 2)
  p:detach_()
end))
check("a history by a row", off_grad(function(p) p[{1}] = lt.tensor(7, {requires_grad = true}) * 2 end))
check("an op's result", function(p, m, key) m[key] = p * 2 end)
check("a backward", function(p)
  local q = p * p
  if q.requires_grad then q:sum():backward() end
end)
check("grad", function(p) p.grad = lt.ones(3) end)

-- hooks
check("register_hook", function(p) p:register_hook(function(g) log[#log + 1] = "hook " .. tostring(g) end) end)
check("a hook that doubles", function(p) p:register_hook(function(g) return g * 2 end) end)
check("a hook, removed", function(p) p:register_hook(function(g) return g * 2 end):remove() end)
check("register_post_accumulate_grad_hook", function(p)
  p:register_post_accumulate_grad_hook(function(leaf) log[#log + 1] = "post " .. tostring(leaf.grad) end)
end)

-- sizes, strides, dtype, memory
check("data", function(p) p.data = lt.full({3}, 11) end)
check("data of one element", function(p) p.data = lt.full({1}, 11) end)
check("data of another rank", function(p) p.data = lt.full({2, 3}, 11) end)
check("data of another dtype", function(p) p.data = lt.full({3}, 11, {dtype = "float64"}) end)
check("data with gaps", function(p) p.data = lt.arange(6):to("float32"):view(3, 2):select(1, 1) end)
check("data with an offset", function(p) p.data = lt.arange(6):to("float32"):narrow(0, 2, 3) end)
check("data changed through data", function(p) p.data:mul_(3) end)
check("set_", off_grad(function(p) p:set_(lt.full({3}, 5)) end))
check("set_ to part of a memory", off_grad(function(p) p:set_(lt.arange(8):to("float32"), 2, {3}, {2}) end))
check("set_ to nothing", off_grad(function(p) p:set_() end))
check("resize_", off_grad(function(p) p:resize_(1) end))
check("resize_ to more", off_grad(function(p) p:resize_(100) end))
check("resize_as_", off_grad(function(p) p:resize_as_(lt.ones(1, 3)) p:zero_() end))
check("unsqueeze_", off_grad(function(p) p:unsqueeze_(0) end))
check("as_strided_", off_grad(function(p) p:as_strided_({3}, {0}) end))
check("out=", off_grad(function(p) lt.add(lt.ones(2, 3), 1, {out = p}) end))
check("out= of one size", off_grad(function(p) lt.add(lt.ones(3), 1, {out = p}) end))
check("values", function(p) lt.no_grad(function() p:add_(1) end) end)
check("values through a view", function(p) lt.no_grad(function() p:view(3):narrow(0, 1, 1):fill_(-4) end) end)

-- Memory that moves or goes by way of other tensors of it.
check("memory that grows through another tensor", off_grad(function(p)
  local q = lt.empty(0)
  q:set_(p)
  q:resize_(100000)
  q:narrow(0, 0, 3):fill_(17)
end))
check("free", function(p) p:free() end)
check("free through a view", function(p) p:detach():view(3):free() end)
check("free, then data", function(p)
  p:free()
  p.data = lt.full({3}, 2)
end)

-- Replaces the tensor by another object, which may get the same address.
check("another tensor", function(_, m, key) m[key] = lt.full({3}, -1) end)
check("another size", function(_, m, key) m[key] = lt.full({1}, -1) end)
check("no tensor", function(_, m, key) m[key] = 5 end)
check("nothing", function(_, m, key) m[key] = nil end)
check("another's", function(_, m, key) m[key] = m.p2 end)
check("exchanged", function(_, m, key) m[key], m.p2 = m.p2, m[key] end)

test("memory of tensors that is used anew", function()
  lt.reset()
  local m, x = fresh_module(false), lt.arange(3):to("float32")
  local f = body(m)
  local g = lt.compile(f)
  local makers = {
    function() return lt.full({3}, 1) end, function() return lt.full({1}, 2) end,
    function() return lt.full({3}, 3, {requires_grad = true}) end,
    function() return lt.full({3}, 4, {dtype = "float64"}) end, function() return lt.full({2, 3}, 5) end,
    function() return lt.arange(6):to("float32"):view(3, 2):select(1, 1):detach() end,
    function() return lt.full({3}, 6):mul_(lt.full({3}, 2, {requires_grad = true})) end,
  }
  local told = {}
  for round = 1, 210 do
    local key = "p" .. kPlaces[round % #kPlaces + 1]
    for _ = 1, round % 3 do outcome(g, m, x) end
    m[key] = nil
    collectgarbage()
    collectgarbage()
    m[key] = makers[round % #makers + 1]()
    told[#told + 1] = m[key].requires_grad
    equal(outcome(g, m, x), outcome(f, m, x), "round " .. round)
    equal(outcome(g, m, x), outcome(f, m, x), "round " .. round .. ", again")
  end
end)

-- A tensor goes, and another one has its place: its userdata's, and now and then its own. Their memory stays.
test("a tensor in the place of another", function()
  local base = lt.arange(3):to("float32") + 1
  local function part(n) return lt.no_grad(function() return base:narrow(0, 0, n) end) end
  for round = 1, 60 do
    lt.reset()
    collectgarbage()  -- what goes later would be noticed by itself
    collectgarbage()
    local m, x = fresh_module(false), lt.arange(3):to("float32")
    m.p4 = part(3)
    local f = body(m)
    local g = lt.compile(f)
    for _ = 1, 6 do g(x) end
    collectgarbage()
    collectgarbage()
    local place = ("%p"):format(m.p4)
    local made = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}
    m.p4 = nil
    collectgarbage()
    collectgarbage()
    for i = 1, 10 do made[i] = part(1) end
    for i = 1, 10 do
      if ("%p"):format(made[i]) == place then
        m.p4 = made[i]
        equal(text_of(g(x)), text_of(f(x)), "round " .. round)
      end
    end
  end
end)

test("a module goes while the function stays", function()
  lt.reset()
  local holder, x = {m = fresh_module(true)}, lt.arange(3):to("float32")
  local f = function(y)
    local m = holder.m
    y = y * y - y + y
    return y + m.p1 * m.p2 + m.p3 * 2 - m.p4 * m.p5 + m.p6 * y - m.p7 + m.p8
  end
  local g = lt.compile(f)
  for round = 1, 40 do
    for _ = 1, 3 do equal(outcome(g, holder.m, x), outcome(f, holder.m, x), "round " .. round) end
    holder.m = nil
    collectgarbage()
    collectgarbage()
    holder.m = fresh_module(round % 2 == 0)
    if round % 3 == 0 then holder.m.p3 = lt.full({1}, round) end
  end
end)

-- A program may take away the finalizer of tensors: nothing then tells that a userdata has gone.
test("userdata without a finalizer", function()
  lt.reset()
  local meta = getmetatable(lt.ones(1))
  local finalizer = meta.__gc
  local m, x = fresh_module(false), lt.arange(3):to("float32")
  local f = body(m)
  local g = lt.compile(f)
  for _ = 1, 4 do outcome(g, m, x) end
  meta.__gc = nil
  local ok, message = pcall(function()
    for round = 1, 60 do
      m.p4 = nil
      collectgarbage()
      m.p4 = lt.full({round % 2 == 0 and 1 or 3}, round)
      equal(outcome(g, m, x), outcome(f, m, x), "round " .. round)
    end
  end)
  meta.__gc = finalizer
  if not ok then error(message, 0) end
end)

-- Two functions look at the same tensors: what one has seen says nothing for the other.
test("two functions", function()
  local m, x = fresh_module(true), lt.arange(3):to("float32")
  local f = body(m)
  local other = function(y) return y * y + y - y + (m.p8 - m.p7 + m.p6 - m.p5 + m.p4 - m.p3) * m.p2 * m.p1 * y end
  local g, g2 = lt.compile(f), lt.compile(other)
  for round = 1, 12 do
    local p = m["p" .. (round % kCount + 1)]
    if round % 3 == 0 then p.requires_grad = not p.requires_grad end
    if round % 3 == 1 then p.data = lt.full({round % 2 == 0 and 1 or 3}, round) end
    local order = round % 2 == 0 and {{g, f}, {g2, other}} or {{g2, other}, {g, f}}
    for _ = 1, 2 do
      for _, pair in ipairs(order) do equal(outcome(pair[1], m, x), outcome(pair[2], m, x), "round " .. round) end
    end
  end
end)

-- The forward of a run and its backward have a change between them.
test("a change between forward and backward", function()
  local changes = {
    function(p) p.requires_grad = false end, function(p) p.data = lt.full({3}, 8) end, function(p) p:detach_() end,
    function(p) p:register_hook(function(g) return g * 2 end) end, function(p) p.grad = lt.ones(3) end,
  }
  for i, change in ipairs(changes) do
    for _, place in ipairs(kPlaces) do
      local told = {}
      for which, wrap in ipairs {function(f) return f end, lt.compile} do
        local m, x, lines = fresh_module(true), lt.arange(3):to("float32"), {}
        lt.reset()
        local f = wrap(body(m))
        for round = 1, 5 do
          local y = f(x)
          if round == 4 then change(m["p" .. place]) end
          lines[#lines + 1] = tostring(pcall(function() y:sum():backward() end))
          for k = 1, kCount do lines[#lines + 1] = tostring(m["p" .. k].grad) end
        end
        told[which] = table.concat(lines, "\n")
      end
      equal(told[2], told[1], ("change %d, place %d"):format(i, place))
    end
  end
end)

-- A compiled step itself changes parameters.
test("parameters of a module, moved, frozen and trained", function()
  local function told(wrap)
    lt.manual_seed(3)
    local Wide = lt.nn.Module:extend("Wide")
    function Wide:init() for i = 1, kCount do self["p" .. i] = lt.nn.Parameter(lt.randn(3)) end end
    function Wide:forward(x) return body(self)(x) end
    local net, x, lines = Wide(), lt.arange(3):to("float32"), {}
    local opt = lt.optim.SGD(net:parameters(), {lr = 0.1})
    local forward = wrap(function(y) return net(y) end)
    local function steps(n)
      for _ = 1, n do
        local ok, y = pcall(forward, x:to(net.p1.dtype))
        if ok then
          opt:zero_grad()
          if y.requires_grad then y:sum():backward() opt:step() end
          lines[#lines + 1] = text_of(y)
        else
          lines[#lines + 1] = "error"
        end
      end
    end
    local kept = {}
    for k, v in pairs(net:state_dict()) do kept[k] = v:clone() end
    steps(4)
    net:requires_grad_(false) steps(3)
    net:requires_grad_(true) steps(3)
    net.p3:requires_grad_(false) steps(3)
    net:load_state_dict(kept) steps(3)
    net:to("float64") steps(3)
    net:to("float32") steps(3)
    net.p6.grad = nil steps(2)
    lt.no_grad(function() steps(2) end)
    return table.concat(lines, "\n")
  end
  equal(told(lt.compile), told(function(f) return f end))
end)

h.finish()
