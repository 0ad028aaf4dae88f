-- Tests tail calls: tracebacks still show their frames, millions of them need no stack, and string.dump shows them
-- unchanged.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local function trace_of(f, ...)
  local args = {...}
  return coroutine.wrap(function()
    local _, text = xpcall(function()
      local r = f(unpack(args))
      return r
    end, function(m) return debug.traceback(m, 1) end)
    return text
  end)()
end

local function chunk(source, name) return assert(loadstring(source, name or "=chunk"))() end

local model = [[
local nn = lt.nn
local M = nn.Module:extend("M")
function M:init() self.fc1, self.fc2 = nn.Linear(4, 3), nn.Linear(5, 2) end
function M:forward(x)
  local y = self.fc1(x):relu()
  return self.fc2(y)
end
return M()]]

test("a tail call has its line, in the library too", function()
  local m = chunk(model)
  local eager = trace_of(m, lt.ones(2, 4))
  h.truthy(eager:find("^chunk:6: linear: "), eager)
  h.truthy(eager:find("chunk:6: in function 'forward'", 1, true), eager)
  h.truthy(eager:find("in function 'fc2'", 1, true), eager)
  for _ = 1, 2 do
    local f = lt.compile(chunk(model))
    for _ = 1, 3 do
      h.truthy(trace_of(f, lt.ones(2, 4)):find("^chunk:6: linear: .*chunk:6: in function 'forward'"), "compiled")
    end
  end
end)

test("require, dofile, loadfile and load keep frames", function()
  local path = os.tmpname()
  local function write(text)
    local file = assert(io.open(path, "w"))
    file:write(text)
    file:close()
  end
  write "local function g(x)\n  return error('here')\nend\nlocal function f(x)\n  return g(x)\nend\nreturn f"
  local name = path:match("[^/]*$")
  local old = package.path
  package.path = path:match("^(.*)/") .. "/?"
  local loaded = {require(name), dofile(path), loadfile(path)(), load(io.lines(path, "*L"), "=" .. name)(),
    load(io.open(path):read("*a"), "=" .. name)()}
  package.path = old
  os.remove(path)
  equal(#loaded, 5)
  for i, f in ipairs(loaded) do
    local text = trace_of(f, 1)
    h.truthy(text:find(name .. ":2: in function 'g'", 1, true) and text:find(name .. ":5: in function 'f'", 1, true), i
      .. ": " .. text)
  end
  equal(select(2, pcall(dofile, path)):match("cannot open"), "cannot open")
  equal(select(2, loadstring("x = = 1")):match("unexpected symbol"), "unexpected symbol")
  equal(select("#", loadfile(path)), 2)
end)

test("environments of loaded chunks are what they were", function()
  local env = {}
  local f = load("x = 1 return tostring", "=c", "t", setmetatable(env, {__index = _G}))
  equal(f(), tostring)
  equal(env.x, 1)
  equal(getfenv(loadstring("return f()")), _G)
end)

local programs = {
  "local function f(n) if n == 0 then return 'end' end return f(n - 1) end return f(N)",
  "local a, b function a(n) if n == 0 then return 'end' end return b(n - 1) end function b(n) return a(n) end return a(N)",
  "local S = {} function S:a(n) return self:b(n - 1) end function S:b(n) if n <= 0 then return 'end' end return self:a(n) end return S:a(N)",
  "local t = {} for i = 1, 50 do t[i] = function(n) if n == 0 then return 'end' end return t[n % 50 + 1](n - 1) end end return t[1](N)",
  "local function f(n, ...) if n == 0 then return ... end return f(n - 1, ...) end return f(N, 'end')",
  "local function f(n) if n == 0 then return 'end' end local v = {n} local function g() return v[1] end return f(g() - 1) end return f(N)",
  "local function f(n, k) if n == 0 then return k() end return f(n - 1, function() return k() end) end return f(20, function() return 'end' end)",
  "local function f(n) if n == 0 then return 'end' end return pcall(tostring, n) and f(n - 1) end return f(3000)",
  "local co = coroutine.wrap(function() local function f(n) if n == 0 then return 'end' end if n % 1000 == 0 then coroutine.yield(n) end return f(n - 1) end return f(N) end) local r repeat r = co() until r == 'end' return r",
}
test("programs may make any number of tail calls", function()
  local n = 300000 * h.scale
  for i, source in ipairs(programs) do equal(chunk("local N = " .. n .. " " .. source), "end", "program " .. i) end
end)

test("what ran deep as tail calls is compiled afterwards", function()
  local lt = require "lutra"
  local source = "local function f(n, x) if n == 0 then return x + 1 end return f(n - 1, x) end return f"
  for _, compile in ipairs {lt.compile, lt.patch} do
    coroutine.wrap(function() -- on a stack of its own, which is small
      local f = chunk(source)
      equal(f(20000, 1), 2)
      local g = compile(f)
      for _ = 1, 3 do equal(g(3, lt.ones(1)):item(), 2) end
      equal(g(20000, 1), 2)
    end)()
  end
end)

test("a hook of the program stays, and deep tables and recursion are as they were", function()
  local calls = 0
  debug.sethook(function() calls = calls + 1 end, "", 1000)
  local f = debug.gethook()
  equal(chunk("local N = 20000 " .. programs[2]), "end")
  local list = {}
  for i = 1, 20000 do list[i] = i end
  equal(debug.gethook(), f)
  debug.sethook()
  h.truthy(calls > 0)
  local function depth(n) if n == 0 then return 0 end return 1 + depth(n - 1) end
  equal(depth(5000), 5000)
end)

test("string.dump gives tail calls as they were", function()
  local source = "local x = ... local function f(a, ...) if a then return g(a) end local v = function() return x, a end return h(v, ...) end\n"
    .. "local function k(o) return o:m(1, 2) end while x do return f(x) end return k(f)"
  local function code(bytes) -- without what one load has and another has not
    return bytes
  end
  local f = loadstring(source, "=s")
  local dump = string.dump(f)
  local again = loadstring(dump, "=s")
  equal(string.dump(again), dump)
  equal(string.dump(loadstring(dump, "=s"), true), string.dump(f, true))
  local path = os.tmpname()
  local file = io.open(path, "w")
  file:write(source)
  file:close()
  local pipe = io.popen("luajit -e \"io.write(string.dump(loadstring(io.open('" .. path
    .. "'):read('*a'), '=s')))\" 2>/dev/null")
  local plain = pipe:read("*a")
  pipe:close()
  os.remove(path)
  if plain ~= "" then equal(dump, plain, "luajit's dump") end
end)

h.finish()
