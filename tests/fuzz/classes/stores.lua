-- Tensors that are handed on through everything in which Lua can keep a value: variables that are open or closed when
-- LuaJIT records the store, tables and their keys, fields and metatables, coroutines, arguments, environments,
-- finalizers. A program knows the number in each tensor; where one is lost its process ends. LUTRA_TEST_FREE=all frees
-- each result as soon as a walk finds that nothing reaches it.

-- Texts of a store: functions `put(v)`, which hot loops call, and `get()`. $ is the store's number.
local stores = {
  -- A variable. Stores that LuaJIT compiles while it is open are in tests/lua/young.lua alone: LuaJIT before November
  -- 2023 itself loses what they write after it has been closed.
  "local put, get; do local function make() local kept; return function(v) kept = v end, function() return kept end "
    .. "end; put, get = make() end; for _ = 1, WARM do put(nothing) end",
  -- of the program's own frame: open to the end
  "local kept$; local function put(v) kept$ = v end; local function get() return kept$ end",
  -- an open variable of a coroutine
  "local put, get, co$; co$ = coroutine.create(function() local kept; put = function(v) kept = v end; "
    .. "get = function() return co$ and kept end; coroutine.yield(); return kept end); coroutine.resume(co$)",
  -- a variable joined with another's
  "local put, get; do local kept, other; put = function(v) kept = v end; get = function() return other end; "
    .. "debug.upvaluejoin(get, 1, put, 1) end",
  "local put, get; do local kept; local function forget() kept = nil end; get = function() return kept end; "
    .. "put = function(v) debug.setupvalue(get, 1, v) end end",
  -- tables
  "local t$ = {}; local function put(v) t$[1] = v end; local function get() return t$[1] end",
  "local t$ = {1, 2, 3, 4}; local i$ = 0; local function put(v) i$ = i$ % 4 + 1; t$[i$] = v end; "
    .. "local function get() return t$[i$] end",
  "local t$ = {}; local function put(v) t$.field = v end; local function get() return t$.field end",
  "local t$, k$ = {}, 0; local function put(v) k$ = k$ + 1; t$['k' .. k$] = v; t$['k' .. k$ - 1] = nil end; "
    .. "local function get() return t$['k' .. k$] end",
  "local t$, k$ = {}, 0; local function put(v) k$ = k$ + 1; t$[k$] = v; t$[k$ - 2] = nil end; "
    .. "local function get() return t$[k$] end",
  "local t$, k$ = {}, 0.5; local function put(v) t$[k$] = nil; k$ = k$ + 1; t$[k$] = v end; "
    .. "local function get() return t$[k$] end",
  "local t$ = {}; local function put(v) t$[#t$ + 1] = v; if #t$ > 5 then t$ = {t$[#t$]} end end; "
    .. "local function get() return t$[#t$] end",
  "local t$ = {}; local function put(v) table.insert(t$, v); if #t$ > 3 then table.remove(t$, 1) end end; "
    .. "local function get() return t$[#t$] end",
  "local t$ = {}; local function put(v) table.insert(t$, 1, v); t$[4] = nil end; "
    .. "local function get() return t$[1] end",
  "local t$ = {}; local function put(v) rawset(t$, true, v) end; local function get() return rawget(t$, true) end",
  "local t$ = {}; local function put(v) t$ = {[v] = true} end; local function get() return (next(t$)) end",
  "local t$ = {}; local function put(v) for k in pairs(t$) do t$[k] = nil end; t$[v] = 1 end; "
    .. "local function get() return (next(t$)) end",
  "local t$ = {a = {b = {}}}; local function put(v) t$.a.b.c = v end; local function get() return t$.a.b.c end",
  "local t$ = {}; local function put(v) t$.pair = {{v}, x = 1} end; local function get() return t$.pair[1][1] end",
  "local t$ = {}; local function put(v) local u = {x = {}}; t$.u = u; u.x.y = {v} end; "
    .. "local function get() return t$.u.x.y[1] end",
  "local t$ = {head = false}; local function put(v) t$.head = {v = v, nothing} end; "
    .. "local function get() return t$.head.v end",
  "local list$; local function put(v) list$ = {v = v, next = list$}; if list$.next then list$.next.next = nil end end; "
    .. "local function get() return list$.v end",
  "local a$, b$ = {}, {}; local function put(v) b$.v = v; a$.v, b$.v = b$.v, a$.v end; "
    .. "local function get() return a$.v end",
  -- metatables
  "local t$, real$ = nil, {}; t$ = setmetatable({}, {__newindex = real$, __index = real$}); "
    .. "local function put(v) t$.x = v end; local function get() return t$.x end",
  "local real$ = {}; local t$ = setmetatable({}, {__newindex = function(_, k, v) rawset(real$, k, v) end}); "
    .. "local function put(v) t$.x = v end; local function get() return real$.x end",
  "local t$ = {}; local function put(v) setmetatable(t$, {__index = {v = v}}) end; local function get() return t$.v end",
  "local function put(v) t$ = setmetatable({}, {v = v}) end; local function get() return getmetatable(t$).v end",
  "local p$ = newproxy(true); local function put(v) getmetatable(p$).v = v end; "
    .. "local function get() return getmetatable(p$).v end",
  "local p$; local function put(v) p$ = newproxy(true); getmetatable(p$).v = v end; "
    .. "local function get() return getmetatable(p$).v end",
  "local p$ = newproxy(); local function put(v) debug.setmetatable(p$, {v = v}) end; "
    .. "local function get() return debug.getmetatable(p$).v end",
  -- functions' environments, globals, the registry
  "local function get() return value$ end; setfenv(get, {}); local function put(v) getfenv(get).value$ = v end",
  "local function get() return value$ end; local function put(v) setfenv(get, {value$ = v}) end",
  "local function put(v) global$ = v end; local function get() return global$ end",
  "local function put(v) debug.getregistry().fuzz$ = v end; local function get() return debug.getregistry().fuzz$ end",
  -- stacks
  "local put = coroutine.wrap(function(v) while true do coroutine.yield(v); end end); local held$; "
    .. "local get = function() return held$() end; put = function(v) held$ = coroutine.wrap(function() "
    .. "local w = v; v = nil; coroutine.yield(); while true do coroutine.yield(w) end end); held$() end",
  "local held$; local function put(v) held$ = coroutine.create(function(...) coroutine.yield(); while true do "
    .. "coroutine.yield((...)) end end); coroutine.resume(held$, v) end; "
    .. "local function get() return select(2, coroutine.resume(held$)) end",
  "local held$ = coroutine.wrap(function() local w; while true do local what, v = coroutine.yield(w); "
    .. "if what == 'put' then w = v end end end); held$(); local function put(v) held$('put', v) end; "
    .. "local function get() return held$('get') end",
  "local held$; local function put(...) held$ = {...} end; local function get() return held$[1] end",
  "local held$; local function put(...) local function pass(...) held$ = select(select('#', ...), ...) end; "
    .. "return pass(1, nil, ...) end; local function get() return held$ end",
  "local held$; local function put(v) held$ = function() return v end end; local function get() return held$() end",
  "local held$; local function put(v) local w = v; held$ = {set = function(u) w = u end, get = function() return w end}; "
    .. "held$.set(nothing); held$.set(v) end; local function get() return held$.get() end",
  "local held$; local function put(v) local _, e = pcall(error, {v}); held$ = e end; "
    .. "local function get() return held$[1] end",
  "local held$; local function deep(n, v) if n > 0 then return deep(n - 1, v) end held$ = v end; "
    .. "local function put(v) deep(3, v) end; local function get() return held$ end",
  "local held$; local function deep(n, v) if n > 0 then deep(n - 1, v) else held$ = v end end; "
    .. "local function put(v) deep(3, v) end; local function get() return held$ end",
  -- weak beside strong
  "local w$, s$ = setmetatable({}, {__mode = 'v'}), nil; local function put(v) w$[1] = v; s$ = v end; "
    .. "local function get() return s$ and w$[1] end",
  "local w$, s$ = setmetatable({}, {__mode = 'k'}), nil; local function put(v) s$ = {}; w$[s$] = v end; "
    .. "local function get() return w$[s$] end",
  -- finalizers: they look at the tensor themselves
  "local number$; local function put(v) local number = unwrap(v)[0]:item(); number$ = number; local p = newproxy(true); "
    .. "getmetatable(p).__gc = function() late(unwrap, v, number, $) end end; "
    .. "local function get() return wrap(full({3}, number$)) end",
  "local ffi, number$ = require 'ffi', nil; local function put(v) local number = unwrap(v)[0]:item(); number$ = number; "
    .. "ffi.gc(ffi.new('int64_t[2]'), function() late(unwrap, v, number, $) end) end; "
    .. "local function get() return wrap(full({3}, number$)) end",
}

