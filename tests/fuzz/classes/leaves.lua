-- Leaves that a frame makes and returns: of new, random and detached tensors and of views; with hooks, in losses, with
-- a backward inside. The caller continues with them: writes, hooks, gradients by lt.grad and backward, of first and
-- second order, once and twice, leaf by leaf.
local function generate(p)
  p.keep(p:line("w, x, b = data(1, 3, 4, {requires_grad = true}), data(2, 3, 4%s), data(3, 4, {requires_grad = true})",
    p:chance(30) and ", {requires_grad = true}" or ""))
  p.keep(p:line("kept, shelf = {}, {}"))
  p.keep(p:line("function keep(g) kept[#kept + 1] = g end"))
  p.keep(p:line("function twice(g) return g * 2 end"))
  local made = 1 + p:random(2)
  local leaves = {}
  for i = 1, made do leaves[i] = "p" .. i end
  local function leaf() return p:pick(leaves) end
  local function value() return p:pick {"h", "h", "x", "w", leaf(), leaf(), "b"} end
  local unary = {"tanh", "sigmoid", "exp", "sin", "square", "clone"}
  local function write(t)
    return ("lt.no_grad(function() %s:%s end)"):format(t, p:pick {"add_(1)", "mul_(0.5)", "copy_(x)", "zero_()"})
  end
  local function step()
    p:pick {
      function() p:line("h = h %s %s", p:pick {"+", "*", "-"}, value()) end,
      function() p:line("h = h %s %s", p:pick {"+", "*"}, leaf()) end,
      function() p:line("h = %s:%s()", p:pick {"h", leaf()}, p:pick(unary)) end,
      function() p:line("h = h:mm(%s:t()):mm(%s) * 0.1", leaf(), p:pick {"x", leaf()}) end,
      function() p:line("h = h + %s[%d]", leaf(), p:random(3) - 1) end,
      function() p:line("%s:register_hook(%s)", p:pick {leaf(), "h"}, p:pick {"keep", "twice"}) end,
      function() p:line("h:retain_grad()") end,
      function() if p:chance(30) then p:line(write(leaf())) end end,
      function()
        if p:chance(40) then p:line("h:square():sum():backward(nil, {retain_graph = %s})", p:pick {"true", "false"}) end
      end,
      function() if p:chance(20) then p:line("lt.graph_break()") end end,
      function() if p:chance(20) then p:line("%s.grad = nil", leaf()) end end,
      function() if p:chance(20) then p:line("%s:requires_grad_(%s)", leaf(), p:pick {"false", "true"}) end end,
      function()
        if p:chance(15) then p:line("%s:requires_grad_(%s)", p:pick {"w", "b"}, p:pick {"false", "true"}) end
      end,
    }()
  end
  p.keep(p:block("f = frame(function(s)", function()
    p.keep(p:line("local h = %s", p:pick {"x * s", "w * x + s", "x + b"}))
    for i = 1, made do
      p.keep(p:line("local p%d = %s", i, p:pick {
        "lt.ones(3, 4, {requires_grad = true})", "lt.full({3, 4}, s, {requires_grad = true})",
        "lt.rand(3, 4):requires_grad_()", "h:detach():requires_grad_()", "h:detach():clone():requires_grad_()",
        "x:detach():mul(s):requires_grad_()", "lt.nn.Parameter(x * 2)", "lt.nn.Linear(4, 3).weight",
        "h:detach():t():contiguous():t():requires_grad_()", "lt.zeros(6, 4):narrow(0, 1, 3):requires_grad_()"}))
      for _ = 1, p:random(3) - 1 do if i == made then step() end end
    end
    for _ = 1, 2 + p:random(5) do step() end
    if p:chance(30) then p:line("shelf.p = %s", leaf()) end
    if p:chance(30) then p:line("shelf.v = %s:narrow(0, 0, 2)", leaf()) end
    local out = {"(h * h):sum()", "h"}
    for _, l in ipairs(leaves) do if p:chance(85) then out[#out + 1] = l end end
    p.keep(p:line("return %s", table.concat(out, ", ")))
  end, "end)"))
  for call = 1, 2 + p:random(2) do
    p:line("lt.manual_seed(%d)", call)
    p.keep(p:line("r = {try('f %d', f, %s)}", call, call / 2))
    local function result() return ("r[%d]"):format(3 + p:random(2)) end
    local function try(text) p:line("try('%s', function() %s end)", p:name "late ", text) end
    for _ = 1, p:random(5) do
      p:pick {
        function() try(("%s:register_hook(%s)"):format(result(), p:pick {"keep", "twice"})) end,
        function() try(result() .. ":retain_grad()") end,
        function()
          if p:chance(40) then try(("%s:requires_grad_(%s)"):format(result(), p:pick {"true", "false"})) end
        end,
        function() if p:chance(40) then try(write(result())) end end,
        function() try("lt.no_grad(function() shelf.v:add_(1) end)") end,
        function() p:line("r[2] = r[2] and r[2] + (%s * 2):sum()",
          p:pick {"(r[4] or x)", "(r[5] or x)", "(shelf.p or x)"}) end,
        function() try(("gradient('by', lt.grad(r[2], {%s}, {retain_graph = true, allow_unused = true})[1])")
          :format(result())) end,
        function() try(("local g = lt.grad(r[2], {%s}, {create_graph = true, allow_unused = true})[1] "
          .. "gradient('first', g) g:square():sum():backward(nil, {retain_graph = true})"):format(result())) end,
        function() try("r[3]:sum():backward(nil, {retain_graph = true})") end,
      }()
    end
    try "r[2]:backward()"
    if p:chance(20) then try "r[2]:backward()" end
    for i = 4, 5 do
      p:line("if r[%d] then see('leaf', r[%d], r[%d].is_leaf) gradient('of %d', r[%d].grad) end", i, i, i, i, i)
    end
    for _, t in ipairs {"w", "x", "b"} do p:line("gradient('%s', %s.grad)", t, t) end
    p:line("see('shelf', shelf.p, shelf.v)")
    p:line("for _, g in ipairs(kept) do gradient('kept', g) end")
  end
end

return {count = 40, generate = generate}
