-- Functions whose calls pass one tensor as several inputs, or several that share memory, in other patterns from call to
-- call; leaves that take other memory (x.data = y, set_) between a run and its backward, after it, or between two; kept
-- losses; inputs that no backward reads and that are written or freed before it.
local unary = {"sin", "tanh", "square", "relu", "exp", "neg"}

local function generate(p)
  local dtype = p:chance(70) and "float64" or "float32"
  local options = (", {dtype = '%s'%s})"):format(dtype, "%s")
  local function leaf(seed) return ("data(%d, 3, 4"):format(seed) .. options:format(", requires_grad = true") end
  local function plain(seed) return ("data(%d, 3, 4"):format(seed) .. options:format "" end

  p.keep(p:line("losses, ws = {}, {}"))
  for k = 1, 3 do p.keep(p:line("ws[%d] = %s", k, leaf(k))) end
  p.keep(p:line("frozen = %s", plain(4)))
  p.keep(p:line("module = {w = ws[%d], v = ws[%d]}", p:random(3), p:random(3)))

  local function value() return p:pick {"a", "b", "c", "y", "y", "module.w", "module.v", "frozen", "a * b", "c:t():t()",
    "b['0']", "a:detach()"} end
  p.keep(p:block("f = frame(function(a, b, c, k)", function()
    p.keep(p:line("local y = %s", p:pick {"a * 1", "a + b", "a * c", "b * k", "a", "module.w * a"}))
    for _ = 1, 1 + p:random(5) do
      local what = p:random(10)
      if what <= 5 then
        p:line("y = %s %s %s", value(), p:pick {"+", "-", "*", "+"}, value())
      elseif what <= 7 then
        p:line("y = %s:%s()", value(), p:pick(unary))
      elseif what == 8 then
        p:line("y = y + %s * k", value())
      elseif p:chance(40) then
        p:line("%s:%s_(%s)", p:pick {"frozen", "b:detach()", "c:detach()"}, p:pick {"add", "mul"}, p:pick {"0.5", "k"})
      elseif p:chance(30) then
        p:line("lt.graph_break()")
      else
        p:line("y = y:sum(%d, true) + %s", p:random(2) - 1, value())
      end
    end
    if p:chance(15) then
      p:line("%s.data = %s", p:pick {"module.w", "a", "frozen"}, p:pick {"b:detach() * 1", "frozen", "c"})
    end
    if p:chance(15) then p:line("do local s = (y * b):sum() s:backward(nil, {retain_graph = true}) end") end
    p.keep(p:line("return %s", p:pick {"y", "y, a * b", "y:sum()", "y, y:sum()", "(y * y):sum(), c"}))
  end, "end)"))

  -- Arguments of a call. There are few names, so that one is often passed twice.
  local function argument()
    return p:pick {"ws[1]", "ws[1]", "ws[2]", "ws[2]", "ws[3]", "module.w", "made", "made", "frozen", "ws[1] * 2",
      "same", "ws[2]['::']", "made:detach()"}
  end
  local function event()
    local w = p:pick {"ws[1]", "ws[2]", "ws[3]", "module.w", "frozen", "same"}
    local events = {
      function() p:attempt(p:name "data ", ("%s.data = %s"):format(w, plain(p:random(50)))) end,
      function()
        p:attempt(p:name "data ", ("%s.data = %s"):format(w, p:pick {"ws[1]", "ws[2]", "frozen", w, "made"}))
      end,
      function() p:attempt(p:name "data ", ("%s.data = %s.data * 0.5"):format(w, w)) end,
      function() p:line("ws[%d] = %s", p:random(3), leaf(p:random(50))) end,
      function() p:line("module.%s = ws[%d]", p:pick {"w", "v"}, p:random(3)) end,
      function() p:line("module.w, module.v = module.v, module.w") end,
      function()
        p:attempt(p:name "set ", ("lt.no_grad(function() %s:set_(%s) end)"):format(w, plain(p:random(50))))
      end,
      function() p:attempt(p:name "write ", ("lt.no_grad(function() %s:mul_(0.5) end)"):format(w)) end,
      function() p:attempt(p:name "flag ", ("%s:requires_grad_(%s)"):format(w, p:pick {"true", "false"})) end,
      function() p:line("%s.grad = nil", w) end,
      function() p:line("collectgarbage()") end,
    }
    p:pick(events)()
  end
  local function backward(n)
    p:attempt(p:name "backward ", ("losses[%d]:backward(nil, {%s})"):format(n, p:pick {"", "retain_graph = true"}))
    for k = 1, 3 do p:line("gradient('w%d', ws[%d].grad)", k, k) end
  end

  local calls = 2 + p:random(4)
  for call = 1, calls do
    p:line("made = ws[%d] * %d", p:random(3), p:random(3))
    p:line("same = %s", plain(20 + p:random(5)))
    local text = ("try('f %d', f, %s, %s, %s, %s)"):format(call, argument(), argument(), argument(),
      p:pick {"2", "0.5", "3", tostring(call)})
    p.keep(p:line("ok, y, z = %s", text))
    p.keep(p:line("losses[%d] = (ok and type(y) == 'userdata' and y.requires_grad) and y:sum() or ws[1]:sum()", call))
    for _ = 1, p:random(3) - 1 do event() end
    if p:chance(60) then backward(p:random(call)) end
    for _ = 1, p:random(2) - 1 do event() end
  end
  for n = 1, calls do
    if p:chance(50) then backward(n) end
    if p:chance(30) then event() end
  end
  p:line("see('ws', ws[1], ws[2], ws[3], frozen)")
end

return {count = 60, generate = generate}