-- What stands for a tensor in a store, and the way back.
local wrappings = {
  {"v", "v"}, {"v", "v"}, {"v", "v"},
  {"{v}", "v[1]"},
  {"{deep = {v}}", "v.deep[1]"},
  {"function() return v end", "v()"},
  {"coroutine.wrap(function() while true do coroutine.yield(v) end end)", "v()"},
  {"setmetatable({}, {__index = {v = v}})", "v.v"},
  {"v:view(-1)", "v"},
}

local function generate(p)
  local count = 2 + p:random(4)
  local warm = p:pick {"1", "2", "3", "70"}
  p.keep(p:line("local full, is_tensor, made = lt.full, lt.is_tensor, 0"))
  p.keep(p:line("local function fresh() made = made + 1; return full({3}, made), made end"))
  p.keep(p:line("local puts, gets, numbers = {}, {}, {}"))
  p.keep(p:block("local function lost(i, what)", function()
    p.keep(p:line("io.stderr:write('store ', i, ': ', what, '\\n')"))
    p.keep(p:line("os.exit(3)"))
  end))
  p.keep(p:block("local function same(v, number, i)", function()
    -- LuaJIT says so of some coroutines that finalizers interrupt.
    p.keep(p:line("if tostring(v):find('C-call boundary', 1, true) then return end"))
    p.keep(p:line("if not is_tensor(v) then lost(i, tostring(v)) end"))
    p.keep(p:line("if v[0]:item() ~= number then lost(i, v[0]:item() .. ' is not ' .. number) end"))
  end))
  p.keep(p:block("local function late(unwrap, v, number, i) -- finalizers cannot resume coroutines", function()
    p.keep(p:line("local ok, u = pcall(unwrap, v)"))
    p.keep(p:line("if ok then same(u, number, i) end"))
  end))
  for i = 1, count do
    local wrapping = p:pick(wrappings)
    local text = p:pick(stores):gsub("%$", tostring(i)):gsub("WARM", warm)
    p.keep(p:block("do", function()
      p.keep(p:line("local function wrap(v) return %s end", wrapping[1]))
      p.keep(p:line("local function unwrap(v) return %s end", wrapping[2]))
      p.keep(p:line("local nothing = wrap(full({1}, 0))"))
      p.keep(p:line("%s", text))
      p.keep(p:line("puts[%d] = function(n, v) v = wrap(v); for _ = 1, n do put(v) end end", i))
      p.keep(p:line("gets[%d] = function() return unwrap(get()) end", i))
    end))
  end
  p.keep(p:block("local function check(i)", function()
    p.keep(p:line("if not numbers[i] then return end"))
    p.keep(p:line("local ok, v = pcall(gets[i])"))
    p.keep(p:line("same(v, numbers[i], i)"))
  end))
  p.keep(p:block("local function store(i, n)", function()
    p.keep(p:line("local v, number = fresh()"))
    p.keep(p:line("puts[i](n, v)"))
    p.keep(p:line("numbers[i] = number"))
  end))
  local function waste() p:line("for _ = 1, %d do local _ = full({3}, 0) + 1 end", p:random(20)) end
  local function step()
    local i = p:random(count)
    if p:chance(60) then p:line("store(%d, %s)", i, p:pick {"1", "2", "3", "5", "70"}) end
    if p:chance(50) then waste() end
    if p:chance(60) then p:line("check(%d)", p:random(count)) end
    if p:chance(5) then p:line("collectgarbage('step')") end
    if p:chance(2) then p:line("collectgarbage()") end
    if p:chance(2) then p:line("jit.flush()") end
  end
  for _ = 1, 3 do
    p:block("for i = 1, " .. p:random(12) .. " do", function()
      for _ = 1, 2 + p:random(5) do step() end
    end)
    for _ = 1, p:random(4) do step() end
  end
  for i = 1, count do p:line("check(%d)", i) end
  p:line("see('made', made)")
end

return {count = 40, generate = generate, modes = "eager,compiled"}
