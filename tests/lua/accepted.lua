-- Tests what users of compiled functions rely on besides results: modules remain modules, messages keep their lines.
local lt = require "lutra"
local nn = lt.nn
local h = require "harness"
local test, equal = h.test, h.equal

test("a compiled module has the module's parameters and state", function()
  local m = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
  local cm = lt.compile(m)
  equal(#cm:parameters(), 4)
  equal(cm:parameters()[1], m:parameters()[1])
  local names = {}
  for name in cm:named_parameters() do names[#names + 1] = name end
  equal(table.concat(names, " "), "0.weight 0.bias 2.weight 2.bias")
  cm(lt.ones(2, 3)):sum():backward()
  equal(m:parameters()[1].grad ~= nil, true)
  cm:zero_grad()
  equal(m:parameters()[1].grad, nil)
  cm:eval()
  equal(m[1].training, false)
  local outer = nn.Sequential(cm, nn.ReLU())
  equal(#outer:parameters(), 4)
  equal(outer:state_dict()["0.2.bias"]:equal(m:parameters()[4]), true)
end)

test("an error in the call that captures again keeps its line", function()
  for _, how in ipairs {"compile", "patch"} do
    local t = {n = 0}
    local function f(x, y)
      t.n = t.n + 1
      local z = x * 2
      local c = lt.matmul(z, y)
      t.n = t.n + 100
      return c + y.shape[1]
    end
    local line = debug.getinfo(f, "S").linedefined + 3
    local g = lt[how](f)
    g(lt.ones(2, 3), lt.ones(3, 2))
    g(lt.ones(2, 3), lt.ones(3, 2))
    for _ = 1, 3 do
      local before = t.n
      local ok, message = pcall(g, lt.ones(2, 3), lt.ones(2, 2))
      equal(ok, false)
      equal(message:match("(%d+): matmul"), tostring(line), how)
      equal(t.n, before + 1)
    end
    local function field(x, y)
      local z = x * 2
      return z + y.foo.bar
    end
    local at = debug.getinfo(field, "S").linedefined + 2
    local cf = lt[how](field)
    cf(lt.ones(2), {foo = {bar = 1}})
    for _, bad in ipairs {{}, {foo = 3}, {}} do
      local _, message = pcall(cf, lt.ones(2), bad)
      equal(message:match(":(%d+: attempt to index field 'foo' %(a %a+ value%))$"),
        at .. ": attempt to index field 'foo' (a " .. type(bad.foo) .. " value)", how)
    end
  end
end)

test("lt.tensor in a compiled function is a fresh tensor of each call", function()
  local kept = {}
  local function f(x, k)
    local q = lt.tensor({1, 2}, {dtype = "int64"})
    local r = lt.tensor({k, 3})
    q:add_(1)
    kept[#kept + 1] = q
    local y = x + q + r
    local w = lt.tensor({4, 5}, {requires_grad = true})
    lt.graph_break()
    q:mul_(2)
    return y + q, q, w, r
  end
  for _, g in ipairs {f, lt.compile(f)} do
    for k = 1, 4 do
      local y, q, w, r = g(lt.ones(2), k)
      h.deep(y:totable(), {k + 7, 13})
      h.deep(q:totable(), {4, 6})
      h.deep(r:totable(), {k, 3})
      equal(w.requires_grad and w.is_leaf, true)
      equal(kept[#kept], q)
      equal(q == kept[#kept - 1], false)
    end
  end
end)

test("an op that fails beside a literal tensor raises its error", function()
  local f = lt.compile(function(x)
    local y = x * 2
    return nn.functional.cross_entropy(y, lt.tensor({0, 1, 1}, {dtype = "int64"}))
  end)
  for _ = 1, 3 do
    local _, message = pcall(f, lt.ones(2, 3))
    equal(message:match("cross_entropy: expected a target of shape {2}") ~= nil, true)
  end
end)

test("a backend may give its graph back, and nothing that cannot be called", function()
  local function f(x) return (x * 2):sum() end
  equal(lt.compile(f, {backend = function(graph) return graph end})(lt.ones(3)):item(), 6)
  equal(lt.compile(f, {backend = function() return nil end})(lt.ones(3)):item(), 6)
  equal(lt.compile(f, {backend = function() return function(x) return x end end})(lt.tensor(5)):item(), 5)
  local _, message = pcall(lt.compile(f, {backend = function() return {} end}), lt.ones(3))
  equal(message:match("compile: the backend must return a function, nil or its graph, not a table") ~= nil, true)
end)

test("gradients reach leaves that a compiled function makes", function()
  local x = lt.arange(3, {dtype = "float32"})
  local made = {
    function() return lt.ones(3, {requires_grad = true}) end,
    function() return x:clone():mul(0):add(1):requires_grad_(true) end,
    function() local w = lt.ones(3) w.requires_grad = true return w end,
    function() return nn.Parameter(lt.ones(3)) end,
  }
  for i, make in ipairs(made) do
    local function returned(x) local w = make() return (x * w * w):sum(), w end
    local function broken(x) local w = make() local y =
      (x * w * w):sum() lt.graph_break() y:backward() return w.grad end
    local function whole(x) local w = make() local y = (x * w * w):sum() y:backward() return w.grad, w end
    for _ = 1, 2 do
      local f, g, k = lt.compile(returned), lt.compile(broken), lt.compile(whole)
      for _ = 1, 3 do
        local y, w = f(x)
        y:backward()
        h.deep(w.grad and w.grad:totable(), {0, 2, 4}, 0, "returned " .. i)
        h.deep(g(x):totable(), {0, 2, 4}, 0, "broken " .. i)
        h.deep(k(x):totable(), {0, 2, 4}, 0, "whole " .. i)
      end
    end
  end
end)

h.finish()
