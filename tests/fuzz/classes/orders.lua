-- The order of pairs and the length of tables with holes. In LuaJIT they depend on how a table was made and written. So
-- frames must make, write, clear and return tables in the same way. What is added to a table after the frame shows how
-- much room it had.
local names = {"a", "b", "c", "d", "e", "f", "g", "h"}

local function generate(p)
  local depth = 0
  local function tbl() return p:pick {"u", "v", "w", "o"} end
  local function name() return names[p:random(#names)] end
  local function index()
    return p:pick {"1", "2", "3", "4", "5", "6", "8", "9", "17", "n", "n + 1", "2 * n", "0", "-1", "1.5"}
  end
  local function value() return p:pick {"n", "x", "7", "'s'", "true", "nil", "nil", "false"} end
  local function made()
    return p:pick {
      "{}", "{1, 2, 3}", "{n, x, 5, n}", "{nil, n, nil, 4}", "{n, nil, 3, nil}", "{a = 1, b = n, c = x}",
      "{a = n, b = nil, c = 3}", "{[1] = n, [2] = 2, [4] = x}", "{[n] = 1, [n + 1] = 2}",
      "{1, n, a = x, b = 2, [7] = n}", "{many(n)}", "{1, many(n)}", "{a = 1, b = 2, c = 3, d = 4, e = 5}",
      "{a = n, b = n, c = n, d = n, e = n, 1, 2}", "{[0] = 1, 2, 3}", "{h = 1, 1, g = nil, n}",
      "{a = 1, n, nil, many(n)}", "{[6] = n, 1, many(n)}", "{n, cut(nil), cut(n), many(n)}", "{a = cut(n), many(n)}",
      "{1, nil, cut(many(n))}", "{nil, n, cut(unpack({nil, n, nil}, 1, n))}",
    }
  end
  local block
  local statements = {
    function() p:line("%s = %s", tbl(), made()) end,
    function() p:line("%s.%s = %s", tbl(), name(), value()) end,
    function() p:line("%s.%s = %s", tbl(), name(), value()) end,
    function() p:line("%s[%s] = %s", tbl(), index(), value()) end,
    function() p:line("%s[%s] = %s", tbl(), index(), value()) end,
    function() local t = tbl(); p:line("%s[#%s + 1] = n", t, t) end,
    function() local t = tbl(); p:line("%s[#%s] = nil", t, t) end,
    function() p:line("table.insert(%s, %s)", tbl(), p:pick {"n", "x", "1, n"}) end,
    function() p:line("table.remove(%s%s)", tbl(), p:pick {"", "", ", 1"}) end,
    function() p:line("rawset(%s, '%s', %s)", tbl(), name(), value()) end,
    function() p:line("for i = %s do %s[i] = i end", p:pick {"1, n", "n, 1, -1", "2, n + 2", "1, 2 * n, 2"}, tbl()) end,
    function() p:line("r = r .. #%s", tbl()) end,
    function() p:line("for k, v in pairs(%s) do r = r .. tostring(k) end", tbl()) end,
    function() p:line("for k, v in next, %s do r = r .. tostring(k) end", tbl()) end,
    function() p:line("for i, v in ipairs(%s) do r = r .. i end", tbl()) end,
    function() p:line("r = r .. tostring(next(%s))", tbl()) end,
    function() p:line("for k, v in pairs(%s) do %s[k] = v end", tbl(), tbl()) end,
    function() local t = tbl(); p:line("for k, v in pairs(%s) do %s[k] = %s end", t, t, p:pick {"nil", "n"}) end,
    function() p:line("for _, k in ipairs {'%s', '%s', '%s'} do %s[k] = n end", name(), name(), name(), tbl()) end,
    function() p:line("%s = %s", tbl(), tbl()) end,
    function() p:line("r = r .. select('#', unpack(%s))", tbl()) end,
    function() p:line("%s = {%s, %s}; r = r .. #%s[1]", "z", tbl(), tbl(), "z") end,
    function() p:line("x = x + %s", p:pick {"1", "n", "#u", "#w"}) end,
    function() p:line("x = x * 2") end,
    function() p:line("x = x - 1") end,
    function() p:line(p:pick {"lt.graph_break()", "show(r, w)"}) end,
    function()
      p:block(p:pick {"if n > 3 then", "if #u > 2 then", "for w = 1, 2 do", "do local u = {n, a = 1}",
        "if next(v) then"}, block)
    end,
  }
  function block()
    depth = depth + 1
    for _ = 1, p:random(3) do statements[p:random(depth > 2 and #statements - 1 or #statements)]() end
    depth = depth - 1
  end

  p.keep(p:line("function order(t) local s = '#' .. #t; for k, v in next, t do s = s .. ' ' .. tostring(k) .. "
    .. "(v == false and '-' or '') end; return s end"))
  p.keep(p:line("jit.off(order)")) -- in a trace #t begins at the length that it saw last
  p.keep(p:line("function show(name, t) see(name, order(t)) end"))
  p.keep(p:line("function many(n) return unpack({1, 2, 3, 4, 5}, 1, n) end"))
  p.keep(p:line("function cut(...) lt.graph_break() return ... end"))
  p.keep(p:line("function fill(t) for i, k in ipairs {'e', 'h', 2, 'a', 6, 'c', 3, 'g', 5, 'd'} do "
    .. "if t[k] == nil then t[k] = i; show(k, t) end end end"))
  p.keep(p:line("kept = {1, 2, a = 3, b = 4}"))
  p.keep(p:block("f = frame(function(n, x, o)", function()
    p.keep(p:line("local r, u, v, w, z = '', {}, {n, b = 1}, kept"))
    p.keep(p:line("x = x * 1"))
    for _ = 1, 3 + p:random(9) do statements[p:random(#statements)]() end
    p.keep(p:line("if #r > 1000 then r = #r end"))
    p.keep(p:line("return u, v, r, w, o, x"))
  end, "end)"))
  for call = 1, 3 + p:random(3) do
    p:block("do", function()
      p.keep(p:line("local ok, u, v, r, w, o = try('call', f, %d, data(%d, 2), {%s})", p:pick {2, 3, 3, 4, 5}, call,
        p:pick {"5, 6", "a = 1", "5, 6, nil, 8", "c = 2, d = 3, 1"}))
      p.keep(p:line("if ok then show('u', u); show('v', v); show('w', w); show('o', o) end"))
      p.keep(p:line("show('kept', kept)"))
      if p:chance(50) then p:line("if ok then fill(%s) end", p:pick {"u", "v", "o", "w", "kept"}) end
      if p:chance(20) then p:line("if ok then kept = %s end", p:pick {"u", "v", "o"}) end
    end)
  end
end

return {count = 60, generate = generate}
