-- Tests that errors of compiled code are like eager's: text, line and every frame of the traceback, including function
-- names. Each program runs eagerly, compiled, patched and captured under stress, several times. Random programs follow
-- (the seed is printed).
local lt = require "lutra"
local h = require "harness"
local test = h.test

-- Returns the environment of a program: names besides Lua's globals.
local function world()
  local env = {lt = lt, nn = lt.nn, F = lt.nn.functional, optim = lt.optim}
  env.w = lt.ones(9, 9)
  env.L = lt.nn.Linear(9, 9)
  env.L2 = lt.nn.Linear(4, 5)
  env.ids = lt.tensor({0, 1, 77}, {dtype = "int64"})
  env.table4 = lt.ones(4, 4)
  env.object = newproxy(true)
  return setmetatable(env, {__index = _G})
end

local function load_program(source) return setfenv(assert(loadstring(source, "=program")), world())() end

-- A call in a coroutine of its own: its traceback ends here.
local function observe(f, x)
  return coroutine.wrap(function()
    local ok, text = xpcall(function()
      local result = f(x)
      return result
    end, function(message) return debug.traceback(tostring(message), 1) end)
    return ok and "no error" or text
  end)()
end

-- Runs of a program: what each call gives. Inputs are made anew for each.
local function runs(source, wrap, input, n)
  local f = wrap(load_program(source))
  local texts = {}
  for i = 1, n do texts[i] = observe(f, input(i)) end
  return texts
end

local function plain(f) return f end
local modes = {
  {"compiled", function(f) return lt.compile(f) end},
  {"patched", function(f) return lt.patch(f) end},
  {"aot_eager", function(f) return lt.compile(f, {backend = "aot_eager"}) end},
}

-- Fails where a mode differs from eager; true where eager raised.
local function compare(source, input, n)
  n = n or 3
  local want = runs(source, plain, input, n)
  local function check(mode, got)
    for i = 1, n do
      if got[i] ~= want[i] then
        error(("%s, call %d of\n%s\n--- wanted\n%s\n--- got\n%s"):format(mode, i, source, want[i], got[i]), 0)
      end
    end
  end
  for _, mode in ipairs(modes) do check(mode[1], runs(source, mode[2], input, n)) end
  lt.config.stress = "capture"
  local ok, got = pcall(runs, source, plain, input, n)
  lt.config.stress = nil
  assert(ok, got)
  check("stress", got)
  return want[n] ~= "no error"
end

local function ones() return lt.ones(3, 4) end
local function catalogue(name, source, input)
  test(name, function()
    local ok, text = pcall(compare, source, input or ones)
    if not ok then error(text, 0) end
    assert(text, "the program raises nothing")
  end)
end

-- A frame with some ops before the statement, which stands in line 4.
local function frame(statement)
  return "return function(x)\n  local a = x + 1\n  local b = a * 2\n  " .. statement .. "\n  return c\nend"
end

-- Shapes of statements ------------------------------------------------------------------------------------------------

