-- Functions of the libraries, methods and metamethods that are replaced and restored between calls, and calls of the
-- library with arguments of every type.
local replaced = {
  {"string", "rep", "function(s, n) return s .. tostring(n) end"}, {"string", "upper", "function() return 'UP' end"},
  {"string", "format", "function(f) return f end"}, {"string", "len", "function() return 5 end"},
    {"string", "sub", "function(s) return s end"},
  {"math", "floor", "function(v) return v * 10 end"}, {"math", "max", "function() return 77 end"},
    {"math", "sqrt", "function(v) return v end"},
  {"table", "concat", "function() return 'concat' end"}, {"table", "insert", "function(t, v) rawset(t, 1, v) end"},
    {"table", "remove", "nil"},
  {"_G", "ipairs", "function(t) return function() end, t, 0 end"},
    {"_G", "pairs", "function(t) return next, {9}, nil end"}, {"_G", "next", "function() end"},
  {"_G", "tostring", "function() return 'text' end"}, {"_G", "select", "function() return 4 end"},
    {"_G", "unpack", "function() return 1, 2 end"},
  {"_G", "type", "function() return 'number' end"}, {"_G", "rawget", "function() return 6 end"},
    {"_G", "setmetatable", "function(t) return t end"},
  {"lt", "relu", "function(v) return v + 100 end"}, {"lt", "tensor", "function(v) return lt.zeros(2) end"},
    {"lt", "sum", "function(v) return v end"},
  {"strings", "__index", "function(s, k) return function() return k end end"},
    {"strings", "__index", "{rep = function() return 'other' end}"},
  {"strings", "__tostring", "function() return 'by meta' end"}, {"strings", "__add", "function() return 3 end"},
    {"strings", "__call", "function() return 'called' end"},
  {"tensors", "__index",
    "function(t, k) if k == 'relu' then return function(v) return v + 50 end end return index(t, k) end"},
  {"tensors", "__add", "function(v, w) return add(v, w) * 2 end"},
    {"tensors", "__mul", "function(v, w) return add(v, w) end"},
  {"tensors", "__unm", "function(v) return add(v, 1) end"}, {"tensors", "__len", "function(v) return 11 end"},
    {"tensors", "__eq", "function() return true end"},
  {"tensors", "__newindex", "function(t, k, v) newindex(t, k, add(v, 1)) end"},
    {"tensors", "__call", "function(v, w) return add(v, w) end"},
  {"tensors", "__concat", "function() return 'joined' end"}, {"tensors", "__lt", "function() return true end"},
  {"mt", "__index", "function(t, k) return 12 end"}, {"mt", "__index", "{v = 13}"},
    {"mt", "__newindex", "function(t, k, v) rawset(t, k, 14) end"},
  {"mt", "__call", "function(t, v) return v * 2 end"}, {"mt", "__add", "function(v, w) return 15 end"},
    {"mt", "__eq", "function() return true end"},
  {"mt", "__lt", "function() return true end"}, {"mt", "__le", "function() return false end"},
    {"mt", "__concat", "function() return 'mt' end"},
  {"mt", "__len", "function() return 16 end"}, {"mt", "__unm", "function() return 17 end"},
    {"mt", "__metatable", "'locked'"}, {"mt", "__tostring", "function() return 'obj' end"},
  {"mt", "m", "function(self, v) return v + 18 end"},
}
local uses = {
  "s:rep(3)", "('ab'):upper()", "#s:rep(2)", "string.rep(s, 2)", "s:len()", "('%d'):format(n)",
    "string.format('%s %d', s, n)", "s:sub(2)", "math.floor(n / 2)",
  "math.max(n, 3)", "math.sqrt(n)", "table.concat(l, n)", "table.concat(l, s, 2)",
    "(function() local u = {1, 2}; table.insert(u, n); return #u, u[1] end)()",
  "(function() local u = {1, 2}; return table.remove(u), #u end)()",
    "(function() local k = 0; for _, v in ipairs(l) do k = k + v end return k end)()",
  "(function() local k = 0; for _, v in pairs(l) do k = k + v end return k end)()", "(next(l))", "tostring(n)",
    "tostring(s)", "select(2, s, n)", "select('#', unpack(l))",
  "unpack(l)", "type(x)", "type(s)", "rawget(l, 1)", "lt.relu(x)", "lt.tensor({n, 1})", "lt.sum(x)", "x:relu()",
    "x + n", "n + x", "x * 2", "-x", "#x", "x == x2", "x ~= x2", "x.shape[1]", "x:sum()",
  "(function() local u = x * 1; u[0] = x2[1]; return u end)()", "x(2)", "x .. s", "x < x2", "o.v", "o.absent",
    "(function() o.fresh = n; return o.fresh end)()", "o(n)", "o + 1", "1 + o", "o == o2", "o ~= o2", "o < o2",
  "o <= o2", "o .. s", "s .. o", "#o", "-o", "getmetatable(o) == mt", "#tostring(o) > 0", "rawget(o, 'm') and o:m(n)",
    "s + 1", "n .. s", "s + x", "x * s", "('3') * n", "s == n", "s < 'b'",
  "(function() local u = setmetatable({}, {__index = o}); return u.v end)()",
    "(function() local u = setmetatable({}, mt); return u.v end)()", "s()", "s.len", "('x').rep", "cd == n", "cd == 2",
    "n == cd", "cd ~= cd2",
  "cd == nil", "cd + n", "ud == ud2", "ud ~= ud2", "rawequal(cd, cd2)", "ud == x", "#tostring(cd) > 2", "cd < 5",
    "type(cd)", "null == nil", "nil == null", "null ~= null2",
}

