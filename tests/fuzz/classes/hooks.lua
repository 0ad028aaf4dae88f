-- Hooks of gradients that are added and removed, in compiled functions and outside, before and after their tensors were
-- used, of leaves and of what has a history; retained gradients; hooks that see, change, count and fail; hooks that
-- read what changes between calls.
local quiet = {"double", "zero", "nothing", "scaled", "shifted", "chosen", "other"}
local hooks = {"seen_hook", "counted", unpack(quiet)}
local all = {"adds", "drops", unpack(hooks)}  -- those of leaves, where PyTorch is not asked

local function generate(p)
  local dtype = p:chance(70) and "float64" or "float32"
  for i = 1, 2 do
    p.keep(p:same("w%d = data(%d, 3, {dtype = '%s', requires_grad = true})", i, p:random(1000), dtype))
  end
  p.keep(p:both("count, calls, handles = {0}, {}, {}", "count, calls, handles = [0], [], {}"))
  p.keep(p:both("function seen_hook(g) see('hook', g) end", "def seen_hook(g):\n    see('hook', g)"))
  p.keep(p:both("function double(g) return g * 2 end", "def double(g):\n    return g * 2"))
  p.keep(p:both("function zero(g) return g * 0 end", "def zero(g):\n    return g * 0"))
  p.keep(p:both("function nothing(g) end", "def nothing(g):\n    pass"))
  p.keep(p:both("function counted(g) count[1] = count[1] + 1; return g + count[1] end",
    "def counted(g):\n    count[0] += 1\n    return g + count[0]"))
  p.keep(p:both("function broken(g) error('a hook that fails') end",
    "def broken(g):\n    raise ValueError('a hook that fails')"))
  p.keep(p:same("scale, way = 0.5, 1"))
  p.keep(p:both("shift, box = data(7, 3), {by = 2}", "shift, box = data(7, 3), {'by': 2}"))
  p.keep(p:both("function scaled(g) return g * scale end", "def scaled(g):\n    return g * scale"))
  p.keep(p:both("function shifted(g) return g + shift * box.by end",
    "def shifted(g):\n    return g + shift * box['by']"))
  p.keep(p:both("function chosen(g) if way > 1 then return g * way end end",
    "def chosen(g):\n    return g * way if way > 1 else None"))
  p.keep(p:both("function other(g) return g:sum():expand_as(g) end", "def other(g):\n    return g.sum().expand_as(g)"))
  p.keep(p:both("function adds(g) if count[1] < 9 then count[1] = count[1] + 3; w2:register_hook(double) end end", ""))
  p.keep(p:both("function drops(g) local t = handles[1 + count[1] % 3]; if t then t.remove() end end", ""))
  -- PyTorch visits leaves before older nodes. That is visible if a backward fails midway, or if the hooks of leaves
  -- record when they run.
  local handles, fails, spends, loud = 0, p:chance(25), p:chance(35), p:chance(50)
  local alike = not (fails or spends or loud)
  local function change()
    p:pick {
      function() p:same("scale = %s", p:pick {"0.5", "2", "-1", "3"}) end,
      function() p:same("way = %d", p:random(4)) end,
      function() p:same("shift = data(%d, 3)", p:random(1000)) end,
      function() p:same("shift = %s", p:pick {"w1", "w2:detach()"}) end,
      function() p:both("box.by = 3", "box['by'] = 3") end,
      function() p:both("box = {by = -1}", "box = {'by': -1}") end,
    }()
  end
  local function hook(t, within)
    local some = t:find "^h" and hooks or loud and all or quiet
    local name = fails and p:chance(15) and "broken" or p:pick(some)
    if p:chance(within and 20 or 50) then
      handles = handles + 1
      return p:both(("handles[%d] = %s:register_hook(%s)"):format(handles, t, name),
        ("handles[%d] = %s.register_hook(%s)"):format(handles, t, name))
    end
    if within and p:chance(30) then
      return p:both(("%s:register_hook(function(g) return g * s end)"):format(t),
        ("%s.register_hook(lambda g: g * s)"):format(t))
    end
    p:same("%s:register_hook(%s)", t, name)
  end

  local function h() return p:pick {"h1", "h2"} end
  local history = p:chance(50)  -- x has one, or requires grad itself
  local function input() return p:pick(history and {"w1", "w2", "x"} or {"w1", "w2"}) end
  -- Adds a hook to a leaf for one backward.
  local function once()
    local t, name = input(), p:pick(loud and all or quiet)
    p:both(("local once = %s:register_hook(%s)"):format(t, name), ("once = %s.register_hook(%s)"):format(t, name))
    p:same("lt.mul(%s, %s):sum():backward({retain_graph = true})", h(), h())
    p:same("once:remove()")
  end
  p:frame("f", "x, s", function()
    p.keep(p:same("local h1 = x * w1"))
    p.keep(p:same("local h2 = x + w2"))
    for _ = 1, 2 + p:random(5) do
      p:pick {
        function() p:same("%s = %s %s %s", h(), h(), p:pick {"+", "*", "-"}, p:pick {"w1", "w2", h(), "s"}) end,
        function() p:same("%s = %s:%s()", h(), h(), p:pick {"tanh", "square", "sin", "sigmoid"}) end,
        function() hook(p:pick {"h1", "h2", "w1", "w2", "x"}, true) end,
        function() hook(p:pick {"h1", "h2"}, true) end,
        function() if history then hook("x", true) else once() end end,
        once,
        function() p:same("%s:retain_grad()", history and "x" or h()) end,
        function()
          local to, of, at = h(), h(), input()
          p:both(("%s = h1 + lt.grad(%s:sum(), %s, {retain_graph = true})"):format(to, of, at),
            ("%s = h1 + torch.autograd.grad(%s.sum(), %s, retain_graph=True)[0]"):format(to, of, at))
        end,
        function() p:same("%s:retain_grad()", h()) end,
        function() p:same("%s:mul_(s)", h()) end,
        function() p:both("lt.graph_break()", "") end,
        function() p:same("lt.mul(%s, 2):sum():backward(%s)", h(), spends and "" or "{retain_graph = true}") end,
        function() p:same("lt.mul(%s, %s):sum():backward({retain_graph = true})", h(), h()) end,
        function() p:same("local part = %s['1:']", h()) end,
      }()
    end
    p.keep(p:same("return (h1 * h2):sum(), %s, %s", h(), p:pick {"h1", "h2", "h1 * 2", "h2:detach()", "h1['1:']"}))
  end)
  for call = 1, 2 + p:random(3) do
    for _ = 1, p:random(4) - 1 do hook(p:pick {"w1", "w2"}) end
    for _ = 1, p:random(3) - 1 do change() end
    p:same("x = data(%d, 3, {dtype = '%s'})", p:random(1000), dtype)
    if history and p:chance(50) then
      p:same("x = x * %s", p:pick {"w1", "w2", "2 + w1"})
      if p:chance(40) then hook("x") end
    elseif history or p:chance(40) then
      p:same("x:requires_grad_(true)")
      if p:chance(40) then hook("x") end
    end
    p:both(("r = {try('f %d', f, x, %s)}"):format(call, call / 2),
      ("r = attempt('f %d', f, x, %s)"):format(call, call / 2))
    local function result() return p:random(3) end
    for _ = 1, p:random(3) - 1 do
      local at = result()
      local name = p:pick(hooks)
      p:attempt(p:name("late "), ("r[%d]:register_hook(%s)"):format(at + 1, name),
        ("r[%d].register_hook(%s)"):format(at, name))
    end
    if p:chance(30) then
      local at = result()
      p:attempt(p:name("retain "), ("r[%d]:retain_grad()"):format(at + 1), ("r[%d].retain_grad()"):format(at))
    end
    if handles > 0 and p:chance(50) then
      local handle = p:random(handles)
      p:attempt(p:name("remove "), ("handles[%d]:remove()"):format(handle), ("handles[%d].remove()"):format(handle))
    end
    if p:chance(25) then
      local text, at = p:pick {"lt.grad(r[2], %s, {allow_unused = true, retain_graph = true})"},
        p:pick {"w1", "w2", "r[3]"}
      p:both(("try('grad %d', lt.grad, r[2], %s, {allow_unused = true, retain_graph = true})"):format(call, at),
        ("attempt('grad %d', lambda: torch.autograd.grad(r[1], %s, allow_unused=True, retain_graph=True)[0])"):format(
          call, (at:gsub("3", "2"))))
    end
    if p:chance(80) then p:attempt(p:name("backward "), "r[2]:backward()", "r[1].backward()") end
    for i = 1, 3 do
      p:both(("try('grads %d', function() return r[%d].grad end)"):format(i, i + 1),
        ("attempt('grads %d', lambda: r[%d].grad)"):format(i, i))
    end
    p:same("gradient('w1.grad', w1.grad)")
    p:same("gradient('w2.grad', w2.grad)")
    p:same("gradient('x.grad', x.grad)")
    p:both("see('count', count[1])", "see('count', count[0])")
  end
  p.python = p.python and alike
end

return {count = 40, generate = generate}
