-- Tests compilation in the background: calls run eagerly until the code is there, with the same bits. The next call
-- reports errors of the background. Program ends, interrupts and limits may come at any stage.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, fails, shell = h.test, h.equal, h.truthy, h.raises, h.shell
local nn = lt.nn
local lutra, base = h.program(), h.folder()

local function compile(f, options)
  options = options or {}
  options.wait = false
  return lt.compile(f, options)
end
-- Returns the counts that a run of f adds to lt.counters().async.
local function counted(f)
  local before = lt.counters().async
  f()
  local after, out = lt.counters().async, {}
  for name, n in pairs(after) do out[name] = n - before[name] end
  return out
end
-- A text of the bits.
local function bits(t) return table.concat(t:detach():double():reshape(-1):tolist(), " ", 1, t:numel()) end

-- make() gives a function of a call's number which returns a text; compiled in the background it gives eager's texts,
-- with the code published after `published` calls at the latest. Each make is the same function, made anew.
local function agrees(make, calls, published)
  local function series(wrap)
    lt.manual_seed(5)
    local f, out = make(wrap), {}
    for i = 1, calls do
      if wrap ~= nil and i % published == 0 then lt.wait_compiled() end
      out[i] = f(i)
    end
    return out
  end
  local eager = series(nil)
  local count = counted(function()
    local got = series(compile)
    for i = 1, calls do equal(got[i], eager[i], "call " .. i) end
  end)
  equal(count.failed, 0)
  return count
end

test("calls run eagerly until the code is there", function()
  local function f(x, y) return ((x * y + 1):relu():sum(1):exp() - x:mean()) end
  local x, y = lt.randn(32, 33), lt.randn(32, 33)
  local want, g = bits(f(x, y)), compile(f)
  local count = counted(function() equal(bits(g(x, y)), want) end)
  equal(count.started, 1)
  equal(count.eager_calls + count.ready, 1) -- the code may be there when the call comes to it
  lt.wait_compiled(g)
  local ready = count.ready
  count = counted(function() for _ = 1, 3 do equal(bits(g(x, y)), want) end end)
  equal(count.ready + ready, 1)
  equal(count.eager_calls, 0)
  equal(lt.counters().cache.hits > 0, true)
end)

test("it is published without being waited for", function()
  local g, x = compile(function(x) return x:exp():sum() end), lt.ones(4)
  local start = lt.perf_counter()
  local count = counted(function()
    local ready = lt.counters().async.ready
    repeat g(x) until lt.counters().async.ready > ready or lt.perf_counter() - start > 60
  end)
  equal(count.ready, 1)
end)

test("lt.config.async asks for it everywhere, {wait = true} takes it back", function()
  lt.config.async = true
  local count = counted(function() lt.compile(function(x) return x + 1 end)(lt.ones(2)) end)
  equal(count.started, 1)
  count = counted(function() lt.compile(function(x) return x + 2 end, {wait = true})(lt.ones(2)) end)
  equal(count.started, 0)
  local function patched(x) return x + 3 end
  lt.patch(patched)
  count = counted(function() patched(lt.ones(2)) end)
  equal(count.started, 1)
  count = counted(function() equal(lt.explain(function(x) return x + 4 end)(lt.ones(2)).graph_count, 1) end)
  equal(count.started, 0)
  lt.config.async = false
  equal(lt.config.async, false)
  count = counted(function() lt.compile(function(x) return x + 5 end)(lt.ones(2)) end)
  equal(count.started, 0)
end)

test("a backend of one's own is asked at once", function()
  local asked = 0
  local g = compile(function(x) return x * 2 end, {backend = function(graph) asked = asked + 1 return graph end})
  local count = counted(function() equal(g(lt.ones(2)):sum():item(), 4) end)
  equal(asked, 1)
  equal(count.started, 0)
end)

local function training(compiled_step, options)
  options = options or {}
  return function(wrap)
    local net = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.Dropout(0.3), nn.Linear(24, 4))
    local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
    local model = wrap and not compiled_step and wrap(net) or net
    local function step(x, y)
      local loss = nn.functional.cross_entropy(model(x), y)
      if not options.accumulate then opt:zero_grad() end
      loss:backward()
      opt:step()
      return loss
    end
    if wrap and compiled_step then step = wrap(step) end
    return function(i)
      local n = options.sizes and 5 + i % 3 or 8
      local loss = step(lt.randn(n, 12), lt.randint(0, 4, {n}))
      local out = bits(loss)
      for _, p in ipairs(net:parameters()) do
        out = table.concat({out, bits(p), p.grad and bits(p.grad) or "nil"}, " ")
      end
      return out
    end
  end