for name, statement in pairs {
  ["argument that is a call"] = "local c = a:matmul(lt.ones(9, 9))",
  ["argument that is a method"] = "local c = a:matmul(w:t())",
  ["argument that is arithmetic"] = "local c = a:matmul(w * 2)",
  ["operator"] = "local c = a + w",
  ["operator of a call"] = "local c = a + lt.ones(9, 9)",
  ["operator on two lines"] = "local c = a\n    + w",
  ["power"] = "local c = a ^ w",
  ["call in a call"] = "local c = lt.softmax(a:view(77), -1)",
  ["chain"] = "local c = a:relu():view(77)",
  ["long chain"] = "local c = a:relu():matmul(w):sum()",
  ["chain over lines"] = "local c = a:relu()\n    :sin()\n    :view(77)\n    :sum()",
  ["module"] = "local c = L(a)",
  ["module of an op"] = "local c = L(a * 2)",
  ["module in a chain"] = "local c = L(a):relu()",
  ["module in an operator"] = "local c = 1 + L(a)",
  ["module as an argument"] = "local c = lt.relu(L(a))",
  ["method forward"] = "local c = L:forward(a)",
  ["table as argument"] = "local c = lt.cat({a, w * 2}, 0)",
  ["table over lines"] = "local c = lt.cat({\n    a,\n    w * 2,\n  }, 0)",
  ["keyword"] = "local c = a:sum{dim = 7}",
  ["unknown keyword"] = "local c = a:sum{dimm = 1}",
  ["loss"] = "local c = F.cross_entropy(L2(a), lt.ones(9):long())",
  ["loss as a module"] = "local c = nn.MSELoss()(a, lt.ones(2, 2, 2))",
  ["call over lines"] = "local c = lt.matmul(\n    a,\n    w\n  )",
  ["calls over lines"] = "local c = lt.matmul(\n    a:relu(),\n    L2(a):sum(\n      9)\n  )",
  ["assignment by index"] = "local c = a; a[{0, {0, 2}}] = w",
  ["assignment by number"] = "local c = a; a[7] = 1",
  ["index"] = "local c = a[9]",
  ["index text"] = "local c = a['0, 9']",
  ["index by a tensor"] = "local c = table4[ids]",
  ["attribute"] = "local c = a; a.requires_grad = 3",
  ["unknown attribute"] = "local c = a; a.grad = w",
  ["several values"] = "local c, d = a:max(5)",
  ["return"] = "local c = b do return a:view(77) end",
  ["condition"] = "local c = b if a:view(77):sum():item() > 0 then c = a end",
  ["while"] = "local c = b while a:view(77) do c = a end",
  ["for"] = "local c = b for i = 1, a:view(77) do c = a end",
  ["numeric loop"] = "local c = b for i = 1, 3 do\n    c = c + 1\n    if i == 2 then c = c:view(77) end\n  end",
  ["list loop"] = "local c = b for _, v in ipairs {a, w} do\n    c = c:matmul(v:t())\n  end",
  ["pairs loop"] = "local c = b for _, v in pairs {p = w} do\n    c = c + v\n  end",
  ["concatenation"] = "local c = 'a' .. a:view(77):sum():item()",
  ["backward"] = "local c = a; a:backward()",
  ["backward of a leaf"] = "local p = lt.ones(2, 2, {requires_grad = true}) local c = (p * 2) c:backward()",
  ["inner function"] = "local function g(v)\n    local r = v:view(77)\n    return r\n  end\n  local c = g(a)",
  ["vararg"] = "local function g(...)\n    local r = lt.cat({...}, 0)\n    return r\n  end\n  local c = g(a, w)",
  ["gather out of range"] = "local c = a:index_select(0, ids)",
  ["embedding out of range"] = "local c = F.embedding(ids, table4) + a:sum()",
  ["item of many"] = "local c = a:item()",
  ["no_grad"] = "local c = lt.no_grad(function()\n    local r = a:view(77)\n    return r\n  end)",
  ["pcall and again"] = "local ok, m = pcall(a.view, a, 77) local c = a:view(78)",
  ["coroutine"] = "local c = coroutine.wrap(function(v)\n    local r = v:view(77)\n    return r\n  end)(a)",
} do
  catalogue(name, frame(statement))
end

-- Errors of Lua itself ----------------------------------------------------------------------------------------------

