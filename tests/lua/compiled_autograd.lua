-- Tests compiled autograd: backwards outside of compiled functions are graphs from their second run on, and gradients
-- are eager's bit for bit. What only Lua can do runs between graphs; reports name what runs eagerly.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local nn, F = lt.nn, lt.nn.functional

local backwards = require "backwards"
local compare, same = backwards.compare, backwards.same

local function leaf(...) return lt.randn({...}, {requires_grad = true}) end
local function mlp() return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)) end
local function see_grads(see, net)
  for _, p in ipairs(net:parameters()) do see(p.grad) end
end

same("one graph at the second run, another once .grad is there", 2, 4, function(see)
  local net = mlp()
  for i = 1, 6 do
    if i % 2 == 1 then net:zero_grad() end
    net(lt.randn(5, 8)):pow(2):mean():backward()
    see_grads(see, net)
  end
end)

same("batch sizes: two compilations", 2, 8, function(see)
  local net = mlp()
  for _, n in ipairs {5, 5, 7, 9, 11, 5, 6, 13, 4} do
    net:zero_grad()
    F.cross_entropy(net(lt.randn(n, 8)), lt.arange(n) % 4):backward()
    see_grads(see, net)
  end
end)

same("sizes that no saved tensor has", 1, 3, function(see)
  local w = leaf(1)
  for _, n in ipairs {2, 5, 3, 8} do
    w.grad = nil
    local y = lt.ones(n, 4) + w
    y:clone():sum():backward()
    see(w.grad)
  end
end)

same("sizes of one and none have graphs of their own", 5, 6, function(see)
  local net = mlp()
  for _, n in ipairs {5, 5, 1, 7, 9, 1, 0} do
    net:zero_grad()
    net(lt.randn(n, 8)):pow(2):sum():backward()
    see_grads(see, net)
  end
end)

same("a number that changes is an input", 2, 4, function(see)
  local w = leaf(4)
  for i = 1, 5 do
    w.grad = nil
    local y = w:sin() * (i > 2 and i or 2.5)
    y:sum():backward()
    see(w.grad)
  end
end)

same("accumulation over micro-batches, several losses, shared parameters", 3, 9, function(see)
  local net, tied = mlp(), leaf(4, 8)
  for _ = 1, 3 do
    net:zero_grad()
    tied.grad = nil
    for _ = 1, 2 do
      local x = lt.randn(3, 8)
      local y = net(F.linear(x, tied):matmul(tied))
      local a, b = y:pow(2):mean(), y:abs():sum()
      a:backward(nil, {retain_graph = true})
      b:backward()
    end
    see_grads(see, net)
    see(tied.grad)
  end
end)

same("hooks of tensors run between graphs, at their time", 2, 4, function(see)
  local w, v = leaf(8, 8), leaf(8, 8)
  for i = 1, 3 do
    w.grad, v.grad = nil, nil
    local mid = lt.randn(3, 8):matmul(w):tanh()
    mid:register_hook(function(g)
      see("hook", g, w.grad)
      return g * i
    end)
    mid:matmul(v):pow(2):sum():backward()
    see(w.grad, v.grad)
  end
end)

same("hooks of leaves, removed hooks, retain_grad", 1, 2, function(see)
  local w, v = leaf(8, 8), leaf(8, 8)
  local handle = w:register_hook(function(g)
    see("leaf", g, v.grad)
    return g * 2
  end)
  v:register_hook(function() error("removed") end).remove()
  for i = 1, 3 do
    w.grad, v.grad = nil, nil
    local mid = lt.ones(3, 8):matmul(w)
    mid:retain_grad()
    mid:sin():matmul(v):sum():backward()
    see(w.grad, v.grad, mid.grad)
  end
  handle.remove()
end)

test("a hook that throws, one that writes what the backward reads", function()
  compare(function(see)
    local w, v = leaf(4), leaf(4)
    for i = 1, 3 do
      local mid = w:sin()
      mid:register_hook(function()
        if i == 2 then error("the hook's own error", 0) end
        if i == 3 then lt.no_grad(function() w:mul_(2) end) end
      end)
      local loss = (mid * v):exp():sum()
      see(pcall(function() loss:backward() end))
      see(pcall(function() loss:backward() end))
      see(w.grad, v.grad)
    end
  end)
end)

test("eager's errors", function()
  compare(function(see)
    local w = leaf(4)
    for _ = 1, 3 do
      local y = w:exp()
      local loss = (y * w):sum()
      loss:backward()
      see(pcall(function() loss:backward() end))
      local z = w:exp()
      lt.no_grad(function() z:add_(1) end)
      see(pcall(function() (z * w):sum():backward() end))
      see(w.grad)
    end
  end)
end)

test("a compiled module with its backward outside, and graph breaks", function()
  local n = compare(function(see)
    local net = mlp()
    local f = lt.compile(function(x)
      local y = net(x)
      lt.graph_break()
      return y:sin()
    end)
    for _ = 1, 4 do
      net:zero_grad()
      local loss = (f(lt.ones(3, 8)) * 3):pow(2):mean()
      loss:backward()
      see_grads(see, net)
      see(pcall(function() loss:backward() end))
    end
  end)
  equal(n.graphs, 1)
  equal(n.calls, 3)
  for why in pairs(n.eager) do truthy(not why:find("Compiled"), why) end
end)