local function generate(p)
  p.keep(p:line("strings, tensors, mt = getmetatable(''), getmetatable(data(1, 2)), {}"))
  p.keep(p:line("index, newindex, add = tensors.__index, tensors.__newindex, tensors.__add"))
  p.keep(p:line("ffi = require 'ffi'; ud, own = newproxy(true), {}; ud2 = newproxy(ud); getmetatable(ud).__eq = %s",
    p:pick {"nil", "function() return true end"}))
  p.keep(p:line("libraries = {string = string, math = math, table = table, _G = _G, lt = lt, strings = strings, tensors = tensors, mt = mt}"))
  p.keep(p:line("null, null2 = ffi.cast('void *', 0), ffi.cast('int *', 0)"))
  p.keep(p:block("f = frame(function(x, x2, s, n, l, o, o2, cd, cd2)", function()
    p.keep(p:line("local y = x * 2"))
    for i = 1, p:random(4) do p:line("local r%d = %s", i, p:pick(uses)) end
    local returned = {p:pick(uses), p:pick(uses)}
    p.keep(p:line("return y, %s", table.concat(returned, ", ", 1, p:random(2))))
  end, "end)"))
  p.keep(p:line("x, x2, l = data(1, 2), data(2, 2), {1, 2, 3}"))
  p.keep(p:line("o, o2 = setmetatable({v = 1}, mt), setmetatable({v = 1}, mt)"))
  local texts, cdata = {"'a'", "'3'", "'abc'"}, {"2LL", "2ULL", "3LL", "2", "nil", "null", "'2'"}
  local rows = {p:pick(replaced), p:pick(replaced)}
  for call = 1, 5 + p:random(5) do
    if p:chance(60) then
      local row = p:chance(70) and p:pick(rows) or p:pick(replaced)
      local back = p:chance(40)
      if back then
        p:line("if kept and kept.%s%s then rawset(libraries.%s, '%s', kept.%s%s[1]) end", row[1], row[2], row[1],
          row[2], row[1], row[2])
      else
        p:line("kept = kept or {}; kept.%s%s = kept.%s%s or {rawget(libraries.%s, '%s')}; rawset(libraries.%s, '%s', %s)", row[1], row[2], row[1], row[2], row[1],
          row[2], row[1], row[2], row[3])
      end
    end
    p:line("try('call %d', f, x, x2, %s, %d, l, o, %s, %s, %s)", call, p:pick(texts), p:random(3),
      p:pick {"o2", "o", "o2"}, p:pick(cdata), p:pick(cdata))
  end
end

return {count = 120, generate = generate}