for name, statement in pairs {
  ["call of a number local"] = "local g = 3 local c = g(a)",
  ["call of a number global"] = "N = 3 local c = N(a)",
  ["call of a number field"] = "local t = {n = 3} local c = t.n(a)",
  ["call of a number method"] = "local t = {n = 3} local c = t:n(a)",
  ["call of nil local"] = "local g local c = g(a)",
  ["call of nil global"] = "local c = nothing(a)",
  ["call of nil method"] = "local t = {} local c = t:nothing(a)",
  ["call of a string"] = "local s = 'x' local c = s(a)",
  ["index of nil"] = "local c = cfg.heads",
  ["index of a nil field"] = "local t = {} local c = t.a.b",
  ["index of a number"] = "local n = 3 local c = n.x",
  ["assignment to nil"] = "local c = a; cfg.heads = 1",
  ["nil as a key"] = "local c = a; local t = {} t[cfg] = 1",
  ["arithmetic on nil"] = "local n local c = n + 1",
  ["arithmetic on a field"] = "local t = {} local c = t.lr * 2",
  ["arithmetic on a string"] = "local c = {} local s = 'abc' + 1",
  ["length of nil"] = "local n local c = #n",
  ["concatenation of nil"] = "local n local c = 'a' .. n",
  ["concatenation of a table"] = "local n = {} local c = n .. 'a'",
  ["comparison"] = "local c = a if {} < 3 then c = b end",
  ["comparison with nil"] = "local n local c = a if n < 3 then c = b end",
  ["loop bound"] = "local n local c = a for i = 1, n do c = b end",
  ["pairs of nil"] = "local n local c = a for k in pairs(n) do c = b end",
  ["ipairs of nil"] = "local n local c = a for k in ipairs(n) do c = b end",
  ["error"] = "local c = a error('stop')",
  ["error at level 2"] = "local c = a error('stop', 2)",
  ["error with a table"] = "local c = a error(setmetatable({}, {__tostring = function() return 'T' end}))",
  ["assert"] = "local c = a assert(false, 'asserted')",
  ["assert of nothing"] = "local c = a assert(nil)",
  ["setmetatable"] = "local c = setmetatable(3, {})",
  ["string method"] = "local c = ('x'):rep({})",
  ["tostring of nothing"] = "local c = tostring()",
  ["select"] = "local c = select(0, a)",
  ["unpack"] = "local c = unpack(cfg)",
  ["table.concat"] = "local c = table.concat({1, {}, 2})",
} do
  catalogue(name, frame(statement))
end

-- Calls at depth ------------------------------------------------------------------------------------------------------

-- The failing statement in a callee, and ways of calling it.
local callees = {
  ["local function"] = {"local function g(v)\n  local u = v * 3\n  %s\n  return r\nend", "g(a)"},
  ["global function"] = {"function G(v)\n  local u = v * 3\n  %s\n  return r\nend", "G(a)"},
  ["field"] = {"local M = {}\nfunction M.g(v)\n  local u = v * 3\n  %s\n  return r\nend", "M.g(a)"},
  ["method"] = {"local M = {}\nfunction M:g(v)\n  local u = v * 3\n  %s\n  return r\nend", "M:g(a)"},
  ["key"] = {"local M = {}\nM[1] = function(v)\n  local u = v * 3\n  %s\n  return r\nend", "M[1](a)"},
  ["callable"] = {"local M = setmetatable({}, {__call = function(self, v)\n  local u = v * 3\n  %s\n  return r\nend})",
    "M(a)"},
  ["add"] = {"local M = setmetatable({}, {__add = function(self, v)\n  v = lt.ones(3, 4)\n  local u = v * 3\n  %s\n  return r\nend})", "M + 1"},
  ["index"] = {"local M = setmetatable({}, {__index = function(self, v)\n  v = lt.ones(3, 4)\n  local u = v * 3\n  %s\n  return r\nend})", "M.key"},
  ["unary minus"] =
    {"local M = setmetatable({}, {__unm = function(v)\n  v = lt.ones(3, 4)\n  local u = v * 3\n  %s\n  return r\nend})",
    "-M"},
  ["argument"] = {"local function g(v)\n  local u = v * 3\n  %s\n  return r\nend", "lt.relu(g(a))"},
  ["argument of a Lua function"] = {"local function k(...) local r = lt.cat({...}, 0) return r end\nlocal function g(v)\n  local u = v * 3\n  %s\n  return r\nend", "k(g(a))"},
  ["iterator"] = {"local function step(s, v)\n  v = lt.ones(3, 4)\n  local u = v * 3\n  %s\n  return r\nend\nlocal function g(v)\n  for k in step, 1, 2 do v = v + 1 end\n  return v\nend", "g(a)"},
  ["module"] = {"local M = nn.Module:extend('M')\nfunction M:init() self.fc = nn.Linear(4, 4) end\nfunction M:forward(v)\n  local u = self.fc(v)\n  %s\n  return r\nend\nlocal m = M()", "m(a)"},
  ["sequential"] = {"local M = nn.Module:extend('M')\nfunction M:forward(v)\n  local u = v * 3\n  %s\n  return r\nend\nlocal m = nn.Sequential(nn.Linear(4, 4), M())", "m(a)"},
  ["three deep"] = {"local function g(v)\n  local u = v * 3\n  %s\n  return r\nend\nlocal function k(v)\n  local q = g(v + 1)\n  return q\nend\nlocal M = {}\nfunction M:call(v)\n  local q = k(v + 1)\n  return q\nend", "M:call(a)"},
  ["no_grad"] = {"local function g(v)\n  local u = v * 3\n  %s\n  return r\nend", "lt.no_grad(g, a)"},
  ["pcall"] = {"local function g(v)\n  local u = v * 3\n  %s\n  return r\nend\nlocal function k(v)\n  local ok, m = pcall(g, v)\n  error(m, 0)\nend", "k(a)"},
}
local failures = {
  ["op"] = "local r = u:view(77)",
  ["op with a call"] = "local r = u:matmul(w:t())",
  ["after a break"] = "io.write('') local r = u:view(77)",
  ["after two breaks"] = "io.write('')\n  u = u + 1\n  io.write('')\n  local r = u:view(77)",
  ["number"] = "local n = 3 local r = n(u)",
  ["nil"] = "local n local r = n.x",
  ["nil after a break"] = "io.write('') local n local r = cfg.x",
  ["error"] = "local r = u error('stop')",
  ["error of the caller"] = "local r = u error('stop', 2)",
  ["error of the caller after a break"] = "io.write('') local r = u error('stop', 2)",
  ["out of range"] = "local r = table4[ids]",
  ["module"] = "local r = L(u)",
}
for way, callee in pairs(callees) do
  for kind, failure in pairs(failures) do
    catalogue("calls: " .. way .. ", " .. kind,
      callee[1]:format(failure:gsub("%%", "%%%%"))
        .. "\nreturn function(x)\n  local a = x + 1\n  local b = a * 2\n  local c = " .. callee[2]
        .. "\n  return c\nend")
  end