end

test("a train step in one graph", function() agrees(training(true), 10, 4) end)
test("a train step in one graph, of sizes that change", function() agrees(training(true, {sizes = true}), 12, 5) end)
test("a compiled model, differentiated outside", function() agrees(training(false), 10, 4) end)
test("... which adds to gradients", function() agrees(training(false, {accumulate = true}), 10, 4) end)
test("... of sizes that change", function() agrees(training(false, {sizes = true}), 12, 5) end)
test("... with little memory for gradients", function()
  for _, budget in ipairs {0, 0.5} do
    lt.config.activation_memory_budget = budget
    agrees(training(false), 8, 3)
  end
  lt.config.activation_memory_budget = 1
end)

test("hooks, several outputs, a second derivative", function()
  agrees(function(wrap)
    local w = lt.randn(6, 6):requires_grad_()
    local function f(x) local y = x:matmul(w):tanh() return y, y:exp():sum(0) end
    if wrap then f = wrap(f) end
    return function(i)
      local x = lt.randn(6, 6):requires_grad_()
      local a, b = f(x)
      local seen = ""
      if i % 2 == 0 then a:register_hook(function(g) seen = bits(g) return g * 2 end) end
      w.grad = nil
      if i % 3 == 0 then
        local g = lt.grad((a:sum() + b:square():sum()), x, {create_graph = true})
        g = g[1] or g
        g:square():sum():backward()
      elseif i % 3 == 1 then
        a:sum():backward()
      else
        (a:sum() + b:sum()):backward()
      end
      return table.concat({bits(a), bits(b), seen, bits(w.grad), bits(x.grad)}, " | ")
    end
  end, 14, 5)
end)

