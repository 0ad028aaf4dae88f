-- Large programs: 10 to 10,000 (LUTRA_FUZZ_LARGEST) terms of an expression, ops of a chain, views of a view, elements
-- of a table, arguments, upvalues, parameters, closures or characters. Some sizes change between the calls.
local largest = tonumber(os.getenv("LUTRA_FUZZ_LARGEST")) or 10000

-- Bodies of f(x, n, k, list), which return results. n is the count that grows, k a small number. `most`: the largest n.
local bodies = {
  {"local s = 0; for i = 1, n do s = s + i * k end return x * s"},
  {"local s = k; for i = 1, n do s = s * 0.5 + 1 end return x + s, s"},
  {"local p = 0.3; for i = 1, n do p = k * p * (1 - p) end return x * p, p"},
  {"local a, b = 0, k; for i = 1, n do a, b = b, (a + b) * 0.5 end return x * a, b"},
  {"for i = 1, n do x = x + k end return x", most = 3000},
  {"local h = x; for i = 1, n do h = h * 0.5 + x end return h", most = 3000},
  {"local h = x; for i = 1, n do h = (h * k):tanh() end h:sum():backward() return h, x.grad", most = 300},
  {"local m = lt.ones(2, 2); for i = 1, n do m = m:t() end return m + x:sum()"},
  {"local v = x; for i = 1, n do v = v:view(-1) end return v * 2", most = 3000},
  {"local m = lt.zeros(4); for i = 1, n do m[i % 4] = i end return m + x", most = 1000},
  {"local m = x:clone(); for i = 1, n do m:add_(k) end return m", most = 3000},
  {"local t = {}; for i = 1, n do t[i] = i * k end return lt.tensor(t):sum() + x, #t"},
  {"local t = {}; for i = 1, n do t[#t + 1] = x end return lt.cat(t):sum(), #t", most = 3000},
  {"local t = {}; for i = 1, n do t[i] = x * i end return lt.stack(t):sum(0)", most = 1000},
  {"local t = {}; for i = 1, n do t['k' .. i] = i end local s = 0; for _, v in pairs(t) do s = s + v end return x * s"},
  {"local t = {}; for i = 1, n do table.insert(t, 1, i) end return x * t[1], #t", most = 1000},
  {"local t = {}; for i = 1, n do t[i] = i end for i = 1, n - 1 do table.remove(t, 1) end return x * t[1]",
    most = 1000},
  {"local t; for i = 1, n do t = {t, i} end local s = 0; while t do s, t = s + t[2], t[1] end return x + s",
    most = 3000},
  {"local s = ''; for i = 1, n do s = s .. i end return x * #s, #s", most = 3000},
  {"local t = {}; for i = 1, n do t[i] = tostring(i * k) end return x + 1, #table.concat(t, ',')"},
  {"local s = 0; for i, v in ipairs(list) do s = s + v end return x * s", list = true},
  {"local s = 0; for i = 1, #list do s = s + list[i] end return x * s", list = true},
  {"local s = 0; for key, v in pairs(list) do s = s + v end return x * s", list = true},
  {"return lt.tensor(list):sum() * x", list = true},
  {"return x + 1, table.concat(list, ' '):sub(1, 50)", list = true},
  {"list[#list + 1] = k; return x + #list, list[#list]", list = true},
  {"return x * select('#', unpack(list)), (select(2, unpack(list)))", list = true, most = 7000},
  {"local f = function(a) return a end; for i = 1, n do local g = f; f = function(a) return g(a) + 1 end end return x * f(k)", most = 100},
  {"local function deep(i) if i == 0 then return k end return deep(i - 1) + 1 end return x * deep(n)", most = 3000},
  {"local function tail(i, a) if i == 0 then return a end return tail(i - 1, a + k) end return x * tail(n, 0)"},
  {"local c = coroutine.wrap(function() for i = 1, n do coroutine.yield(i) end end); local s = 0; for i = 1, n do s = s + c() end return x * s",
    most = 3000},
  {"local i, s = 0, 0; while i < n do i = i + 1; if i % 3 == 0 then s = s + k end end return x * s, i"},
  {"local y = x; for i = 1, n do if i % 2 == 0 then y = y + 1 else y = y - 0.5 end end return y", most = 3000},
  {"local y = 0; for i = 1, n do y = y + x:size(0) * i end return x + y"},
  {"local y = x; for i = 1, n do y = lt.where(y:gt(k), y - 1, y + k) end return y", most = 1000},
  {"local t = {}; for i = 1, n do t[i] = x * i end local y = t[1]; for i = 2, n do y = y + t[i] end return y",
    most = 1000},
  {"return lt.ones(n):sum() + x, lt.arange(n):sum() + n, lt.full({n}, 0.1):mean()"},
}

local function generate(p)
  local body = p:pick(bodies)
  local sizes = {}
  for size = 1, 5 do sizes[size] = math.min(10 ^ size, largest, body.most or largest) end
  p.keep(p:line("function list_of(n) local t = {}; for i = 1, n do t[i] = i % 7 end return t end"))
  p.keep(p:line("f = frame(function(x, n, k, list) %s end)", body[1]))
  for _ = 1, 2 + p:random(2) do
    local n = p:pick(sizes) + p:random(3) - 2
    p:line("try('f %d', f, data(%d, 4, {requires_grad = %s}), %d, %s, list_of(%d))", n, p:random(99),
      body[1]:find("backward", 1, true) and "true" or "false", n, p:pick {"0.5", "2", "3.7", "-1"}, body.list and n
        or 0)
  end
end

return {count = 20, generate = generate}