end

-- Programs whose call comes to an error only later: at run, by a second input, in backward.
local function late(name, source, input) catalogue("late: " .. name, source, input) end
late("a size that was right first", frame("local c = a:matmul(table4):view(3, 4)"),
  function(i) return lt.ones(3, i == 3 and 5 or 4) end)
late("an index that was right first", frame("local c = table4[x:sum():long() - 11]"),
  function(i) return lt.ones(3, 4) * (i == 3 and 9 or 1) end)
late("a rank", frame("local c = a:sum(1):sum(0)"), function(i) return i == 3 and lt.ones(3) or lt.ones(3, 4) end)
late("a number instead", frame("local c = b:sum()"), function(i) return i == 3 and 4 or lt.ones(3, 4) end)
late("in a callee", "local function g(v)\n  local u = v * 2\n  local r = u:view(12)\n  return r\nend\n"
  .. frame("local c = g(b) + 1"),
  function(i) return lt.ones(3, i == 3 and 5 or 4) end)
late("backward twice",
  frame("local p = lt.ones(3, 4, {requires_grad = true}) local c = (p * a):sin():sum() c:backward()\n  c:backward()"))
late("backward in a callee", "local function g(v)\n  local u = v * 2\n  u:backward()\n  return u\nend\n"
  .. frame("local c = g(b)"))
late("an optimiser", "local opt = optim.SGD({lt.ones(2, {requires_grad = true})}, {lr = 0.1})\n"
  .. frame("local c = a:sum() opt.param_groups[1].lr = nil\n  opt:step()"))

-- Graph breaks --------------------------------------------------------------------------------------------------------

local function breaks_of(source)
  local f = load_program(source)
  local found = {}
  local explained, report = pcall(lt.explain(f), ones())
  for i, b in ipairs(explained and report.break_reasons or {}) do found[i] = b end
  local ok, text = pcall(lt.compile(load_program(source), {fullgraph = true}), ones())
  assert(not ok, "there is no break")
  return found, text
end

