-- Tables, lists, tensors and closures that merge and split between calls: each call gets its arguments from a small
-- pool, so that two of them are one object in some calls and two in others. What is written through one is read through
-- another in every way that Lua has.
local tables = {"a", "b", "c"}
-- Statements on the tables P and Q, a number r, a tensor y, a string s.
local uses = {
  "P.v = P.v + 1", "P.v = Q.v * 2", "P.w = y", "y = y + (Q.w or 1)", "P[#P + 1] = Q.v", "r = r + #P", "P[#P] = nil",
    "P[1] = 7", "P[2] = r",
  "r = r + (P[#P] or 0)", "table.insert(P, 1, 3)", "table.insert(P, r)", "table.remove(P)", "table.remove(P, 1)",
    "P.k = nil", "P.k = r", "P.new = 1",
  "for k, v in pairs(P) do if type(v) == 'number' then r = r + v; s = s .. tostring(k) end end",
    "for i, v in ipairs(P) do r = r + i * v end",
  "for k, v in next, P do if type(v) == 'number' then r = r * 2 + v end end", "P.child = Q", "P.child = nil",
    "P.child = {v = r}", "P.child.v = 5",
  "if P.child then r = r + P.child.v end", "if P.child and P.child.child then P.child.child.v = r end",
    "if P == Q then r = r + 10 end", "if P ~= Q then P.v = 0 end",
  "if rawequal(P, Q) then s = s .. 'same' end", "t[P] = r", "r = r + (t[Q] or 100)", "t[P.x] = r",
    "r = r + (t[Q.x] or 1000)", "known[P] = r",
  "r = r + (known[Q] or 3)", "known[P.x] = 2", "r = r + (known[Q.x] or 4)", "P.x = P.x * 2", "P.x:add_(1)",
    "y = y + Q.x", "P.x = Q.x", "y = P.x * Q.x",
  "if P.x == Q.x then r = r + 1 end", "Q.x.k = 1", "s = s .. table.concat(P, ',')", "r = r + select('#', unpack(P))",
    "rawset(P, 'v', 3)", "r = r + rawget(Q, 'v')",
  "set(get() + 1)", "r = r + get()", "set(P.v)", "P.v = get()", "P.get = get", "if P.get then r = r + P.get() end",
    "own = own + 1", "set(own)",
  "P.meta = getmetatable(Q) and 1", "r = r + P.inherited", "P.inherited = 2", "class.inherited = class.inherited + 1",
    "P.p.grad = nil", "do local z = P.p * Q.p * y; z:sum():backward() end", "y = y + (P.p.grad or 1)",
  "y = y * P.p", "P.p.grad = x * 2", "if P.p == Q.p then y = y * 2 end", "y = y + P.x:storage_offset()",
    "if (next(P)) == 1 then r = r + 1 end",
  "local u = {P, Q}; u[1].v = 8; r = r + u[2].v", "local u = {P.v, nil, Q.v}; r = r + #u",
    "local function g(o) o.v = o.v + 1; return o end; r = r + g(P).v + Q.v",
  "Q[1], P[1] = P[1], Q[1]", "P.v, Q.v = Q.v, P.v", "a, b = b, a", "P = Q",
}

local function use(p)
  local text = p:pick(uses)
  local P, Q = p:pick(tables), p:pick(tables)
  return (text:gsub("%f[%w]P%f[%W]", P):gsub("%f[%w]Q%f[%W]", Q))
end

local function generate(p)
  p.keep(p:line("class = {inherited = 1}; class.__index = class"))
  p.keep(p:line("function pair(v) return function(n) v = n end, function() return v end end"))
  p.keep(p:line("pool, sets, gets, known = {}, {}, {}, {}"))
  p.keep(p:block("for i = 1, 3 do", function()
    p.keep(p:line(
      "pool[i] = setmetatable({i, 5, 6, v = i, k = 1, x = data(i, 2), p = data(i, 2, {requires_grad = true})}, class)"))
    p.keep(p:line("sets[i], gets[i] = pair(i)"))
  end))
  if p:chance(30) then p:line("pool[2].x = pool[1].x") end
  if p:chance(30) then p:line("pool[3].p = pool[1].p") end
  if p:chance(30) then p:line("pool[3].x = pool[1].x:view(2, 1):view(2)") end
  p.keep(p:line("own = 1"))
  p.keep(p:line("function make(i)"))
  p.keep(p:line("local own = i"))
  p.keep(p:line("if i == 2 then sets[3], gets[3] = function(n) own = n end, function() return own end end"))
  p.keep(p:block("return frame(function(a, b, c, x, set, get)", function()
    p.keep(p:line("local r, s, y, t = 0, '', x * 1, {}"))
    for _ = 1, 2 + p:random(7) do
      if p:chance(12) then
        p:block(p:pick {"if r > 3 then", "if a == b then", "if #a > 3 then", "for i = 1, 2 do"}, function()
          p:line(use(p))
          p:line(use(p))
        end)
      else
        p:line(use(p))
      end
    end
    p.keep(p:line("return r, s, y, own, #b, c.v"))
  end, "end) end"))
  p.keep(p:line("fs = {make(1), make(2)}"))
  for call = 1, 4 + p:random(6) do
    local few = p:chance(70)
    local function one() return p:random(few and 2 or 3) end
    if p:chance(20) then
      p:line("pool[%d] = setmetatable({1, 2, v = 4, x = data(9, 2), p = data(8, 2, {requires_grad = true})}, class)",
        one())
    end
    if p:chance(10) then p:line("pool[%d].x = pool[%d].x", one(), one()) end
    if p:chance(10) then p:line("sets[%d], gets[%d] = pair(%d)", one(), one(), one()) end
    p:line("try('call %d', fs[%d], pool[%d], pool[%d], pool[%d], data(%d, 2), sets[%d], gets[%d])", call, p:chance(70)
      and 1 or 2, one(), one(), one(),
      call, p:random(3), p:random(3))
  end
  p.keep(p:line("for i = 1, 3 do"))
  p.keep(p:line("local o = pool[i]; o.get = nil"))
  p.keep(p:line("try('object ' .. i, function() return o.v, o.k, #o, o[1], o[2], o.x, o.w, o.p.grad, o.child and o.child.v, gets[i](), rawget(o, 'inherited') end)"))
  p.keep(p:line("end"))
  p.keep(p:line("see('class', class.inherited)"))
end

return {count = 120, generate = generate}
