-- Training whose backwards run outside of compiled functions: models with layers that share parameters, modules with
-- hooks, functions with their own backwards, checkpoints, dropout, hooks of results and of leaves, kept gradients;
-- several losses, each with its backward or together, accumulated over calls, second derivatives; optimisers. The modes
-- of this class compile all backwards, except mode auto.
local unary = {"tanh", "sigmoid", "sin", "square", "relu"}

-- Activations are of shape {n, 4}; n changes from call to call.
local function generate(p)
  local weights = p:random(3) + 1
  -- A compiled checkpoint is a plain call. So only eager programs change what it reads between forward and backward.
  local eager = p:chance(40)
  local function weight() return "w" .. p:random(weights) end

  -- Adds a checkpoint that also returns an intermediate value, with a hook that changes what the checkpoint reads.
  local function split(t, x)
    local y, mid = p:name "x", p:name "m"
    p.keep(p:line("local %s, %s", t, mid))
    p.keep(p:block(("%s, %s = lt.checkpoint(function(%s)"):format(t, mid, y), function()
      p.keep(p:line("local m = %s", p:pick {y .. ":sin() * reach", "(" .. y .. " + mask[0]):sin()",
        y .. ":matmul(" .. weight() .. "):tanh()", "(" .. y .. " * reach + b):cos()"}))
      p.keep(p:line("return %s, m", p:pick {"m:exp() * reach", "(m * m):sin()", "m:matmul(" .. weight() .. ")",
        "(m + mask[0]):exp()", "F.dropout(m, 0.25) * reach"}))
    end, ("end, %s)"):format(x)))
    if p:chance(70) then
      p:line("if %s.requires_grad then %s:register_hook(function(g) %s end) end", mid, mid, p:pick {
        "reach = reach + 0.5", "mask:mul_(2)", "see('mid', g) reach = 1", "return g * reach", "count = count + 1",
        "lt.no_grad(function() b:mul_(0.5) end)", "reach = reach * 0.5 return g * reach"})
    end
    if p:chance(40) then p:line("halves[#halves + 1] = %s", mid) end
    if p:chance(30) then p:line("%s = %s + %s", t, t, mid) end
  end

  -- Adds the statements of a layer on variable x. Returns the variable of its result. depth: of nested checkpoints.
  local function layer(x, depth)
    local t = p:name "t"
    local choices = {
      function() p:line("local %s = %s:matmul(%s):%s()", t, x, weight(), p:pick(unary)) end,
      function() p:line("local %s = F.linear(%s, %s, b) * 0.5", t, x, weight()) end,
      function() p:line("local %s = F.layer_norm(%s + %s:mean(0, true), {4})", t, x, x) end,
      function() p:line("local %s = %s + F.gelu(%s:matmul(%s))", t, x, x, weight()) end,
      function() p:line("local %s = F.dropout(%s, 0.25)", t, x) end,
      function() p:line("local %s = %s:softmax(1) * s", t, x) end,
      function() p:line("local %s = lt.cat({%s['::, 2:4'], %s['::, 0:2']}, 1):clone():mul_(b)", t, x, x) end,
      function() p:line("local %s = net%d(%s)", t, p:random(2), x) end,
      function() p:line("local %s = net%d(%s)", t, p:random(2), x) end,
      function() p:line("local %s, other%s = two(%s, %s)", t, t, x, p:pick {x, "x", "x * 2"}) end,
      function() p:line("local %s = Scaled.apply(%s, %s, %s)", t, x, weight(), p:pick {"2", "s", "strength"}) end,
    }
    if depth < 2 then
      choices[#choices + 1] = function()
        local y = p:name "x"
        p.keep(p:line("local %s", t))
        if p:chance(25) then
          p.keep(p:line("%s = lt.checkpoint(net%d, %s)", t, p:random(2), x))
          return
        end
        p.keep(p:block(("%s = lt.checkpoint(function(%s)"):format(t, y), function()
          local inner = y
          for _ = 1, p:random(2) do inner = layer(inner, depth + 1) end
          if p:chance(8) then
            p:line("%s", p:pick {"count = count + 0", "lt.graph_break()", "mask:mul_(1)"})
          end
          p.keep(p:line("return %s", inner))
        end, ("end, %s)"):format(x)))
      end
    end
    for _ = 1, depth == 0 and eager and 4 or 0 do choices[#choices + 1] = function() split(t, x) end end
    p.keep(p:pick(choices)() or p.body[#p.body])
    if depth > 0 then return t end
    if p:chance(20) then
      p:line("if %s.requires_grad then %s:register_hook(function(g) see('hook %s', g); return g * %s end) end", t, t, t,
        p:pick {"2", "-1", "s"})
    end
    if p:chance(30) then
      p:line("if %s.requires_grad then %s:register_hook(function(g) %s end) end", t, t, p:pick {
        "return g * strength", "return g + g:mean() * s", "return limited(g)", "return g:clamp(-cap.at, cap.at)",
        "if g.shape[1] > 2 then return g * 2 end", "return g:t():contiguous():t()", "return g / g.shape[1]",
        "if strength > 1 then return g * b end", "return x.requires_grad and g or g * 0.5",
        "local z = g:clone() z[0]:mul_(strength) return z"})
    end
    if p:chance(15) then
      p:line("if %s.requires_grad and not %s.is_leaf then %s:retain_grad(); kept[#kept + 1] = %s end", t, t, t, t)
    end
    return t
  end

  p.keep(p:line("local F = lt.nn.functional"))
  for k = 1, weights do p.keep(p:line("w%d = data(%d, 4, 4, {requires_grad = true})", k, k)) end
  p.keep(p:line("b = data(9, 4, {requires_grad = true})"))
  p.keep(p:line("kept, parameters = {}, {b%s}", (", w1, w2, w3, w4"):sub(1, 4 * weights)))
  p.keep(p:line("local opt = lt.optim.%s", p:pick {"SGD(parameters, {lr = 0.125})",
    "SGD(parameters, {lr = 0.125, momentum = 0.5})", "AdamW(parameters, {lr = 0.125})"}))
  p.keep(p:line("strength, cap, mask = 0.5, {at = 1}, data(3, 4, 4)"))
  p.keep(p:line("function limited(g) return g:clamp(-strength, strength) end"))
  p.keep(p:line("count, reach, halves = 0, 1, {}"))
  p.keep(p:line("Scaled = lt.autograd.Function:extend 'Scaled'"))
  p.keep(p:line("function Scaled.forward(ctx, x, w, k) ctx.k = k; ctx:save_for_backward(x, w); "
    .. "return x:matmul(w) * k end"))
  p.keep(p:line("function Scaled.backward(ctx, g) local x, w = unpack(ctx.saved_tensors); %s "
    .. "return g:matmul(w:t()) * ctx.k, %s x:t():matmul(g) * ctx.k or nil end", p:pick {"", "", "", "count = count + 1",
    "ctx.n = (ctx.n or 0) + 1"}, p:pick {"", "", "ctx.needs_input_grad[2] and", "strength > 0.5 and"}))
  p.keep(p:line("Two = lt.nn.Module:extend 'Two'"))
  p.keep(p:line("function Two:forward(x, y) return x:sin() + y * 0.5, y:matmul(w1) end"))
  p.keep(p:line("two, net1, net2 = Two(), lt.nn.Linear(4, 4), lt.nn.Sequential(lt.nn.Linear(4, 4), lt.nn.Tanh())"))
  p.keep(p:line("for k, m in ipairs {net1, net2[1]} do lt.no_grad(function() m.weight:copy_(data(20 + k, 4, 4)); "
    .. "m.bias:copy_(data(30 + k, 4)) end) end"))
  p.keep(p:line("for _, m in ipairs {net1, net2} do for _, w in ipairs(m:parameters()) do "
    .. "parameters[#parameters + 1] = w end end"))
  p.keep(p:line("handles = {}"))
  local function hook_module()
    p:line("handles[#handles + 1] = %s:register_full_backward_%s", p:pick {"two", "net1", "net2", "net2[1]", "net2[2]"},
      p:pick {
        "hook(function(_, a, b) return {a[1] and a[1] * strength, a[2], n = a.n} end)",
        "hook(function(_, a, b) return {a[1] and b[1] and a[1] + b[1]:mean(), a[2], n = a.n} end)",
        "hook(function(_, a) return {a[1] and a[1]:clamp(-cap.at, cap.at), a[2] and a[2] * 2, n = a.n} end)",
        "hook(function(m, a, b) if b[2] then return {a[1], a[2] and a[2] - b[2], n = a.n} end end)",
        "hook(function(m, a, b) if #m:parameters() > 0 then return {a[1] and a[1] * m:parameters()[1]:mean()} end end)",
        "hook(function(_, a, b) see('module', a[1], b[1]) end)",
        "hook(function() count = count + 1 end)",
        "pre_hook(function(_, b) return {b[1] and b[1] * 2, b[2], n = b.n} end)",
        "pre_hook(function(_, b) return {b[1] and limited(b[1]), b[2] and b[2] * strength, n = b.n} end)",
        "pre_hook(function(_, b) count = count + 0.5 end)"})
  end
  for _ = 1, p:random(4) - 1 do hook_module() end
  for _ = 1, p:random(3) - 1 do
    p:line("%s:register_hook(function(g) see('leaf', g); return g * 0.5 end)", weight())
  end
  for _ = 1, p:random(4) - 1 do
    p:line("%s:register_hook(%s)", weight(), p:pick {"limited", "function(g) return g * mask end",
      "function(g) return g * w1 end", "function(g) if strength > 0.5 then return g + cap.at end end",
      "function(g) return g - b.grad end", "function(g) return g * strength + mask end"})
  end
  p.keep(p:block(eager and "local model = (function(x, s)" or "local model = frame(function(x, s)", function()
    local x = "x"
    for _ = 1, 1 + p:random(4) do x = layer(x, 0) end
    p.keep(p:line("return %s, (%s * 0.5):sin()", x, p:pick {x, x, x, "x"}))
  end, "end)"))
  local losses = {"y:square():mean()", "(y * z):sum() * 0.125", "z:abs():sum()", "F.mse_loss(y, z:detach())",
    "F.cross_entropy(y, lt.arange(y:size(0)) % 4)", "y:matmul(w1):sum() * s"}
  -- Changes, between two backwards, what checkpoints read.
  local function between()
    if not eager then return end
    p:line("%s", p:pick {"reach = reach + 0.5", "mask:mul_(0.5)", "opt:step()", "strength = strength * 0.5",
      "lt.no_grad(function() b:mul_(0.5) end)", "lt.no_grad(function() w1:mul_(0.5) end)", "lt.rand(1)"})
  end
  -- Adds two losses of one checkpoint, each with its own backward.
  local function two_losses()
    p.keep(p:line("local v = data(seed, n, 4, {requires_grad = true})"))
    local function result()
      return p:pick {"(v + b):sin()", "v:matmul(" .. weight() .. "):tanh() * reach", "(v * reach + mask[0]):cos()",
        "F.dropout(v * v, 0.25)"}
    end
    p.keep(p:line("local v1, v2 = lt.checkpoint(function(v) return %s, %s end, v)", result(), result()))
    if p:chance(20) then p:line("v1:register_hook(function(g) reach = 2; return g * strength end)") end
    for k = 1, 2 do
      p.keep(p:line("try('loss %d', function() v%d:sum():backward() end)", k, k))
      p:line("gradient('loss %d', v.grad)", k)
      if k == 1 then between() end
    end
  end
  p.keep(p:block("local function train(seed, n, s, zero, update)", function()
    p.keep(p:line("kept, reach, halves = {}, 1, {}"))
    p.keep(p:line("if zero then opt:zero_grad() end"))
    p.keep(p:line("local x = data(seed, n, 4)"))
    p.keep(p:line("local ok, y, z = try('model', model, x, s)"))
    p.keep(p:line("if not ok then return end"))
    if p:chance(20) then
      p:line("try('second', function() local g = lt.grad(%s, %s, {create_graph = true, allow_unused = true})[1]; "
        .. "if g and g.requires_grad then g:square():sum():backward(nil, {retain_graph = true}) end end)",
        p:pick {"y:sum()", "(y * z):sum()", "z:sin():sum()"}, weight())
    end
    local count = p:random(3)
    for k = 1, count do p.keep(p:line("local l%d = %s", k, p:pick(losses))) end
    if p:chance(25) then
      p:line("try('grad', function() local g = lt.grad(l1, %s, {retain_graph = true, allow_unused = true}); "
        .. "gradient('grad', g) end)", weight())
    end
    if count > 1 and p:chance(50) then
      for k = 1, count do
        p.keep(p:line("try('backward %d', function() l%d:backward(nil, {retain_graph = %s}) end)", k, k,
          tostring(k < count)))
        if p:chance(30) then p:line("gradient('b', b.grad)") end
        if p:chance(40) then between() end
      end
    else
      local sum = {}
      for k = 1, count do sum[k] = ("l%d"):format(k) end
      local kept = p:chance(25)
      p.keep(p:line("try('backward', function() (%s):backward(nil, {retain_graph = %s}) end)", table.concat(sum, " + "),
        tostring(kept)))
      if kept then
        if p:chance(60) then between() end
        p:line("try('backward again', function() l1:backward() end)")
      end
    end
    if eager and p:chance(40) then two_losses() end
    if p:chance(30) then
      if p:chance(60) then between() end
      p:line("for k, m in ipairs(halves) do try('half ' .. k, function() m:sum():backward() end) end")
    end
    p.keep(p:line("for k, w in ipairs(parameters) do gradient('parameter ' .. k, w.grad) end"))
    p.keep(p:line("for _, t in ipairs(kept) do gradient('kept', t.grad) end"))
    p.keep(p:line("if update then opt:step() end"))
  end))
  local n = p:pick {2, 3, 5}
  for call = 1, 3 + p:random(4) do
    if p:chance(25) then n = p:pick {1, 2, 4, 7} end
    if p:chance(40) then
      p:line("%s", p:pick {"strength = 0.25", "strength = 2", "cap.at = 0.5", "cap = {at = 2}",
        "mask = data(5, 4, 4)", "mask:mul_(2)", "function limited(g) return g * 3 end",
        "if handles[1] then table.remove(handles).remove() end"})
    end
    if p:chance(15) then hook_module() end
    p:line("train(%d, %d, %s, %s, %s)", p:random(50), n, p:pick {"0.5", "0.5", "0.25"}, tostring(call == 1
      or p:chance(50)), tostring(p:chance(60)))
  end
  p.keep(p:line("for k, w in ipairs(parameters) do see('last ' .. k, w.detach and w:detach()) end"))
  p.keep(p:line("see('count', count)"))
end

return {count = 40, modes = "eager,compiled,auto,backward,outside", generate = generate}