test("a break in a layer of the library is told at the user's line", function()
  local source = "local layer = lt.nn.Linear(4, 3)\n" ..
    "layer.forward = function(self, x) return x * self.weight:sum():totable() end\n"
  local _, text = breaks_of(source .. frame("local c = layer(b)"))
  h.truthy(text:find("^program:2: compile: fullgraph=true, but the graph breaks: call of totable"), text)
  h.truthy(text:find("in forward at program:2, called from layer at lutra/nn/module.lua:%d+"), text)
  h.truthy(text:find(", called from program:%d+; see docs/graph_breaks.md#reads_elements$"), text)
end)

test("under fullgraph, an error that eager raises is eager's", function()
  for name, body in pairs {
    layer = "local c = lt.nn.functional.linear(b, lt.ones(3, 3))", size = "local c = b:view(7)",
    ["nil"] = "local c = cfg.heads", call = "local c = cfg(b)", arithmetic = "local c = b + cfg",
    assert = "assert(b.shape[1] > 99, 'too few')", error = "error 'no'", loop = "for i = 1, 3 do b:view(i + 6) end",
  } do
    local source = frame(body)
    local _, eager = pcall(load_program(source), ones())
    local f = lt.compile(load_program(source), {fullgraph = true})
    for _ = 1, 5 do
      local ok, text = pcall(f, ones())
      h.equal(tostring(ok) .. tostring(text), "false" .. tostring(eager), name)
    end
  end
  local caught = lt.compile(function(x)
    local ok = pcall(x.view, x, 7)
    return ok and x or x * 2
  end, {fullgraph = true})
  h.raises("view raises an error", caught, ones())
  -- If only eager code can tell that an operation is valid, the graph breaks there.
  local ffi = require "ffi"
  local point, pointer = ffi.typeof "struct { int x; }", ffi.cast("int*", 8)
  for name, f in pairs {
    arithmetic = function(x, n) return x, n + 1 end, call = function(x) return x, point(3) end,
    compare = function(x, n) return x, n < n + 1 end, text = function(x, n) return x, #tostring(n) end,
  } do h.raises("fullgraph=true, but the graph breaks", lt.compile(f, {fullgraph = true}), ones(), pointer, name) end
end)

test("fullgraph names the line of the break and the calls that lead there", function()
  local source = "local function inner(v)\n  local u = v + 1\n  io.write('')\n  return u\nend\nlocal M = {}\nfunction M:run(v)\n  local u = inner(v)\n  return u\nend\n"
    .. frame("local c = M:run(b)")
  local breaks, text = breaks_of(source)
  h.equal(text, "program:3: compile: fullgraph=true, but the graph breaks: call of io.write " ..
    "(read and write before or after the compiled function); in inner at program:3, called from run at program:8, " ..
    "called from program:14; see docs/graph_breaks.md#io")
  h.equal(breaks[1].chain, "in inner at program:3, called from run at program:8, called from program:14")
end)

test("breaks say what is called or indexed", function()
  for statement, reason in pairs {
    ["io.stderr:write('')"] = "call of file:write",
    ["local k = io.stdout:seek()"] = "call of file:seek",
    ["local k = io.stdout.seek print(k)"] = "call of print",
    ["local k = object.x"] = "a userdata is indexed",
  } do
    local breaks, text = breaks_of(frame("local c = b " .. statement))
    h.truthy(text:find("graph breaks: " .. reason, 1, true), statement .. ": " .. text)
  end
end)

-- Random programs -----------------------------------------------------------------------------------------------------

local scale = h.scale
local seed = tonumber(os.getenv("LUTRA_TEST_SEED")) or os.time() % 1000000
print("error_places: random programs of seed " .. seed)
local state = seed
local function random(n)
  state = (state * 1103515245 + 12345) % 2147483648
  return math.floor(state / 65536) % n + 1
