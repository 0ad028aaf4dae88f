-- Gradients that Lua keeps (in hooks, backwards of functions, by retain_grad, of lt.grad, saved tensors), while .grad
-- or the kept tensor is written in place. They share memory exactly where eager code shares it.
local hooks = {"keep", "keep", "same", "view", "part", "made", "last", "other", "fixed"}
local leaves = {"w1", "w2", "x"}

local function definitions(p)
  for _, t in ipairs(leaves) do
    p.keep(p:line("%s = data(%d, 2, 3, {dtype = 'float64', requires_grad = true})", t, p:random(1000)))
  end
  p.keep(p:line("mask = data(%d, 2, 3, {dtype = 'float64'})", p:random(1000)))
  p.keep(p:line("kept, bag, handles = {}, {}, {}"))
  p.keep(p:line("function keep(g) kept[#kept + 1] = g end"))
  p.keep(p:line("function same(g) kept[#kept + 1] = g; return g end"))
  p.keep(p:line("function view(g) kept[#kept + 1] = g:t() end"))
  p.keep(p:line("function part(g) kept[#kept + 1] = g[0]; return g:reshape(3, 2):view(2, 3) end"))
  p.keep(p:line("function made(g) local d = g * 2; kept[#kept + 1] = d; return d end"))
  p.keep(p:line("function last(g) bag.g = g end"))
  p.keep(p:line("function other(g) local b = bag.g; bag.g = g; return b end"))
  p.keep(p:line("function fixed(g) return mask end"))
  p.keep(p:line("function scale(t, s) if t.grad then lt.no_grad(function() t.grad:mul_(s) end) end end"))
  p.keep(p:line("function write(i, s) if kept[i] then lt.no_grad(function() kept[i]:mul_(s) end) end end"))
  p.keep(p:line("Keep = lt.autograd.Function:extend 'Keep'"))
  p.keep(p:line("function Keep.forward(ctx, x, w) ctx:save_for_backward(x, w); return x + w end"))
  p.keep(p:line("function Keep.backward(ctx, g) local saved = ctx.saved_tensors[1]; keep(%s); return %s, g end",
    p:pick {"g", "g:t()", "saved", "ctx.saved_tensors[2]"}, p:pick {"g", "g", "g * 2", "saved", "g:clone()"}))
end

local function generate(p)
  definitions(p)
  local function hook(t, name)
    p:line("%s%s:register_hook(%s)", p:chance(25) and "handles[#handles + 1] = " or "", t, name or p:pick(hooks))
  end
  local function change(of)
    local factor = p:pick {"0", "3", "0.5", "-1"}
    if p:chance(40) then return p:line("write(%d, %s)", p:random(4), factor) end
    p:line("scale(%s, %s)", p:pick(of), factor)
  end
  local function h() return p:pick {"h1", "h2", "h3"} end
  local all = {"w1", "w2", "x", "h1", "h2", "h3"}
  local options = "{retain_graph = true" .. (p:chance(10) and ", create_graph = true}" or "}")

  p.keep(p:block("f = frame(function(x, s)", function()
    p.keep(p:line("local h1 = x %s w1", p:pick {"+", "*"}))
    p.keep(p:line("local h2 = %s", p:pick {"x + w2", "w1 + w2", "h1 + w2", "x:t():contiguous():t() + w2"}))
    p.keep(p:line("local h3 = h1 + h2"))
    for _ = 1, 3 + p:random(6) do
      p:pick {
        function() p:line("%s = %s %s %s", h(), h(), p:pick {"+", "+", "*", "-"}, p:pick {"w1", "w2", h(), "s"}) end,
        function() p:line("%s = %s:%s()", h(), h(), p:pick {"tanh", "square", "sin"}) end,
        function() p:line("%s = Keep.apply(%s, %s)", h(), h(), p:pick {"w1", "w2", h()}) end,
        function() hook(p:pick(all)) end,
        function() hook(h()) end,
        function() p:line("%s:retain_grad()", h()) end,
        function() p:line("%s:retain_grad()", h()) end,
        function() p:line(p:chance(50) and "lt.graph_break()" or "h3 = h3:t():contiguous():t()") end,
        function() p:line("lt.mul(%s, %s):sum():backward(nil, %s)", h(), p:pick {"1", "w1", h()}, options) end,
        function() change(all) end,
        function()
          p:line("keep(lt.grad(%s:sum(), %s, {allow_unused = true, retain_graph = true}))", h(), p:pick(all))
        end,
      }()
    end
    if p:chance(60) then
      p:line("lt.add(h1 * h2, h3):sum():backward(nil, %s)", options)
      for _ = 1, p:random(3) - 1 do change(all) end
    end
    p.keep(p:line("return (h1 + h2 * s):sum(), h1, h2, h3"))
  end, "end)"))
  for call = 1, 2 + p:random(2) do
    for _ = 1, p:random(3) - 1 do if p:chance(50) then hook(p:pick(leaves)) end end
    p:line("r = {try('f %d', f, x, %s)}", call, call / 2)
    local function result() return ("r[%d]"):format(2 + p:random(3)) end
    local function try(text) p:line("try('%s', function() %s end)", p:name "late ", text) end
    for _ = 1, p:random(5) do
      p:pick {
        function() try(("%s:register_hook(%s)"):format(result(), p:pick(hooks))) end,
        function() try(result() .. ":retain_grad()") end,
        function() try(("lt.mul(%s, 1):sum():backward(nil, %s)"):format(result(), options)) end,
        function()
          try(("keep(lt.grad(%s:sum(), %s, {allow_unused = true, retain_graph = true}))"):format(result(),
            p:pick {"w1", "w2", "x", "r[3]"}))
        end,
        function() change(leaves) end,
      }()
    end
    if p:chance(80) then try "r[2]:backward()" end
    for _ = 1, p:random(3) do change(leaves) end
    for i = 3, 5 do p:line("try('grads %d', function() return r[%d].grad end)", i, i) end
    for _, t in ipairs(leaves) do p:line("gradient('%s', %s.grad)", t, t) end
    p:line("for _, g in ipairs(kept) do gradient('kept', g) end")
    p:line("gradient('bag', bag.g); see('mask', mask)")
    if p:chance(40) then p:line("w1.grad = nil") end
    if p:chance(40) then p:line("kept = {}") end
    if p:chance(30) then p:line("for _, t in ipairs(handles) do t.remove() end") end
  end
end

return {count = 40, generate = generate}
