-- Graph breaks: in the middle of a frame, inside a loop (its body stays compiled), inside an inlined callee. Results
-- and effects are eager's.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, breaks = h.test, h.equal, h.truthy, h.breaks

local log = {}

-- f eager and compiled on the same arguments, three times each: results equal, effects equal.
local function compare(f, ...)
  lt.reset()
  local cf = lt.compile(f)
  for _ = 1, 3 do
    log = {}
    local want = {f(...)}
    local want_log = table.concat(log, " ")
    log = {}
    local got = {cf(...)}
    equal(#got, #want, "results")
    for i = 1, #want do
      if type(want[i]) == "userdata" then truthy(got[i]:equal(want[i]), "result " .. i) else equal(got[i], want[i]) end
    end
    equal(table.concat(log, " "), want_log, "effects")
  end
  return cf
end

test("in the middle of a frame", function()
  local function f(x)
    local y = x * 2 + 1
    lt.graph_break()
    return (y:tanh() * x):sum()
  end
  compare(f, lt.randn(5, 3))
  equal(breaks(), 1)
  equal(lt.counters().stats.unique_graphs, 2)
end)

test("an item() steers control flow", function()
  local function f(x)
    local total = (x * x):sum()
    if total:item() > 1 then return x / total:sqrt() end
    return x * 2
  end
  compare(f, lt.full({4}, 3))
  compare(f, lt.full({4}, 0.1))
  truthy(breaks() >= 1)
end)

test("inside a loop the body stays compiled", function()
  local function f(x, n)
    for i = 1, n do
      x = (x * 1.5):tanh() + i
      log[#log + 1] = string.format("%.6f", x:sum():item())
    end
    return x * 2
  end
  compare(f, lt.randn(8), 6)
  local calls = lt.counters().stats.unique_graphs
  truthy(calls >= 1 and calls <= 4, "graphs: " .. calls)
end)

test("inside a loop over a list there is no entry for each place", function()
  local list = {}
  for i = 1, 100 do list[i] = i end
  local f = compare(function(list, x)
    local s = x
    for _, v in ipairs(list) do
      s = s + v
      lt.graph_break()
      s = s * 0.5
    end
    return s
  end, list, lt.ones(3))
  truthy(#lt.guards(f) <= 7, #lt.guards(f) .. " entries")
  local again = #lt.guards(f)
  f(list, lt.ones(3))
  equal(#lt.guards(f), again)
end)

test("inside an inlined callee, with locals of both frames alive", function()
  local function callee(a, k)
    local b = a * k
    lt.graph_break()
    local c = b + a
    return c, k + 1
  end
  local function f(x)
    local before = x:tanh()
    local y, k = callee(x + 1, 3)
    local z = y * before + k
    return z, k
  end
  compare(f, lt.randn(7))
  equal(breaks(), 1)
end)

test("two callees deep, in a loop", function()
  local function inner(a)
    local b = a:tanh()
    lt.graph_break()
    return b * 2
  end
  local function outer(a, i) return inner(a + i) - i end
  local function f(x)
    for i = 1, 4 do x = outer(x, i) end
    return x
  end
  compare(f, lt.randn(3))
end)

test("breaks by print, pcall, coroutines, closures and tables", function()
  local function f(x)
    local ok, y = pcall(function() return x:tanh() end)
    local co = coroutine.wrap(function(a)
      local b = coroutine.yield(a * 2)
      return b + 1
    end)
    local z = co(y)
    z = co(z)
    local t = {z = z, n = 3}
    local add = function(v) return v + t.n end
    log[#log + 1] = tostring(ok)
    return add(t.z), t.n
  end
  compare(f, lt.randn(4))
end)

test("a list of results is returned from where variables are closed", function()
  local function f(x)
    local read = function() return x end
    log[#log + 1] = tostring(read() == x)
    lt.graph_break()
    return 1, 2, x:tanh()
  end
  compare(f, lt.randn(4))
  local function count(...) return select("#", ...) end
  local cf = lt.compile(f)
  for _ = 1, 3 do equal(count(cf(lt.randn(4))), 3) end
end)

-- LuaJIT puts the end of such a return behind the function's other instructions.
test("a list of results is returned early from a function that makes closures later", function()
  local function pair(x) return x * 2, x * 3 end
  for _, broken in ipairs{false, true} do
    local function f(x, late, ...)
      if not late then
        x = x + 1
        return x, pair(x)
      elseif late == "more" then
        if broken then lt.graph_break() end
        return ...
      end
      if broken then lt.graph_break() end
      local function part(y) return pair(y * x) end
      return part(x)
    end
    compare(f, lt.ones(3), false)
    compare(f, lt.ones(3), true)
    compare(f, lt.ones(3), "more", lt.ones(2), lt.ones(4))
    compare(function(x)
      if x:dim() == 1 then
        x = x + 1
        return x, f(x, true)
      end
      return function() return x end
    end, lt.ones(3))
  end
end)

test("reasons hold no line, name or address", function()
  lt.reset()
  local cf = lt.compile(function(x)
    lt.graph_break()
    return x + 1
  end)
  cf(lt.zeros(1))
  for reason in pairs(lt.counters().graph_break) do
    truthy(not reason:find("%d+:") and not reason:find("0x"), reason)
  end
end)

test("a break in a callee's loop is told, though nothing was captured before it", function()
  lt.reset()
  local function callee(x)
    for _ = 1, 2 do lt.graph_break() end
    return x
  end
  local function f(x) return callee(x) + 1 end
  lt.compile(f)(lt.zeros(1))
  equal(lt.counters().graph_break["lt.graph_break() was called"], 2)
  local ok, message = pcall(lt.compile(f, {fullgraph = true}), lt.zeros(1))
  truthy(not ok and message:find("lt.graph_break() was called", 1, true), message)
end)

test("breaks on purpose say why", function()
  local hidden = lt.disable(function(x) return x * 3 end, {reason = "it talks to a server"})
  h.raises("call of a function under lt.disable (it talks to a server)",
    lt.compile(function(x) return hidden(x) end, {fullgraph = true}), lt.ones(1))
  h.raises("lt.graph_break() was called (the next line prints)", lt.compile(function(x)
    lt.graph_break("the next line prints")
    return x * 2
  end, {fullgraph = true}), lt.ones(1))
  h.raises("call the model once before it is compiled", lt.compile(lt.nn.LazyLinear(3), {fullgraph = true}),
    lt.ones(1, 2))
  h.raises("disable: option 'reason' must be a text, got number 3", lt.disable, print, {reason = 3})
  h.raises("disable: options are a table, not string 'x'", lt.disable, print, "x")
  h.raises("graph_break: argument 'message' must be a text, got number 3", lt.graph_break, 3)
end)

test("under fullgraph an error of the standard library stays what it is in eager code", function()
  local function told(text, f)
    for _, g in ipairs {f, lt.compile(f, {fullgraph = true})} do
      h.raises("breaks.lua:" .. text, g, lt.ones(2, 2))
    end
  end
  told("218: clip_grad_norm_: argument 'parameters' must be a Tensor or a list of Tensors, got number 5", function(x)
    return lt.nn.utils.clip_grad_norm_(5, x:dim())
  end)
  local drop = lt.nn.Linear(2, 2)
  told("221: train: argument 'mode' must be a boolean, got number 1", function(x) return drop:train(1)(x) end)
  local function caught(x)
    local ok, message = pcall(drop.train, drop, 1)
    return x * 2, ok, message:match "train: .*"
  end
  for _, g in ipairs {caught, lt.compile(caught)} do
    local _, ok, message = g(lt.ones(2, 2))
    equal(ok, false)
    equal(message, "train: argument 'mode' must be a boolean, got number 1")
  end
end)

test("under fullgraph an error in a loop stays itself, and so do later ones", function()
  local scale = 1
  local function checked(n, wrong)
    local scaled = n * scale
    if n == wrong then error("wrong: " .. n) end
    return scaled
  end
  local function f(x, n)
    local last = function() return n end
    checked(n, 2)
    for i = 1, n do x = x + checked(i, 4) end
    checked(n, 0)
    return x * last()
  end
  local g = lt.compile(f, {fullgraph = true})
  for _, n in ipairs {1, 3, 2, 4, 0, 5, 3, 2, 1, 4, 0} do
    local ok, want = pcall(f, lt.ones(2), n)
    local same, got = pcall(g, lt.ones(2), n)
    equal(same, ok, n)
    equal(tostring(got), tostring(want))
  end
end)

test("fullgraph makes a break an error", function()
  lt.reset()
  local cf = lt.compile(function(x)
    lt.graph_break()
    return x + 1
  end, {fullgraph = true})
  truthy(not pcall(cf, lt.zeros(1)))
end)

test("under stress, what goes on for a frame is not patched anew at each call", function()
  lt.reset()
  local lines = {"local c = ... return function(x) local s = 0"}
  for i = 1, 500 do lines[#lines + 1] = ("if c[%d] ~= %d then s = s + 1 end"):format(i, i) end
  lines[#lines + 1] = "return x + s, s end"
  local c = {}
  for i = 1, 500 do c[i] = i end
  local f = lt.compile(loadstring(table.concat(lines, "\n"))(c))
  lt.config.stress = "break"
  local ok, why = pcall(function()
    local function call(n, x)
      for _ = 1, n do truthy(f(x):equal(x)) end
    end
    local x = lt.ones(3)
    call(100, x)
    local start = os.clock()
    call(200, x)
    local took = os.clock() - start
    truthy(took < 0.1 * h.patience, ("200 calls took %.3f s"):format(took))
  end)
  lt.config.stress = nil
  truthy(ok, why)
end)

-- A call of a portal is a hit of the cache, also where its entry has nothing to run.
local function hits_of(f, ...)
  local before = lt.counters().cache.hits
  local y = f(...)
  return lt.counters().cache.hits - before, y
end

-- More iterations than one segment takes.
test("a stretch of a loop without ops is plain Lua in the end", function()
  local function sum(x, n)
    local s = 0
    for i = 1, n do
      s = s + i
      if s > 1e15 then s = 0 end
    end
    return x + s
  end
  local f, x = lt.compile(sum), lt.ones(3)
  for _ = 1, 2 do truthy(f(x, 200000):equal(sum(x, 200000))) end
  local hits, y = hits_of(f, x, 200000)
  truthy(hits < 10, hits .. " calls of portals")
  truthy(y:equal(sum(x, 200000)))
end)

test("a loop whose ops come late asks compiled code only where its ops are", function()
  local function late(x, n)
    local y = x
    for i = 1, n do
      if i % 9000 == 0 then y = y + x * 2 end
    end
    return y
  end
  local f, x = lt.compile(late), lt.ones(3)
  for _ = 1, 2 do truthy(f(x, 200000):equal(late(x, 200000))) end
  local hits, y = hits_of(f, x, 200000)
  truthy(hits >= 22 and hits < 100, hits .. " calls of portals")
  truthy(y:equal(late(x, 200000)))
end)

-- LuaJIT rewrites such a loop while it runs, in the bytecode that runs.
test("a frame in a loop over an iterator that is not next stays in its bytecode", function()
  local function counted(n)
    local i = 0
    return function()
      i = i + 1
      if i <= n then return i, i * 2 end
    end
  end
  local function f(x, pairs, n)
    local s = 0
    for _, v in pairs(n) do
      x = x + v
      s = s + os.time()
    end
    return x
  end
  local function patched(x, pairs, n)
    for k, v in pairs(n) do
      x = x + v
      lt.graph_break()
      if v == 4 then x = x * 2 end
      x = x - k
    end
    return x
  end
  local c, x, list = lt.compile(f), lt.ones(3), {2, 4, 6}
  for _, iterate in ipairs {"counted", "pairs", "counted", "counted"} do
    local over, n = counted, 9
    if iterate == "pairs" then over, n = pairs, list end
    truthy(c(x, over, n):equal(f(x, over, n)), iterate)
  end
  local want = {patched(x, counted, 9), patched(x, pairs, list)}
  lt.patch(patched)
  for _ = 1, 3 do
    truthy(patched(x, counted, 9):equal(want[1]))
    truthy(patched(x, pairs, list):equal(want[2]))
  end
end)

test("a long loop that no backward needs shares its body's code", function()
  local function run(x, n)
    for i = 1, n do x = (x * 1.01 + i):sin():tanh():exp() end
    return x
  end
  local function graphs_and_ops(...)
    lt.reset()
    local f = lt.compile(run)
    for _ = 1, 2 do truthy(lt.equal(f(...), run(...))) end
    local stats = lt.counters().stats
    return stats.unique_graphs, stats.calls_captured
  end
  local graphs, ops = graphs_and_ops(lt.ones(3), 300)
  equal(graphs, 1)
  equal(ops, 5)
  equal(select(2, graphs_and_ops(lt.ones(3), 100)), 500)
  equal(select(2, graphs_and_ops(lt.ones(3, {requires_grad = true}), 300)), 1500)
end)

test("a call of a method of a file is one break", function()
  local file = assert(io.tmpfile())
  local object = newproxy(true)
  getmetatable(object).__index = {note = function(_, v) log[#log + 1] = v end, write = tostring}
  local function f(x)
    local y = x * 2
    file:write("a text", 1)
    y = y:exp()
    object:note(tostring(file:seek("cur") > 0))
    return y + 1, file.write == io.stdout.write, object.write
  end
  compare(f, lt.randn(3))
  equal(breaks(), 2)
  equal(lt.counters().stats.unique_graphs, 3)
  local message = "bad argument #1 to 'write' (string expected, got table)"
  h.raises(message, lt.compile(function(x)
    local y = x * 2
    file:write {}
    return y
  end), lt.ones(3))
end)

-- Bytes of Lua's that a call makes whose callee breaks: `size` statements of the callee are not run.
local function bytes_of_a_call(size, around)
  local lines = {}
  for i = 1, size do lines[i] = "x = x * " .. i .. " + x" end
  local unused = table.concat(lines, " ")
  local layer = "local layer = function(x, c) lt.graph_break() if c then " .. unused .. " end return x * 2 + 1 end "
  local source = "local lt = ... " .. layer .. around
  local f = lt.compile(loadstring(source)(lt))
  local x = lt.ones(8)
  for _ = 1, 40 do f(x) end
  collectgarbage()
  for _ = 1, 2 do f(x) end
  collectgarbage "stop"
  local before = collectgarbage "count"
  for _ = 1, 20 do f(x) end
  local bytes = (collectgarbage "count" - before) * 1024 / 20
  collectgarbage "restart"
  return bytes
end

test("a callee that breaks costs as much a call, however long it is", function()
  for what, around in pairs {
    ["one closure"] = "return function(x) return layer(x, false) + 1 end",
    ["closures of each call"] = [[
      return function(x)
        local n = 0
        local function own(y) n = n + 1 return layer(y, false) * n end
        return own(x) + 1
      end]],
    ["two deep"] = "local function outer(x) return layer(x, false) * 2 end return function(x) return outer(x) + 1 end"
  } do
    local short, long = bytes_of_a_call(1, around), bytes_of_a_call(400, around)
    truthy(long < short + 256, ("%s: %d bytes, %d where the callee is long"):format(what, short, long))
  end
end)

-- Returns the reasons and hints of the breaks of compiled f(x).
local function reasons(f)
  lt.reset()
  local cf, out = lt.compile(f), {}
  cf(lt.ones(2))
  for i, b in ipairs(lt._report(cf).break_reasons) do out[i] = b.reason .. ": " .. b.hint end
  return table.concat(out, "; ")
end

test("a C function is named by its module, and by coroutine.wrap", function()
  local ffi = require "ffi"
  truthy(reasons(function(x) x = x * 2 return x + 1, ffi.sizeof("int") end):find("call of ffi.sizeof", 1, true))
  local numbers = coroutine.wrap(function() while true do coroutine.yield(3) end end)
  local wrapped = reasons(function(x) x = x * 2 return x + numbers() end)
  truthy(wrapped:find("call of a function of coroutine.wrap", 1, true), wrapped)
end)

test("out= of an empty tensor says which sizes it needs", function()
  local out = lt.empty(0)
  local text = reasons(function(x) x = x * 2 lt.mul(x, 3, {out = out}) return out + 1 end)
  truthy(text:find("out= of mul takes other sizes", 1, true) and text:find("{2}", 1, true), text)
end)

test("a callee with too few ops says so", function()
  local function body(x) coroutine.yield(x * 2) end
  local kept
  local text = tostring(lt.explain(function(x)
    kept = coroutine.wrap(body)
    return kept(x)
  end)(lt.ones(2))):gsub("%s+", " ")
  truthy(text:find("fewer than 3 ops before it", 1, true), text)
end)

h.finish()
