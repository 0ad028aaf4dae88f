-- Tests debug.getinfo in compiled functions, for frames on the way to it and for functions. If the trace knows the
-- answer, there is one graph. Otherwise the graph breaks, and the answer is that of the real stack.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local function text(info)
  if type(info) ~= "table" then return tostring(info) end
  local keys = {}
  for k in pairs(info) do keys[#keys + 1] = k end
  table.sort(keys)
  for i, k in ipairs(keys) do keys[i] = k .. "=" .. (k == "func" and type(info[k]) or tostring(info[k])) end
  return table.concat(keys, " ")
end

-- f(x, seen) keeps what it sees; graphs: in how many.
local function check(name, f, graphs)
  test(name, function()
    local x = lt.ones(3)
    local function run(f)
      local seen = {}
      seen.y = h.text(f(x, seen))
      local lines = {seen.y}
      for i = 1, #seen do lines[#lines + 1] = text(seen[i]) end
      return table.concat(lines, "\n"), seen
    end
    local want = run(f)
    lt.reset()
    local g = lt.compile(f)
    for _ = 1, 2 do equal(run(g), want) end
    equal(lt.counters().stats.unique_graphs, graphs or 1, "graphs")
  end)
end
local function add(seen, info) seen[#seen + 1] = info end

check("the compiled function", function(x, seen)
  local y = x * 2
  local info = debug.getinfo(1, "Slu")
  add(seen, info)
  add(seen, debug.getinfo(1, "l").currentline)
  return y + 1
end)

local function place(level) return debug.getinfo(level or 2, "Sl") end
local function where(level)
  local at = debug.getinfo(level + 1, "Sl")
  return at.short_src .. ":" .. at.currentline
end
check("frames above a callee", function(x, seen)
  local y = x * 2
  local a = place()
  local b = place(1)
  local c = where(1)
  add(seen, a) add(seen, b) add(seen, c)
  return y + 1
end)

local function named() local info = debug.getinfo(1, "nSluf") return info end
function global_named() local info = named() return info, (debug.getinfo(1, "n")) end
check("names of callees", function(x, seen)
  local y = x * 2
  local t = {field = named}
  function t:method(extra, ...) local info = debug.getinfo(1) return info end
  local function own() local info = named() return info end
  add(seen, named()) add(seen, t.field()) add(seen, t:method(1)) add(seen, own())
  local first, second = global_named()
  add(seen, first) add(seen, second)
  add(seen, (function() local info = debug.getinfo(1, "n") return info end)())
  return y + 1
end)

check("functions", function(x, seen)
  local y = x * 2
  local function own(a, b, ...) return a, b, y end
  add(seen, debug.getinfo(named, "Slu")) add(seen, debug.getinfo(own)) add(seen, debug.getinfo(own, "f"))
  return y + 1
end)

test("the function itself", function()
  local function callee() local info = debug.getinfo(1, "f") return info.func end
  local f
  f = function(x)
    local own = debug.getinfo(1, "f").func
    return x * 2, callee() == callee, own, debug.getinfo(callee, "f").func
  end
  lt.reset()
  local g = lt.compile(f)
  for _ = 1, 2 do
    local _, same, own, of = g(lt.ones(2))
    equal(same, true)
    equal(own, g)
    equal(of, callee)
  end
  equal(lt.counters().stats.unique_graphs, 1, "graphs")
end)

check("protected calls and what C calls", function(x, seen)
  local y = x * 2
  local function asks() local info = debug.getinfo(1, "nSl") return info end
  add(seen, select(2, pcall(asks)))
  local function below() local info = debug.getinfo(1, "l") return info end
  add(seen, select(2, pcall(below)))
  y = y + 1
  table.sort({2, 1}, function(a, b) seen[3] = debug.getinfo(1, "l") return a < b end)
  return y + 1
end, 2)

check("frames above the compiled function", function(x, seen)
  local y = x * 2
  add(seen, debug.getinfo(2, "l") and true)
  add(seen, debug.getinfo(100, "l"))
  return y + 1
end, 2)

check("errors and options that break", function(x, seen)
  local y = x * 2
  add(seen, (select(2, pcall(debug.getinfo, 1, "?"))))
  local lines = 0
  for _ in pairs(debug.getinfo(1, "L").activelines) do lines = lines + 1 end
  add(seen, lines)
  add(seen, debug.getinfo(print, "S"))
  return y + 1
end, 2)

check("a frame that goes on after a break", function(x, seen)
  local function callee(x)
    x = x * 2
    lt.graph_break()
    x = x * 3
    local info = debug.getinfo(1, "lS")
    add(seen, info)
    return x + 1
  end
  local y = callee(x)
  add(seen, debug.getinfo(1, "lu"))
  return y
end, 3)

test("what the program gets is what it compares with", function()
  local f
  f = lt.compile(function(x)
    local y = x * 2
    return y, debug.getinfo(1, "f").func == f
  end)
  for _ = 1, 2 do equal(select(2, f(lt.ones(2))), true) end
end)

check("getinfo that pcall calls", function(x, seen)
  local y = x * 2
  local _, info = pcall(debug.getinfo, 1, "Sl")
  add(seen, info)
  return y + 1
end, 2)

for _, name in ipairs {"@" .. ("d/"):rep(40) .. "file.lua", "=" .. ("name "):rep(20), "@" .. ("x"):rep(59)} do
  test("a chunk named " .. name, function()
    local f = loadstring("local x = ... local y = x * 2 return y, debug.getinfo(1, 'S').short_src", name)
    local _, want = f(lt.ones(2))
    local _, got = lt.compile(f)(lt.ones(2))
    equal(got, want)
  end)
end

test("frames that go on behind a break", function()
  local seen
  local function note(...)
    for level = 2, 5 do
      local info = debug.getinfo(level, "ufL")
      if not info or info.func == xpcall then break end
      local lines = {}
      for line in pairs(info.activelines) do lines[#lines + 1] = line end
      table.sort(lines)
      seen[#seen + 1] = {info.func, ("%d %d %s %s"):format(info.nups, info.nparams, tostring(info.isvararg),
        table.concat(lines, ","))}
    end
    lt.graph_break()
  end
  local function leaf(y, n, ...)
    local a = y * 2
    note()
    local own, all = debug.getinfo(1, "f"), debug.getinfo(1)
    seen[#seen + 1] = {own.func, all.nparams .. tostring(all.isvararg) .. tostring(all.func == own.func)}
    for i = 1, n do
      a = a + i
      note()
    end
    return a + select("#", ...)
  end
  local function mid(y)
    local r = leaf(y, 2, 1, 2)
    note()
    return r * y
  end
  local function outer(y)
    local r = mid(y + 1)
    note()
    return r * 2
  end
  local function run(f)
    seen = {}
    for _ = 1, 3 do f(lt.ones(3)) end
    local co = coroutine.wrap(f)
    co(lt.ones(3))
    return seen
  end
  local names = {[leaf] = "leaf", [mid] = "mid", [outer] = "outer", [run] = "run"}
  local function told(list)
    local lines = {}
    for i, at in ipairs(list) do lines[i] = (names[at[1]] or "another") .. " " .. at[2] end
    return table.concat(lines, "\n")
  end
  local want = told(run(outer))
  lt.reset()
  local compiled = lt.compile(outer)
  names[compiled] = "outer"
  equal(told(run(compiled)), want)
  equal(told(run(lt.patch(outer))), want)
  lt.unpatch(outer)
  equal(told(run(outer)), want)
end)

test("a frame of a function that is patched while it runs", function()
  local function f(y)
    lt.patch(f_running)
    local info = debug.getinfo(1, "fu")
    lt.unpatch(f_running)
    return info.func, info.nparams
  end
  f_running = f
  local func, n = f(lt.ones(3))
  equal(func, f)
  equal(n, 1)
  f_running = nil
end)

h.finish()
