-- Ways to save gradient memory: nested lt.checkpoint with dropout, autocast and hooks, and memory budgets of compiled
-- forwards. Backwards run outside, of some results, in parts, twice. Mode "plain", without checkpoints, has equal bits.
local unary = {"tanh", "sigmoid", "sin", "square", "relu"}

-- Variables are of shape {3, 4}.
local function generate(p)
  local checkpointed
  local function number() return tostring((p:random(9) - 5) / 4) end
  local function statement(pool, depth)
    local function any() return p:pick(pool) end
    local t = p:name "t"
    local choices = {
      function() p:line("local %s = %s:%s()", t, any(), p:pick(unary)) end,
      function() p:line("local %s = lt.nn.functional.gelu(%s)", t, any()) end,
      function() p:line("local %s = %s %s %s", t, any(), p:pick {"+", "*", "-"}, any()) end,
      function() p:line("local %s = %s * %s", t, any(), number()) end,
      function() p:line("local %s = %s:matmul(w%d) * 0.25", t, any(), p:random(2)) end,
      function() p:line("local %s = lt.nn.functional.linear(%s, w%d, b)", t, any(), p:random(2)) end,
      function() p:line("local %s = lt.nn.functional.dropout(%s, %s)", t, any(), p:pick {"0.5", "0.25", "s"}) end,
      function() p:line("local %s = %s * lt.rand(3, 4)", t, any()) end,
      function() p:line("local %s = lt.nn.functional.layer_norm(%s, {4})", t, any()) end,
      function() p:line("local %s = %s:softmax(1)", t, any()) end,
      function() p:line("local %s = %s - %s:mean(0, true)", t, any(), any()) end,
      function() p:line("local %s = lt.cat({%s, %s}, 1)['::, 2:6']", t, any(), any()) end,
      function() p:line("local %s = %s:t():contiguous():t()", t, any()) end,
      function() p:line("local %s = %s:clone(); %s:%s", t, any(), t, p:pick {"mul_(2)", "add_(1)", "relu_()"}) end,
      function() p:line("local %s = %s:detach()", t, any()) end,
      function()
        p:line("local %s = lt.autocast('cpu', {dtype = lt.bfloat16}, function() "
          .. "return (%s:matmul(w%d):sin() * 0.5):to(%s.dtype) end)", t, any(), p:random(2), any())
      end,
    }
    if depth == 0 then
      choices[#choices + 1] = function()
        local h = any()
        p:line("if %s.requires_grad then %s:register_hook(function(g) return g * 2 end) end; local %s = %s:sin()", h, h,
          t, h)
      end
      choices[#choices + 1] = function()
        local h = any()
        p:line("local %s = %s + 1; if %s.requires_grad then %s:retain_grad(); kept[#kept + 1] = %s end", t, h, t, t, t)
      end
      choices[#choices + 1] = function() p:line("lt.graph_break(); local %s = %s:sin()", t, any()) end
    end
    if depth < 3 and p:chance(depth == 0 and 45 or 20) then return checkpointed(pool, depth + 1) end
    p:pick(choices)()
    pool[#pool + 1] = t
  end
  function checkpointed(pool, depth)
    local t, u, x = p:name "t", p:name "t", p:name "x"
    local several = p:chance(30)
    local head, tail = ("lt.checkpoint(function(%s)"):format(x), ("end, %s)"):format(p:pick(pool))
    if p:chance(15) then
      head = "lt.autocast('cpu', {dtype = lt.bfloat16}, function() return " .. head
      tail = tail .. " end)"
    end
    p.keep(p:line("local %s, %s", t, u))
    p.keep(p:block(("%s, %s = %s"):format(t, u, head), function()
      local inner = {x, x, p:pick(pool)}
      for _ = 1, p:random(3) do statement(inner, depth) end
      p.keep(p:line("return %s%s", inner[#inner], several and ", " .. p:pick(inner) or ""))
    end, tail))
    pool[#pool + 1] = t
    if several then pool[#pool + 1] = u end
  end

  local dtype = p:pick {"float32", "float32", "float64"}
  p.keep(p:line("lt.config.activation_memory_budget = %s", p:pick {"0", "0.25", "0.5", "1", "1"}))
  p.keep(p:line("w1, w2, b = data(1, 4, 4, {dtype = '%s', requires_grad = true}), "
    .. "data(2, 4, 4, {dtype = '%s', requires_grad = true}), "
    .. "data(3, 4, {dtype = '%s', requires_grad = true})", dtype, dtype, dtype))
  p.keep(p:line("kept = {}"))
  p.keep(p:block("local f = frame(function(x, y, s)", function()
    local pool = {"x", "y"}
    for _ = 1, 2 + p:random(4) do statement(pool, 0) end
    local out = {}
    for i = 1, 3 do out[i] = p:pick(pool) end
    p.keep(p:line("return %s, (%s * %s):sum()", table.concat(out, ", "), pool[#pool], p:pick(pool)))
  end, "end)"))
  p.keep(p:block("local function call(seed, s, of_x)", function()
    p.keep(p:line("kept = {}"))
    p.keep(p:line("local x, y = data(seed, 3, 4, {dtype = '%s'}):requires_grad_(of_x), "
      .. "data(seed + 1, 3, 4, {dtype = '%s'})", dtype, dtype))
    p.keep(p:line("local ok, a, b1, c, loss = try('f', f, x, y, s)"))
    p.keep(p:line("if not ok then return end"))
    p.keep(p:line("see('random', lt.rand(2))"))
    for _ = 1, p:random(4) do
      p:pick {
        function() p:line("try('hook', function() %s:register_hook(function(g) return g * 0.5 end) end)",
          p:pick {"a", "b1", "c"}) end,
        function() p:line("try('retain', function() %s:retain_grad() end)", p:pick {"a", "b1", "c"}) end,
        function()
          p:line("try('grad', function() local g = lt.grad(%s:sum(), %s, {retain_graph = true, allow_unused = true}); "
            .. "gradient('grad', g) end)", p:pick {"a", "b1", "c", "loss"}, p:pick {"w1", "b", "x", "a", "c"})
        end,
        function()
          p:line("try('part', function() %s:sum():backward(nil, {retain_graph = true}) end)", p:pick {"a", "b1", "c"})
        end,
        function()
          p:line("try('double', function() "
            .. "local g = lt.grad(%s:sum(), w1, {create_graph = true, allow_unused = true}); "
            .. "if g and g.requires_grad then (g * g):sum():backward(nil, {retain_graph = true}) end end)",
            p:pick {"a", "c", "loss"})
        end,
        function() p:line("collectgarbage()") end,
      }()
    end
    local roots = p:pick {"loss", "(a * b1):sum() + loss", "a:sum() + c:sum()", "loss"}
    p.keep(p:line("try('backward', function() (%s):backward() end)", roots))
    p:line("try('again', function() %s:sum():backward() end)", p:pick {"a", "b1", "loss"})
    p:line("for _, t in ipairs(kept) do gradient('kept', t.grad) end")
    p:line("for _, t in ipairs {a, b1, c} do "
      .. "if t.requires_grad and not t.is_leaf then gradient('result', t.grad) end end")
    p.keep(p:line("gradient('w1', w1.grad); gradient('w2', w2.grad); gradient('b', b.grad); gradient('x', x.grad)"))
    if p:chance(50) then p:line("lt.no_grad(function() w1:sub_(w1.grad and w1.grad * 0.125 or 0) end)") end
    if p:chance(50) then p:line("w1.grad, w2.grad, b.grad = nil, nil, nil") end
  end))
  for _ = 1, 2 + p:random(2) do
    p:line("call(%d, %s, %s)", p:random(50), p:pick {"0.5", "0.25"}, p:pick {"true", "false"})
  end
  p.keep(p:line("lt.config.activation_memory_budget = 1"))
end

return {count = 40, generate = generate,
  modes = "eager,plain,compiled,dynamic,patched,auto,capture,break,backward,outside"}