same("checkpoints are repeated within the graph", 1, 2, function(see)
  local w = leaf(8, 8)
  for _ = 1, 3 do
    w.grad = nil
    local y = lt.checkpoint(function(x) return F.dropout(x:matmul(w):sin(), 0.5) end, lt.randn(3, 8))
    y:matmul(w):pow(2):sum():backward()
    see(w.grad)
  end
end)

same("partial gradients", 2, 4, function(see)
  local x, w = leaf(4, 8), leaf(8, 8)
  for _ = 1, 3 do
    local mid = x:matmul(w)
    local loss = mid:sin():sum()
    see(lt.grad(loss, {mid, x}, {retain_graph = true}))
    loss:backward(nil, {inputs = {w}})
    see(w.grad, x.grad)
    w.grad = nil
  end
end)

test("writes, views and parts", function()
  compare(function(see)
    local w = leaf(6, 4)
    for i = 1, 4 do
      w.grad = nil
      local y = w * 2
      y["1:3"]:mul_(3)
      y[0]:copy_(w[1] * w[2])
      local parts = y:t():chunk(2)
      local loss = parts[1]:exp():sum() + (parts[2] * i):sum()
      loss:backward()
      see(w.grad)
    end
  end)
end)

test("what runs eagerly is told", function()
  local n = compare(function(see)
    local w = leaf(4)
    for _ = 1, 2 do
      local g = lt.grad(w:pow(3):sum(), w, {create_graph = true})
      g:sum():backward()
      see(w.grad)
    end
    local y = (w * w.grad):sum()
    y:backward()
    see(w.grad)
  end)
  equal(n.eager["create_graph=true"], 2)
  equal(n.eager["a .grad shares memory with what the backward reads"], 1)
  truthy(n.eager["the first run"] >= 1)
end)

test("versions, identity and memory are eager's", function()
  compare(function(see)
    local net = mlp()
    local before
    for i = 1, 4 do
      net(lt.ones(3, 8)):pow(2):mean():backward()
      local g = net:parameters()[1].grad
      if before then truthy(before == g) end
      before = g
    end
    see_grads(see, net)
  end)
  collectgarbage()
  collectgarbage()
end)

test("tapes that are never the same", function()
  local n = compare(function(see)
    local w = leaf(4)
    for i = 1, 60 do
      w.grad = nil
      local y = w
      for k = 1, i do y = k % 2 == 0 and y:sin() or y * w end
      y:sum():backward()
      see(w.grad)
    end
  end)
  equal(n.graphs, 0)
  equal(n.eager["the first run"], 60)
end)

test("a size that was a symbol becomes 1", function()
  local w = lt.full({1}, 0.5, {requires_grad = true})
  lt.config.compiled_autograd = true
  for _, n in ipairs {12, 8, 9, 1} do
    w.grad = nil
    lt.where(lt.ones(n):gt(2), w * -lt.ones(n), 0):sum():backward()
    equal(1 / w.grad:item(), n == 1 and -math.huge or math.huge, "n = " .. n)
  end
  lt.config.compiled_autograd = false
end)

test("reports", function()
  lt.reset()
  lt.config.compiled_autograd = true
  local net = mlp()
  local step = lt.disable(function()
    net:zero_grad()
    net(lt.ones(3, 8)):sum():backward()
  end)
  local report = lt.explain(function()
    for _ = 1, 3 do step() end
  end)()
  lt.config.compiled_autograd = false
  truthy(#report.backwards >= 1, #report.backwards)
  truthy(tostring(report):find("backward at %S*compiled_autograd.lua:%d+: %d+ ops, %d+ kernels?, %d+ calls?"), report)
end)

same("leaves that want no gradient any more when the backward comes", 2, 5, function(see)
  local w, v = leaf(2), leaf(2)
  for i = 1, 8 do
    local y = (w * v):exp():sum()
    if i > 3 then w:requires_grad_(false) end
    y:backward()
    w:requires_grad_(true)
    see(w.grad, v.grad)
  end
end)

test("the setting", function()
  equal(lt.config.compiled_autograd, false)
  raises("config: compiled_autograd must be a boolean, got number", function() lt.config.compiled_autograd = 1 end)
end)

test("a gradient that eager code reduces is a view without history, whoever runs the backward", function()
  local texts = {}
  for _, stress in ipairs {"", "break", "backward"} do
    for _, shape in ipairs {{4}, {1, 4}, {3, 1}} do
      for _, way in ipairs {"grad", "hook", ".grad"} do
        lt.reset()
        local key, lines = table.concat(shape, " ") .. way, {}
        for i = 1, 3 do
          lt.config.stress = stress ~= "" and stress or nil
          local x, b, got = lt.ones(shape):requires_grad_(true), lt.ones(3, 4), nil
          local row = x * 1
          local loss = (b * row):sum()
          if way == "grad" then
            got = lt.grad(loss, row, {retain_graph = true})
          else
            if way == "hook" then row:register_hook(function(g) got = g end) end
            loss:backward({retain_graph = true})
            got = got or x.grad
          end
          lt.config.stress = nil
          local ok, err = pcall(function() got:copy_(x + row) end)
          lines[i] = ok and h.text(got) or err:match("a view that was made in no_grad mode") or err
        end
        local text = table.concat(lines, "\n")
        texts[key] = texts[key] or text
        h.equal(text, texts[key], stress .. " " .. key)
      end
    end
  end
  h.truthy(texts["4grad"]:find("no_grad mode", 1, true), texts["4grad"])
end)

h.finish()
