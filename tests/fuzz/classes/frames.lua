-- Breaks under calls: callees of any depth, several results, loops, recursion, tail calls and closures, with breaks and
-- work before and behind each call.
local ops = {"(y * 2):tanh()", "y + w", "y:exp() * 0.5", "y - x", "y * y:sum()", "lt.where(y:gt(0), y, w)", "y * n",
  "y + z", "(y - z):sin()"}
local breaks = {"lt.graph_break()", "log[#log + 1] = n; io.write('')", "log[#log + 1] = tostring(y:sum():item())",
  "if y:sum():item() > 0 then n = n + 1 end", "if n %% 2 == 0 then lt.graph_break() end"}
local writes = {"hits = hits + n", "state.n = state.n + 1", "state.last = z", "list[#list + 1] = n", "n = n + 1",
  "z = y * 1", "bump(y)", "own(y)", "y = y + read()", "c = c * 0.5",
  "setfenv(1, within(getfenv(1), y))", "setfenv(2, within(getfenv(2), z))", "y = y + w * 0.5"}

local function call(p, g)
  local forms = {
    "y, n = %s(y, n)", "y = %s(y, n)", "local r, k, t = %s(y, n) y = r * 0.5 + (t or k)", "z = %s(y, n) + z",
    "y = %s((%s(y, n)), n)", "%s(y, n)", "for i = 1, 2 do y = %s(y, n + i) end",
    "for i, v in ipairs {1, 2} do y, n = %s(y, v + i) end", "for k, v in pairs {a = 2} do z = %s(z, v) end",
    "for i = 1, 1 do y = %s(y, n) + i end", "for i = n, n, 0.5 do y, n = %s(y, i) end",
    "for i = 3, 1, -1 do if i == 2 then y = %s(y, n) end z = z + i end", "for i = 1, n % 4 do y = %s(y, i) * 0.5 end",
    "for i = 1, 9 do if i > 7 then z = %s(z, n) end end",
    "for i = 1, 12 do y = y * 0.9 if i % 5 == 3 then y = %s(y, i) end end",
    "for i = 1, 3 do if i == n % 3 then y = %s(y, n) + i if n > 4 then break end end i = i + n end",
    "for i = 1, 2 do for k = i, 2 do y = %s(y, k) - i end end", "for k, v in next, {4, b = 1} do z = %s(z, v) end",
    "for i, v in ipairs {3} do y = %s(y, v) end", "for k in pairs(keys) do y = %s(y, n) + keys[k] k = nil end",
    "for i in upto(1) do z = %s(z, i) end", "for i, v in walk, 2, 0 do y = %s(y, v) * i end",
    "for i = 1, 2 do local function add(v) return v + i end y = add(%s(y, n)) z = add(z) end",
    "for i = 1, 2 do local k = n own(y) n, y = k, (%s(y, i)) end",
    "for k, v in pairs(keys) do keys[k] = v + 1 z = %s(z, v) end",
    "y = apply(%s, 1, y, n)", "y, n = pass(%s, y, n, z)", "for i = 1, select('#', pick(%s(y, n))) do z = z + i end",
    "do local i = 0 while i < 2 do i = i + 1 y = %s(y, i) end end", "repeat z, n = %s(z, n) until n ~= n + 1",
    "y, ok = pick(%s(y, n))", "z = ({%s(y, n)})[1]", "y = y + select(1, %s(z, n))",
    "ok, r1 = pcall(%s, y, n) y = ok and r1 or y", "y = lt.no_grad(%s, y, n)",
    "y = coroutine.wrap(function(v) return (%s(v, n)) end)(y)", "if n < 4 then y = %s(y, n + 1) end",
    "y = lt.autocast('cpu', {dtype = lt.bfloat16}, %s, y:matmul(y:t()):matmul(y), n):float()",
    "do local v = y local function twice() return v * 2 end y = %s(twice(), n) + twice() end",
    "do local k = n local function add(v) return v + k end local function all(v) return add(%s(v, k)) end " ..
      "y = all(y) + add(y) end",
  }
  p:line("%s", (p:pick(forms):gsub("%%s", g)))
end

local function body(p, callees)
  for _ = 1, 1 + p:random(5) do
    local k = p:random(100)
    if #callees > 0 and k <= 40 then
      call(p, p:pick(callees))
    elseif k <= 65 then
      p:line("y = %s", p:pick(ops))
    elseif k <= 85 then
      p:line("%s", (p:pick(breaks):gsub("%%%%", "%%")))
    elseif k <= 97 then
      p:line("%s", p:pick(writes))
    else
      p:line("if n %% 3 == %d then error('e' .. n) end", p:random(3) - 1)
    end
  end
end

-- A frame's variables; some of its closures share them.
local function start(p)
  p.keep(p:line("local z, c, ok, r1 = y, y * 0 + 1"))
  p.keep(p:line("local function read() return %s end", p:pick {"w", "c", "x"}))
  p.keep(p:line("local function own(v) %s end", p:pick {"c = c + v", "hits = hits + 1", "state.last = v"}))
end

local results = {"return y, n", "return y, n, z", "return y", "return y * c, n, y", "return (y + z):cos(), n"}

local function generate(p)
  p.keep(p:line("x, w = data(1, 2, 3), data(2, 2, 3, {requires_grad = %s})", tostring(p:chance(30))))
  p.keep(p:line("state, list, log, hits, shared = {n = 0}, {}, {}, 0, data(3, 2, 3)"))
  p.keep(p:line("bump = function(v) shared = shared + v end"))
  p.keep(p:line("local all = getfenv(1)"))
  p.keep(p:line("within = function(e, v) return setmetatable({w = v:detach()}, {__index = all, __newindex = all}) end"))
  p.keep(p:line("pick = function(a, ...) return a, select('#', ...) end"))
  p.keep(p:line("pass = function(g, ...) return g(...) end"))
  p.keep(p:line("apply = function(g, k, ...) local r = pick(pass(g, ...)) return r * k, ... end"))
  p.keep(p:line("keys = {2, a = 1}"))
  p.keep(p:line("walk = function(k, i) if i < k then return i + 1, i * 2 end end"))
  p.keep(p:line("upto = function(k) local i = 0 return function() i = i + 1 if i <= k then return i end end end"))
  local callees = {}
  for i = 1, 2 + p:random(3) do
    local name = "g" .. i
    local function inside()
      start(p)
      if p:chance(15) then p:line("if n > 0 and n < 9 then return %s(y, -n) end", name) end
      body(p, callees)
      if #callees > 0 and p:chance(15) then p:line("if n %% 2 == 0 then return %s(y, n) end", p:pick(callees)) end
      p.keep(p:line("%s", p:pick(results)))
    end
    p.keep(p:block(("%s = function(y, n%s)"):format(name, p:chance(10) and ", ..." or ""), inside))
    callees[#callees + 1] = name
  end
  p.keep(p:block("f = frame(function(y, n)", function()
    start(p)
    body(p, callees)
    call(p, callees[#callees])
    body(p, callees)
    p.keep(p:line("return y, n, z, c"))
  end, "end)"))
  for n = 1, 3 + p:random(5) do p:line("try('f %d', f, data(%d, 2, 3), %d)", n, n, p:random(6)) end
  p:line("see('state', keys[1], keys.a, state.n, state.last, hits, shared, #list, table.concat(log, ';'))")
end

return {count = 60, generate = generate}
