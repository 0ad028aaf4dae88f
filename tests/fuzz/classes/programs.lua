-- Arithmetic, views, reductions, in-place writes, branches, loops, tables, closures and breaks, with gradients or
-- without; sizes change between the calls.
local unary = {"tanh", "sigmoid", "relu", "exp", "abs", "neg", "square", "floor", "sign"}
local binary = {"+", "-", "*"}

local function generate(p)
  local depth = 0
  -- t1 to t4 are float32 of shape {n, 4}, s1 and s2 Lua numbers.
  local function tensor() return "t" .. p:random(4) end
  local function scalar() return "s" .. p:random(2) end
  local function number() return p:random(2) == 1 and scalar() or tostring(p:random(7) / 4) end
  local function assign(format, ...) p:line(tensor() .. " = " .. format, ...) end
  local block

  local statements = {
    function() assign("%s:%s()", tensor(), p:pick(unary)) end,
    function() assign("%s %s %s", tensor(), p:pick(binary), tensor()) end,
    function() assign("%s %s %s", tensor(), p:pick(binary), number()) end,
    function() assign("%s %s %s", number(), p:pick(binary), tensor()) end,
    function() assign("%s + %s:sum(%d, true)", tensor(), tensor(), p:random(2) - 1) end,
    function() assign("%s - %s:mean(-1, true)", tensor(), tensor()) end,
    function() assign("%s * %s:amax(1, true)", tensor(), tensor()) end,
    function() assign("%s:softmax(%d)", tensor(), p:random(2) - 1) end,
    function() assign("%s:mm(%s:transpose(0, 1)):mm(%s) * 0.125", tensor(), tensor(), tensor()) end,
    function() assign("lt.where(%s:gt(%s), %s, %s)", tensor(), number(), tensor(), tensor()) end,
    function() assign("(%s + 0):view(-1):view(%s:size(0), 4)", tensor(), tensor()) end,
    function() assign("%s[':, 1:2'] + %s", tensor(), tensor()) end,
    function() assign("%s[-1] * %s", tensor(), tensor()) end,
    function() assign("%s:to('float64'):to('float32')", tensor()) end,
    function()  -- in place, on a copy that nothing else needs for its gradient
      local t = tensor()
      p:line("%s = %s:clone()", t, tensor())
      p:line("%s:%s_(%s)", t, p:pick {"add", "mul", "sub"}, number())
      if p:chance(50) then p:line("%s[':, 0'] = %s", t, number()) end
    end,
    function() p:line("%s = %s %s %s", scalar(), scalar(), p:pick(binary), p:random(5) / 8) end,
    function() p:line("do local pair = {%s, k = %s}; %s = pair[1] + pair.k end", tensor(), number(), tensor()) end,
    function() p:line("%s, %s = helper(%s, %s)", tensor(), scalar(), tensor(), number()) end,
    function() p:line("do local c = function(v) return v * %s + %s end; %s = c(%s) end", number(), scalar(), tensor(),
      tensor()) end,
    function() p:line("log[#log + 1] = %s", scalar()) end,
    function() p:line(p:pick {"lt.graph_break()", "effect(s1)", "log[#log + 1] = " .. tensor() .. ":sum():item()"}) end,
    function()
      p:block(("if %s > %s then"):format(number(), number()), block)
      if p:chance(50) then p:block(("if %s <= %s then"):format(number(), number()), block) end
    end,
    function() p:block("for i = 1, " .. p:pick {"2", "3", "k"} .. " do", block) end,
    function() p:block("for w = 1, 2 do", block) end,
  }
  function block()
    depth = depth + 1
    for _ = 1, p:random(3) do statements[p:random(depth > 3 and #statements - 3 or #statements)]() end
    depth = depth - 1
  end

  p.keep(p:line("local log = {}"))
  p.keep(p:line("local function effect(v) log[#log + 1] = v end"))
  p:line("local function helper(t, s) local r = t * s; if s > 1 then lt.graph_break() end; return r - 0.5, s + 0.25 end")
  p.keep(p:block("local f = frame(function(t1, t2, t3, s1, s2, k)", function()
    p:line("local t4 = t1 + t2")
    for _ = 1, 4 + p:random(8) do statements[p:random(#statements)]() end
    p:line("return t1 + t2, t3:tanh(), t4, s1, s2")
  end, "end)"))
  p.keep(p:block("local function call(n, k, s1, grad, seed)", function()
    p.keep(p:line("lt.manual_seed(seed)"))
    p.keep(p:line("local x = {}; for i = 1, 3 do x[i] = lt.randn(n, 4, {requires_grad = grad}) end"))
    p.keep(p:line("for i = #log, 1, -1 do log[i] = nil end"))
    p.keep(p:line("local r = {try('f', f, x[1], x[2], x[3], s1, 1.5, k)}"))
    p:line("for i = 1, #log do see('log', log[i]) end")
    p.keep(p:line("local total"))
    p:line("for i = 2, 4 do if lt.is_tensor(r[i]) and r[i].requires_grad then local v = (r[i] * 0.5):sum(); "
      .. "total = total and total + v or v end end")
    p:line("if total then try('backward', total.backward, total) end")
    p:line("for i = 1, 3 do gradient('x' .. i, x[i].grad) end")
  end))
  for call,
    row in ipairs {"3, 2, 0.5, false", "3, 2, 0.5, false", "3, 3, 0.75, true", "5, 2, 2, true", "5, 2, 2, false",
    "1, 1, 0.5, true"} do
    p:line("call(%s, %d)", row, call)
  end
end

return {count = 40, generate = generate}