end
local function pick(list) return list[random(#list)] end

local calm = {"u = u * 2", "u = u + 1", "u = lt.relu(u):sin()", "u = (u\n    + 1)\n    :cos()", "io.write('')",
  "count = count + 1",
  "local t = {u, u}\n  u = t[1] + t[2]", "for i = 1, 2 do\n    u = u + i\n  end", "if count > 1 then u = u - 1 end",
    "u = F.softmax(u, -1)"}
local broken = {"u = u:view(77)", "u = u:matmul(w:t())", "u = L(u)", "u = u + w", "u[7] = 1",
  "u = u\n    :sin()\n    :view(77)", "error('stop')",
  "error('stop', 2)", "u = cfg.x", "local n = 3\n  u = n(u)", "u = F.cross_entropy(\n    u,\n    w)", "u:backward()",
    "u = table4[ids]",
  "assert(nil, 'asserted')", "for i = 1, 3 do\n    u = u + 1\n    if i == 2 then u = u:view(77) end\n  end",
    "u = lt.cat({u, w}, 0)", "u = -cfg"}
-- How function %s is called, with v the result.
local calls = {"u = %s(u)", "u = (%s(u))", "u = lt.relu(%s(u))", "u = second(1, %s(u))",
  "local r = {%s(u)}\n  u = r[1]", "u = %s(u) + 1",
  "u = %s(\n    u * 2\n  )", "local ok, r = pcall(%s, u)\n  if not ok then error(r, 0) end\n  u = r",
    "u = lt.no_grad(%s, u)",
  "for i = 1, 2 do u = %s(u) end", "u = second(second(1, 2), %s(u))", "u = select(1, %s(u))"}
local defined = {"local function %s(v)", "function %s(v)", "local M%d = {}\nfunction M%d.f(v)",
  "local M%d = {}\nfunction M%d:f(v)",
  "local M%d = setmetatable({}, {__call = function(self, v)",
    "local M%d = nn.Module:extend('M%d')\nfunction M%d:forward(v)"}
local names = {"g%d", "G%d", "M%d.f", "M%d:f", "M%d", "m%d"}

local function random_program()
  local parts = {"local count = 0\nlocal function second(a, b) count = count + 1 return b end"}
  local n = random(4)
  local bad, last = random(n), nil
  for i = 1, n do
    local kind = random(#defined)
    local name = names[kind]:gsub("%%d", i)
    local head = defined[kind]:gsub("%%d", i):gsub("%%s", (name:gsub("%%", "")))
    local lines = {head, "  local u = v + 1"}
    local function add(line) lines[#lines + 1] = "  " .. line end
    for _ = 1, random(3) - 1 do add(pick(calm)) end
    local returns = last and random(4) == 1
    if last and not returns then add((pick(calls):gsub("%%s", last))) end
    for _ = 1, random(3) - 1 do add(pick(calm)) end
    if i == bad then add(pick(broken)) end
    for _ = 1, random(2) - 1 do add(pick(calm)) end
    add(returns and "return " .. last .. "(u)" or "return u")
    lines[#lines + 1] = kind == 5 and "end})" or "end"
    if kind == 6 then lines[#lines + 1] = ("local m%d = M%d()"):format(i, i) end
    parts[#parts + 1] = table.concat(lines, "\n")
    last = name
    if kind == 4 then -- a method is no value: calls take a function that calls it
      parts[#parts + 1] = ("local function c%d(v)\n  local r = M%d:f(v)\n  return r\nend"):format(i, i)
      last = "c" .. i
    end
  end
  local head = "return function(x)\n  local u = x * 2\n"
  parts[#parts + 1] = head .. "  " .. pick(calm) .. "\n  " .. pick(calls):gsub("%%s", last) .. "\n  return u\nend"
  return table.concat(parts, "\n")
end

local only = tonumber(os.getenv("LUTRA_TEST_PROGRAM"))
for i = 1, only or 40 * scale do
  local source = random_program()
  if not only or only == i then
    test("random program " .. i .. " of seed " .. seed, function()
      local ok, text = pcall(compare, source, ones)
      if not ok then error(text, 0) end
    end)
  end
end

test("a method that is looked up behind a portal is called a method", function()
  local function f(x, k)
    local r = x * 2
    r = r + (x:chunk(k - 3)):sum()
    return r
  end
  lt.config.stress = "break"
  for _ = 1, 3 do
    local _, message = pcall(f, lt.ones(4), 5)
    h.truthy(message:find("attempt to call method 'sum'", 1, true), message)
  end
  lt.config.stress = nil
end)

h.finish()
