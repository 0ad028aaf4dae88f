-- Arithmetic, views, reductions, in-place writes, branches, loops, tables, closures and breaks, protected calls,
-- coroutines, closures and objects that are kept from call to call, integers that become sizes, positions and bounds,
-- with gradients or without; sizes and integers change between the calls.
local unary = {"tanh", "sigmoid", "relu", "exp", "abs", "neg", "square", "floor", "sign"}
local binary = {"+", "-", "*"}

local function generate(p)
  local depth = 0
  -- t1 to t4 are float32 of shape {n, 4}, s1 and s2 Lua numbers.
  local function tensor() return "t" .. p:random(4) end
  local function scalar() return "s" .. p:random(2) end
  -- k is 1 to 3, n the first size.
  local function length() return p:pick {"k", "math.min(k + 1, 4)", "n % 3 + 1", tostring(p:random(3))} end
  local function position(size) return p:pick {"(k - 1) % " .. size, "(n - 1) % 2", "0", "-1"} end
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
    function() assign("%s[%s] + %s", tensor(), position("n"), tensor()) end,
    function() assign("%s * lt.arange(4):float():narrow(0, 0, %s):sum()", tensor(), length()) end,
    function() assign("lt.zeros(%s, 4):sum() + %s", length(), tensor()) end,
    function() assign("%s + %s:narrow(1, %s, 1)", tensor(), tensor(), position("4")) end,
    function() assign("%s + %s[{':', {0, %s}}]:sum(1, true)", tensor(), tensor(), length()) end,
    function() assign("%s + (%s:topk(%s, 1)):sum(1, true)", tensor(), tensor(), length()) end,
    function() p:line("k = %s", p:pick {"k % 3 + 1", "math.min(k, n)", "math.max(1, math.floor(k / 2))"}) end,
    function() p:line("%s = %s + n * k / 16", scalar(), scalar()) end,
    function()
      p:block("do local ok, v = pcall(function(v)", function()
        p:line("v = v * %s", number())
        if p:chance(30) then p:line("if k == %d then error('k is ' .. k) end", p:random(3)) end
        if p:chance(30) then p:line("lt.graph_break()") end
        p:line("return v + %s", tensor())
      end, ("end, %s) if ok then %s = v else log[#log + 1] = 'raised' end end"):format(tensor(), tensor()))
    end,
    function()
      p:block("do local co = coroutine.wrap(function(v)", function()
        p:line("v = v * %s", number())
        p:line("local w = coroutine.yield(v)")
        if p:chance(40) then p:line("for i = 1, k do w = w + i; coroutine.yield(w) end") end
        p:line("return w - v")
      end, ("end); local v = co(%s); %s = co(v + %s) end"):format(tensor(), tensor(), tensor()))
    end,
    function()
      p:line("do local c, t = 0, %s:detach(); kept[%d] = function(v) c = c + 1; return v * c + t end end", tensor(),
        p:random(3))
    end,
    function()
      p:line("if kept[%d] then local ok, v = pcall(kept[%d], %s) if ok then %s = v end end", p:random(3), p:random(3),
        tensor(), tensor())
    end,
    function()
      p:line("kept.object = setmetatable({v = %s}, {__index = {half = function(o) return o.v / 2 end}})", number())
    end,
    function() p:line("if kept.object then %s = %s + kept.object:half() end", tensor(), tensor()) end,
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

  p.keep(p:line("local log, kept = {}, {}"))
  p.keep(p:line("local function effect(v) log[#log + 1] = v end"))
  p:line("local function helper(t, s) local r = t * s; if s > 1 then lt.graph_break() end; return r - 0.5, s + 0.25 end")
  p.keep(p:block("local f = frame(function(t1, t2, t3, s1, s2, k)", function()
    p.keep(p:line("local n = t1:size(0)"))
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
