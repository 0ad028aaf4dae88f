-- Functions that Lua calls, not the trace: comparisons of table.sort, callbacks of gsub and of table.foreach,
-- metamethods, iterators, bodies of coroutines, hooks of tensors, and callees whose variables closures assign. They
-- break, raise, write what others read, and are made once or in each call, by callees of any depth.
local ops = {"(%s * 2):tanh()", "%s + w", "%s:exp() * 0.5", "%s - x", "%s * %s:mean()", "lt.where(%s:gt(0), %s, w)"}
local breaks = {"io.write('')", "lt.graph_break()", "log[#log + 1] = tostring(y:sum():item())",
  "if y:sum():item() > 0 then hits = hits + 1 end"}
local errors = {"error('bare', 0)", "error({code = n})", "local z = y .. nil", "y = y:view(7, 7)",
  "y = y + lt.ones(5)"}
local writes = {"state.n = state.n + 1", "hits = hits + n", "state.last = y", "log[#log + 1] = 'w'", "y:add_(1)",
  "n = n + 1", "own = own + 1", "bump()", "state.y = y * 0.5", "y = y + (state.y or 1)",
  "held[#held + 1] = function() return own + n end"}

local function fill(p, text) return (text:gsub("%%s", "y")) end

local function statement(p)
  local k = p:random(100)
  if k <= 45 then return p:line("y = %s", fill(p, p:pick(ops))) end
  if k <= 65 then return p:line("%s", p:pick(breaks)) end
  if k <= 92 then return p:line("%s", p:pick(writes)) end
  p:line("if n %% %d == %d then %s end", 2 + p:random(3), p:random(2) - 1, p:pick(errors))
end

-- Ways to call a function f(y, n) -> y, n other than by a plain Lua call. %s is its name.
local calls = {
  "list = {3, 1, 2}; table.sort(list, function(a, b) y = %s(y, n); return a < b end)",
  "list = {3, 1, 2, 5}; table.sort(list, function(a, b) hits = hits + 1; local z = %s(y, a); state.last = z " ..
    "return a > b end)",
  "list = {3, 1, 2}; now, at = y, n; table.sort(list, by.%s); y = now",
  "log[#log + 1] = ('ab'):gsub('.', function(c) y = %s(y, n); return c:upper() end)",
  "now, at = y, n; log[#log + 1] = ('ab'):gsub('.', gsubs.%s); y = now",
  "table.foreach({1, 2}, function(k, v) y = %s(y, n + k) end)",
  "now, at = y, n; table.foreach({1, 2}, each.%s); y = now",
  "now, at = y, n; objects.%s.key = 1; y = now",
  "now, at = y, n; log[#log + 1] = objects.%s .. 'c'; y = now",
  "now, at = y, n; hits = hits + (objects.%s == others.%s and 1 or 2); y = now",
  "now, at = y, n; hits = hits + (objects.%s < others.%s and 1 or 2); y = now",
  "now, at = y, n; hits = hits + (objects.%s <= others.%s and 1 or 2); y = now",
  "now, at = y, n; hits = hits + objects.%s + 1; y = now",
  "now, at = y, n; hits = hits + -objects.%s; y = now",
  "now, at = y, n; hits = hits + objects.%s.any; y = now",
  "now, at = y, n; hits = hits + objects.%s(3); y = now",
  "for i, z in steps(%s, y, n) do y = y + z * 0.1 end",
  "for i, z in walk, %s, 0 do y = y + i * 0.1; if i > 1 then break end end",
  "for z in coroutine.wrap(function() coroutine.yield(%s(y, n)); coroutine.yield(y * 2) end) do y = z + y * 0.5 end",
  "do local co = coroutine.create(function(a) a = %s(a, n); a = coroutine.yield(a); return %s(a, n) end) " ..
    "local _, a = coroutine.resume(co, y); if type(a) == 'userdata' then _, y = coroutine.resume(co, a) end " ..
    "if type(y) ~= 'userdata' then seen(y); y = x end end",
  "do local c = 1; local function add(z) c = c + 1; z = %s(z, c); c = c + 1; return z * c end " ..
    "y = add(y); y = y * c end",
  "do local c = y; local function set() c = %s(c, n) end set(); y = c + y; set(); y = y - c end",
  "ok, z = pcall(table.sort, {2, 1, 3}, function(a, b) y = %s(y, n); return a < b end); if not ok then seen(z) end",
  "do local v = data(5, 2, 3, {requires_grad = true}); local u = v * 2; " ..
    "u:register_hook(function(g) return (%s(g:clone(), n)) end); u:sum():backward(); y = y + v.grad end",
  "y = %s(y, n)",
  "ok, z = pcall(%s, y, n); if ok then y = z else seen(z) end",
  "y = select(1, %s(y, n))",
}
local function call(p, g) return p:line("%s", (p:pick(calls):gsub("%%s", g))) end

