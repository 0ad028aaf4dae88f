-- Lists, argument lists, texts and closures of 3 to 100,000 elements in one function: compiled, broken or left as they
-- are, in time that grows with their length only, and the calls after a long one as before it.
local uses = {
  "lt.tensor(l):sum()", "(function() local s = 0; for _, v in ipairs(l) do s = s + v end return s end)()",
    "(function() local s = 0; for k, v in pairs(l) do s = s + v end return s end)()",
  "(function() local s = 0; for i = 1, #l do s = s + l[i] end return s end)()", "#table.concat(l, ',')", "l[#l]",
    "(function() l[#l + 1] = 1; return #l end)()",
  "(function() l[#l] = nil; return #l end)()", "table.remove(l)",
    "(function() for i = 1, 3 do table.remove(l, 1) end return #l, l[1] end)()",
  "(function() for i = 1, 3 do table.insert(l, 1, i) end return #l, l[4] end)()",
    "(function() local u = {}; for i = 1, #l do u[i] = l[i] * 2 end return #u, u[#u] end)()",
  "(function() for i = 1, #l do l[i] = l[i] + 1 end return l[1] end)()", "(function() local u = {}; for i = 1, #l do u['k' .. i] = l[i] end local s = 0; for k, v in pairs(u) do s = s + v end return s end)()",
  "(function() local s = ''; for i = 1, #l do if i < 300 then s = s .. l[i] end end return #s end)()",
    "#('ab'):rep(#l)", "(function() local n = 0; for _ in pairs(m) do n = n + 1 end return n end)()",
  "(function() local s = x; for i = 1, math.min(#l, 500) do s = s + l[i] end return s end)()", "(function() local fs = {}; for i = 1, math.min(#l, 2000) do fs[i] = function() return i end end return fs[#fs]() end)()",
  "(function() local u = l; for i = 1, math.min(#l, 3000) do u = {u} end return type(u) end)()",
    "(function() local a = {}; for i = 1, #l do a[#a + 1] = l[i] end return #a end)()",
  "(function() local q = {1, 2, 3}; for i = 1, math.min(#l, 2000) do q[#q + 1] = i; table.remove(q, 1) end return q[1], #q end)()", "select('#', ...)", "(select(-1, 0, ...))",
  "(function(...) local s = 0; for i = 1, math.min(select('#', ...), 200) do s = s + (select(i, ...)) end return s end)(...)", "#{...}", "(function(...) return select('#', ...) end)(l, ...)",
  "next(m) ~= nil", "(function() m.extra = 1; local n = 0; for k in next, m do n = n + 1 end return n end)()",
    "lt.cat({x, lt.tensor({#l})})", "lt.zeros(#l):sum()", "x * #l",
}

local function generate(p)
  p.keep(p:line("function numbers(n) local t = {}; for i = 1, n do t[i] = i % 7 end return t end"))
  p.keep(p:line("function names(n) local t = {}; for i = 1, n do t['n' .. i] = i % 5 end return t end"))
  p.keep(p:block("f = frame(function(x, l, m, ...)", function()
    p:line("local y = x * 2")
    for i = 1, p:random(2) do p:line("local r%d = %s", i, p:pick(uses)) end
    p.keep(p:line("return x + 1, %s", p:pick(uses)))
  end, "end)"))
  local sizes = {3, 4, 50, 300, 2000, 6000, 9000, 20000}
  if p:chance(10) then sizes[#sizes + 1] = 100000 end
  local long, many = p:pick(sizes), p:pick {0, 2, 100, 300, 4000, 7000}
  for call = 1, 3 + p:random(3) do
    local n = p:chance(40) and long or p:random(4) + 2
    local k = p:chance(30) and many or p:random(3)
    p:line("try('call %d', f, data(%d, 2), numbers(%d), names(%d), unpack(numbers(%d)))", call, call, n, p:chance(30)
      and long or 3, k)
  end
end

return {count = 30, generate = generate}
