-- Functions of Lua's library that call functions or make one, metatables that change, metamethods, iterators and
-- coroutines, over tensors and numbers; lists and objects stay from call to call. No program joins several operands of
-- which one has no metamethod: traces of this LuaJIT miss the error.
local words = {"one", "two", "three", "a=1", "b=22", "x y", "", "$k and $v", "aaa"}
local patterns = {"%a+", "%w", "()", "(%w)=(%w+)", "a*", "%s", "^%a", ".-", "[aeiou]"}

local function generate(p)
  local depth = 0
  local function tensor() return "t" .. p:random(3) end
  local function scalar() return "s" .. p:random(2) end
  local function number() return p:chance(50) and scalar() or tostring(p:random(7) / 4) end
  local function object() return p:pick {"o1", "o2", "fresh()"} end
  local function word() return ("%q"):format(p:pick(words)) end
  local block

  local function inner(text)  -- what a callback does
    return p:pick {"calls = calls + 1", "log[#log + 1] = " .. text, tensor() .. " = " .. tensor() .. " * 0.5 + calls",
      scalar() .. " = " .. scalar() .. " + 0.5", "if calls == 3 then lt.graph_break() end calls = calls + 1",
      "effect(calls)", "list[p1] = calls"}
  end

  local statements = {
    function() p:line("%s = %s * %s", tensor(), tensor(), number()) end,
    function() p:line("%s = %s:tanh() + %s", tensor(), tensor(), tensor()) end,
    function() p:line("%s = %s %s %s", scalar(), scalar(), p:pick {"+", "-", "*"}, p:random(5) / 8) end,
    function()
      p:line(p:pick {"list[#list + 1] = %s", "table.insert(list, %s)", "grown[#grown + 1] = %s"}, number())
    end,
    function() p:line("grown[#grown + 1] = %s", tensor()) end,
    function()
      p:line("log[#log + 1] = tostring(%s)", p:pick {"#grown", "#list", "grown[#grown] == grown[1]", "list[2]"})
    end,
    function() p:line("if #list > 6 then for i = #list, 3, -1 do list[i] = nil end end") end,
    function() p:line("table.sort(list%s)", p:pick {"", ", function(a, b) return a > b end", ", before"}) end,
    function()
      p:line("table.sort(list, function(a, b) %s return a %s b end)", inner("a"), p:pick {"<", ">", "<="})
    end,
    function()
      p:line("log[#log + 1] = (%s):gsub(%q, function(a, b) %s return %s end%s)", word(), p:pick(patterns), inner("a"),
        p:pick {"b", "nil", "'<' .. a .. '>'", "#log", "calls", "false"}, p:pick {"", ", 1", ", 0"})
    end,
    function()
      p:line("log[#log + 1] = (%s):gsub(%q, %s)", word(), p:pick(patterns), p:pick {"names", "'[%0]'", "{}"})
    end,
    function()
      p:line("for a, b in (%s):gmatch(%q) do %s %s end", word(), p:pick(patterns), inner("a"),
        p:pick {"", "", "if calls > 3 then break end"})
    end,
    function() p:line("setmetatable(%s, %s)", p:pick {"o1", "o2", "list"}, p:pick {"A", "B", "nil", "A"}) end,
    function() p:line("log[#log + 1] = tostring(%s.name)", object()) end,
    function() p:line("try('order', function() log[#log + 1] = tostring(%s %s %s) end)", object(),
      p:pick {"<", "<=", ">", ">=", "=="}, object()) end,
    function() p:line("if getmetatable(o1) and getmetatable(o2) then try('join', function() log[#log + 1] = "
      .. "%s .. %s .. %s end) end", p:pick {"'s'", object(), "1"}, object(), p:pick {"'e'", object(), "2"}) end,
    function() p:line("%s.x = %s", p:pick {"o1", "o2"}, p:random(3)) end,
    function() p:line("for i, v in range(%d) do %s = %s + v end", p:random(3), tensor(), tensor()) end,
    function() p:line("for i, v in step, list, 0 do %s = %s + v if i > 4 then break end end", scalar(), scalar()) end,
    function() p:line("for v in coroutine.wrap(function() for i = 1, 2 do coroutine.yield(%s * i) end end) " ..
      "do %s = v end",
      tensor(), tensor()) end,
    function() p:line("do local ok, v = pcall(function() %s return %s end) %s = ok and v or %s end", inner("calls"),
      tensor(), tensor(), tensor()) end,
    function() p:line("log[#log + 1] = table.concat({%s, %d, 'z'}, ',')", word(), p:random(9)) end,
    function() p:line("log[#log + 1] = %s", p:pick {"'n' .. s1", "s1 .. '|' .. k", "tostring(s2 + calls)",
      "('%g of %s'):format(s1, k)", "table.concat({s1, k, s2}, '-')", "(k .. 'x' .. s1):sub(1, 3)",
      "('<' .. s2 .. '>'):upper() .. calls", "'m' .. t1:sum():item()", "tostring(fresh().x) .. #('a' .. k)"}) end,
    function() p:line("names['n' .. k], text = %s, (text or '') .. k", scalar()) end,
    function() p:line("%s({1, k, s1}, function(i, v) %s end)", p:pick {"table.foreachi", "table.foreach"},
      inner("v")) end,
    function() p:line("log[#log + 1] = bit.%s(%d, %d)", p:pick {"band", "bor", "bxor", "lshift"}, p:random(20),
      p:random(5)) end,
    function() p:block(("if %s > %s then"):format(number(), number()), block) end,
    function() p:block("for i = 1, " .. p:pick {"2", "3", "k"} .. " do", block) end,
  }
  function block()
    depth = depth + 1
    for _ = 1, p:random(3) do statements[p:random(depth > 2 and #statements - 2 or #statements)]() end
    depth = depth - 1
  end

  p.keep(p:line("local grown, log, list, calls, names, p1 = {1}, {}, {3, 1, 2}, 0, {one = 'uno', a = 1, k = 'key'}, 1"))
  p.keep(p:line("local function effect(v) log[#log + 1] = v end"))
  p.keep(p:line("local A = {__lt = function(a, b) return (a.x or 0) < (b.x or 0) end, __index = {name = 'A'}}"))
  p.keep(p:line("A.__concat = function(a, b) return 'A' .. tostring(type(a)) .. tostring(type(b)) end"))
  p.keep(p:line("local B = {__lt = A.__lt, __le = function(a, b) return (a.x or 0) <= (b.x or 0) end, "
    .. "__concat = A.__concat, __index = function(o, k) calls = calls + 1 return k end}"))
  p.keep(p:line("local o1, o2 = setmetatable({x = 1}, A), setmetatable({x = 2}, B)"))
  p.keep(p:line("local function fresh() return setmetatable({x = calls % 3}, calls % 2 == 0 and A or B) end"))
  p.keep(p:line("local function before(a, b) calls = calls + 1 return a < b end"))
  p.keep(p:line("local function range(n) local i = 0 " ..
    "return function() i = i + 1 if i <= n then return i, i / 2 end end end"))
  p.keep(p:line("local function step(t, i) if t[i + 1] then return i + 1, t[i + 1] end end"))
  p.keep(p:block("local f = frame(function(t1, t2, s1, s2, k)", function()
    p:line("local t3 = t1 + t2")
    for _ = 1, 4 + p:random(6) do statements[p:random(#statements)]() end
    p:line("return t1 + t2, t3:tanh(), s1, s2")
  end, "end)"))
  p.keep(p:block("local function call(k, s1, grad)", function()
    p.keep(p:line("local x = {}; for i = 1, 2 do x[i] = data(i, 2, 3, {requires_grad = grad}) end"))
    p.keep(p:line("for i = #log, 1, -1 do log[i] = nil end"))
    p.keep(p:line("local r = {try('f', f, x[1], x[2], s1, 1.5, k)}"))
    p:line("for i = 1, #log do see('log', log[i]) end")
    p:line("for i = 1, #list do see('list', list[i]) end")
    p:line("see('text', text, names.n1, names.n2, names.n3)")
    p:line("see('grown', #grown, grown[2], grown[#grown])")
    p:line("see('state', calls, rawget(o1, 'x'), getmetatable(o1) == A, getmetatable(o2) == A, " ..
      "getmetatable(list) == A)")
    p:line("setmetatable(list, nil)")
    p:line("if lt.is_tensor(r[2]) and r[2].requires_grad then try('backward', r[2].backward, r[2]:sum()) end")
    p:line("for i = 1, 2 do gradient('x' .. i, x[i].grad) end")
  end))
  for _, row in ipairs {"2, 0.5, false", "2, 0.5, false", "3, 0.75, true", "2, 2, true", "1, 0.5, false"} do
    p:line("call(%s)", row)
  end
end

return {count = 30, generate = generate}