local function body(p, callees)
  for _ = 1, 2 + p:random(4) do
    if #callees > 0 and p:chance(40) then call(p, p:pick(callees)) else statement(p) end
  end
end

-- Makes, once, the objects that call g as a metamethod, a callback or an iterator.
local function surround(p, g)
  p.keep(p:line("by.%s = function(a, b) now = %s(now, at); return a < b end", g, g))
  p.keep(p:line("gsubs.%s = function(c) now = %s(now, at); return c .. '-' end", g, g))
  p.keep(p:line("each.%s = function(k, v) now = %s(now, at + k) end", g, g))
  local before = p:pick {"", "local z = now * 1.5;", "io.write('');", "local z = now:exp(); now = z;"}
  p.keep(p:line("events = {}; for _, e in ipairs {'add', 'unm', 'eq', 'lt', 'le', 'concat', 'newindex', 'call', " ..
    "'index'} do local r = e == 'concat' and 'text' or 2; " ..
    "events['__' .. e] = function() %s now = %s(now, at); return r end end", before, g))
  p.keep(p:line("objects.%s, others.%s = setmetatable({}, events), setmetatable({}, events)", g, g))
end

local function generate(p)
  p.keep(p:line("x, w = data(1, 2, 3), data(2, 2, 3, {requires_grad = %s})", tostring(p:chance(30))))
  p.keep(p:line("state, list, log, held, hits, now, at, own = {n = 0}, {}, {}, {}, 0, x, 1, 0"))
  p.keep(p:line("by, gsubs, each, objects, others = {}, {}, {}, {}, {}"))
  p.keep(p:line("seen = function(e) log[#log + 1] = %s end",
    "type(e) == 'table' and 'code ' .. tostring(e.code) or tostring(e)"))
  p.keep(p:line("bump = function() own = own + 1 end"))
  p.keep(p:line("steps = function(g, y, n) local i = 0; " ..
    "return function() i = i + 1; if i > %d then return end y = g(y, n); return i, y end end", 1 + p:random(3)))
  p.keep(p:line("walk = function(g, i) if i >= 2 then return end now = g(now, at); return i + 1 end"))
  local callees = {}
  for i = 1, 1 + p:random(3) do
    local name = "g" .. i
    local shares = p:chance(30)
    p.keep(p:block(("%s = function(y, n)"):format(name), function()
      p.keep(p:line("local ok, z"))
      if shares then p.keep(p:line("local own = 0; local function bump() own = own + 1 end")) end
      body(p, callees)
      p.keep(p:line("return y, n%s", shares and " + own" or ""))
    end))
    surround(p, name)
    callees[#callees + 1] = name
  end
  p.keep(p:block("f = frame(function(y, n)", function()
    p.keep(p:line("local ok, z"))
    body(p, callees)
    call(p, callees[#callees])
    p.keep(p:line("return y, n"))
  end, "end)"))
  for n = 1, 3 + p:random(4) do
    p:line("try('f %d', f, data(%d, 2, 3), %d)", n, n, p:random(6))
    if p:chance(20) then p:line("try('g %d', %s, data(%d, 2, 3), %d)", n, p:pick(callees), n + 9, n) end
    if p:chance(20) then p:line("for i, h in ipairs(held) do held[i] = nil; see('held', h()) end") end
  end
  p:line("see('state', state.n, state.last, hits, own, now, #list, table.concat(log, ';'))")
end

return {count = 80, generate = generate}