test("a forward that ran eagerly has an eager backward, whenever that comes", function()
  local function make(wrap)
    local w = lt.randn(5, 5):requires_grad_()
    local f = function(x) return (x:matmul(w)):sigmoid():sum() end
    if wrap then f = wrap(f) end
    local pending = {}
    return function(i)
      pending[#pending + 1] = f(lt.randn(5, 5))
      if i % 4 ~= 0 then return "" end
      w.grad = nil
      for _, loss in ipairs(pending) do loss:backward() end
      pending = {}
      return bits(w.grad)
    end
  end
  agrees(make, 12, 3)
end)

test("graph breaks, loops and rebuilt frames", function()
  agrees(function(wrap)
    local log
    local function inner(x, k)
      local y = x * k
      log = y:sum():item() > 0
      return y:tanh()
    end
    local f = function(x)
      local y = inner(x:exp(), 2)
      for k = 1, 3 do
        y = y + inner(y, k)
        if y:sum():item() > 1e6 then break end
      end
      return y:log1p()
    end
    if wrap then f = wrap(f) end
    return function() return bits(f(lt.rand(4))) .. tostring(log) end
  end, 9, 4)
end)

test("writes in place, of tables and of upvalues", function()
  agrees(function(wrap)
    local state, calls = {sum = lt.zeros(3), last = nil}, 0
    local f = function(x)
      calls = calls + 1
      state.sum:add_(x:square())
      state.last = x + calls
      state[calls] = x:sum()
      return state.sum * 2
    end
    if wrap then f = wrap(f) end
    return function()
      local out = bits(f(lt.randn(3)))
      return table.concat({out, bits(state.sum), bits(state.last), calls, bits(state[calls])}, " ")
    end
  end, 8, 3)
end)

test("guards that miss meanwhile: an entry each, no more than the limit", function()
  lt.config.recompile_limit = 3
  local g = compile(function(x, flag) if flag then return x + 1 end return x:exp() end, {dynamic = false})
  local count = counted(function()
    for _ = 1, 3 do
      g(lt.ones(2), true) g(lt.ones(2), false) g(lt.ones(3), true)
    end
  end)
  equal(count.started, 3)
  local log = h.write(base .. "/limit.lua", [[
    lt.config.recompile_limit = 2
    local g = lt.compile(function(x) return x + 1 end, {wait = false, dynamic = false})
    for n = 2, 9 do g(lt.ones(n)) end
    lt.wait_compiled()
    print(lt.counters().async.started)]])
  local out = shell(("%s %s 2>&1"):format(lutra, log))
  truthy(out:find("recompile_limit (2) reached", 1, true), out)
  truthy(out:find("\n?2\n"), out)
  lt.config.recompile_limit = 8
end)

test("fullgraph tells of its break at the call", function()
  local g = compile(function(x) print() return x end, {fullgraph = true})
  fails("fullgraph=true, but the graph breaks", g, lt.ones(2))
end)

test("verified", function()
  lt.config.verify = 1
  local before = lt.counters().verify
  agrees(training(true), 6, 2)
  agrees(training(false), 6, 2)
  local after = lt.counters().verify
  truthy(after.calls > before.calls)
  equal(after.mismatches, before.mismatches)
  lt.config.verify = 0
end)

test("reset, unpatch and the collector while it compiles", function()
  local x = lt.ones(8, 8)
  local function long(n)
    return function(x)
      for i = 1, n do x = (x * i):sin() + x:cos():sum(1, {keepdim = true}) end
      return x
    end
  end
  local want = bits(long(40)(x))
  for round = 1, 6 do
    local g = compile(long(40))
    equal(bits(g(x)), want)
    if round % 2 == 0 then
      lt.reset()
      equal(lt.counters().async.started, 0)
      equal(bits(g(x)), want)
    end
    g = nil
    collectgarbage()
    local p = long(30)
    lt.patch(p)
    p(x)
    lt.unpatch(p)
    p(x)
  end
  for _ = 1, 70 do compile(load("return function(x) return (x * 2):exp():sum() end")())(x) end -- units are collected
  lt.wait_compiled()
end)

test("settings may change while it compiles", function()
  local x = lt.ones(8, 8)
  local function f(x)
    for i = 1, 30 do x = (x * i):sin() + x end
    return x
  end
  local want = bits(f(x))
  for _, isa in ipairs {"interp", nil} do
    local g = compile(f)
    g(x)
    lt.config.isa = isa
    lt.config.passes.cse = isa == nil
    equal(bits(g(x)), want)
    lt.wait_compiled()
    equal(bits(g(x)), want)
  end
  lt.config.isa = nil
end)

test("limits hold while it compiles and while it is waited for", function()
  local g = compile(function(x)
    for i = 1, 150 do x = (x * i):sin() + x end
    return x
  end)
  local ok, message = pcall(lt.limits({seconds = 0.002}), function()
    while true do
      g(lt.ones(4))
      lt.wait_compiled()
    end
  end)
  truthy(not ok and tostring(message):find("seconds are over", 1, true), message)
  local want = bits(g(lt.ones(4)))
  lt.wait_compiled()
  equal(bits(g(lt.ones(4))), want)
end)

test("callbacks are waited for", function()
  local x, kept = lt.ones(8, 8), nil
  local function callback()
    local y = x * 2
    for i = 1, 150 do y = (y:matmul(x) + i):sin():sum(1, true) * x end
    kept = y
    lt.graph_break()
  end
  local g = compile(function(v)
    local y = v * 2
    string.gsub("a", ".", callback)
    return y + 1
  end)
  for _ = 1, 3 do
    g(lt.ones(3))
    lt.wait_compiled(g)
  end
  x = lt.ones(9, 9):double()
  g(lt.ones(3))
  lt.wait_compiled(g)
  local count = counted(function() g(lt.ones(3)) end)
  equal(count.eager_calls, 0)
  equal(count.ready, 1)
  equal(kept.dtype, "float64")
end)

test("what is wrong is said", function()
  fails("option 'wait' must be a boolean, got number 1", lt.compile, function() end, {wait = 1})
  fails("config: async must be a boolean or nil, got number", function() lt.config.async = 1 end)
  fails("wait_compiled: the function is not compiled", lt.wait_compiled, function() end)
  fails("wait_compiled: argument 'f' must be a compiled function or module", lt.wait_compiled, 1)
end)

test("reports", function()
  local g = compile(function(x)
    for i = 1, 100 do x = (x * i):sin() + x end
    return x
  end)
  g(lt.ones(4))
  lt.wait_compiled()
  g(lt.ones(4))
  local report = lt._report(g)
  equal(report.compiling, 0)
  truthy(report.kernels_per_graph[1] > 0)
  truthy(report.compile_stages[1].schedule > 0)
  truthy(tostring(lt.guards(g)):find("x"))
end)

-- Programs in processes of their own: what they print on both outputs, and their exit code.
local function run(text, environment)
  local file = h.write(base .. "/program.lua", [[
local function long(n)
  return lt.compile(function(x)
    for i = 1, n do x = (x * i):sin() + x:cos():sum(1, {keepdim = true}) end
    return x
  end, {wait = false})
end
local x = lt.ones(8, 8)
]] .. text)
  local command = "env LUTRA_CACHE=off %s timeout -s KILL 60 %s %s 2>&1; echo \"rc $?\""
  local out, code = shell(command:format(environment or "", lutra, file)):match("^(.*)rc (%d+)%s*$")
  return out, tonumber(code)
end

test("a program may end while it compiles", function()
  for text, want in pairs {
    ["long(60)(x)"] = 0, ["long(60)(x) os.exit(3)"] = 3, ["long(60)(x) os.exit(4, true)"] = 4,
    ["long(60)(x) error('ends')"] = 1, ["for n = 20, 40 do long(n)(x) end"] = 0,
    ["long(60)(x) local f = long(70) f(x) f = nil collectgarbage() lt.reset()"] = 0,
  } do
    local out, code = run(text)
    equal(code, want, text .. ": " .. out)
    equal(out:find("internal", 1, true), nil, out)
  end
end)

test("Control-C is the program's, not the compiler's", function()
  local out, code = run([[
local f = long(60)
f(x)
local ok, message = pcall(function()
  os.execute("(sleep 0.05; kill -INT $PPID) &")
  local y = x
  for i = 1, 1e7 do y = y * 1 end
end)
print(ok, message)
lt.wait_compiled()
local same = f(x):equal(f(x))
print(same, lt.counters().async.ready, lt.counters().async.failed)]])
  truthy(out:find("false\t.*interrupted!"), out)
  truthy(out:find("true\t1\t0"), out)
  equal(code, 0)
end)

test("an error of the compiler is told at the next call, and the original code runs", function()
  local out, code = run([[
io.stdout:setvbuf("no")
local f = lt.compile(function(x) return (x * 0):exp():sum() end, {wait = false})
print(f(x):item())
lt.wait_compiled()
io.stderr:write("before\n")
print(f(x):item())
print(f(x):item())
local c = lt.counters().async
print(c.started, c.ready, c.failed)]], "LUTRA_CACHE_DIR=" .. base .. "/crash LUTRA_INJECT=crash")
  local _, told = out:gsub("lutra: internal error in [^\n]*, which runs its original code from now on", "")
  equal(told, 1, out)
  equal(select(2, out:gsub("%f[^%z\n]64\n", "")), 3, out)
  truthy(out:find("1\t0\t1\n"), out)
  equal(code, 0)
end)

test("a bug of the compiler is noticed by verification", function()
  local out = run([[
local f = lt.compile(function(x) return (x - 2):relu():sum() end, {wait = false})
for i = 1, 4 do
  print(f(x):item())
  lt.wait_compiled()
end
print(lt.counters().verify.mismatches)]], "LUTRA_CACHE_DIR=" .. base .. "/relu LUTRA_VERIFY=1 LUTRA_INJECT=relu")
  truthy(out:find("compiled code differs from eager", 1, true), out)
  truthy(out:find("\n1\n$"), out)
end)

test("LUTRA_ASYNC and LUTRA_LOGS=async", function()
  local out, code = run([[
local f = lt.compile(function(x) return x:exp():sum() end)
f(x)
lt.wait_compiled()
f(x)]], "LUTRA_ASYNC=1 LUTRA_LOGS=async")
  truthy(out:find("[async] ", 1, true), out)
  truthy(out:find("compiling in the background, 2 ops", 1, true), out)
  truthy(out:find("2 ops are compiled: .* ms of work, taken over after .* ms and [01] eager call"), out)
  equal(code, 0)
end)

test("the background looks for code that another process has kept", function()
  local text = [[
local w = lt.ones(8, 8, {requires_grad = true})
local f = lt.compile(function(x) return x:matmul(w):exp():sum() end, {wait = false})
for i = 1, 3 do
  f(x):backward()
  lt.wait_compiled()
end
local c = lt.counters()
print(w.grad:sum():item(), c.async.started, c.async.ready, c.async.eager_calls, c.disk_cache.hits, c.disk_cache.misses)]]
  local there = "LUTRA_CACHE=on LUTRA_CACHE_DIR=" .. base .. "/kept"
  local first, second = run(text, there), run(text, there)
  local sum = first:match("^(%S+)\t1\t1\t[01]\t0\t%d+\n$")
  truthy(sum, first)
  equal(second:match("^(%S+)\t1\t1\t[01]\t[1-9]%d*\t0\n$"), sum, second)
end)

h.finish()
