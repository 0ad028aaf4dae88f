-- Tests lt.config.verify: programs with correct compiled code get no report. Each bug that LUTRA_INJECT switches on is
-- noticed and leaves eager's results, and its repro is minified to at most 5 ops. (tests/repro has the file format.)
-- LUTRA_TEST_TABLE=1 prints the bugs, their reports, and the numbers of ops and bytes before and after.
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local kept = base .. "/kept"

-- Standard output and standard error of a program in a process of its own, and its exit code.
local function run(arguments, environment)
  local command = "env LUTRA_CACHE=off LUTRA_CACHE_DIR=%s LUTRA_VERIFY=1 %s %s %s 2>&1; echo \"rc $?\""
  local text = shell(command:format(kept, environment or "", lutra, arguments))
  local out, code = text:match("^(.*)rc (%d+)%s*$")
  return out, tonumber(code)
end
local function write(name, text) return h.write(base .. "/" .. name .. ".lua", text) end
local function repros()
  local files = {}
  for file in shell("ls " .. kept .. "/repro 2>/dev/null"):gmatch("[^\n]+%.repro") do
    files[#files + 1] = kept .. "/repro/" .. file
  end
  return files
end
local function forget() shell("rm -rf " .. kept) end

-- A program prints the bits of what it computes, then what was verified.
local prelude = [[
local nn = lt.nn
lt.manual_seed(7)
local function show(t) print(("%a"):format(t:detach():double():sum():item()), table.concat(t.shape, " ")) end
]]
local postlude = "\nlocal c = lt.counters().verify print('verified', c.calls > 0, c.mismatches, c.repros)"
local function program(name, text) return write(name, prelude .. text .. postlude) end

local clean = {
  pointwise = [[
local f = lt.compile(function(x, y) return (x * y):relu() + x:sum(1, {keepdim = true}), x:t() end)
for n = 3, 6 do local a, b = f(lt.randn(n, 5), lt.randn(n, 5)) show(a) show(b) end]],
  train = h.training,
  outside = [[
local net = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 3))
local opt = lt.optim.SGD(net:parameters(), {lr = 0.1, momentum = 0.9})
local forward = lt.compile(net)
for i = 1, 4 do
  local loss = forward(lt.randn(8, 6)):square():mean()
  opt:zero_grad() loss:backward() opt:step()
  show(loss)
end]],
  writes = [[
local f = lt.compile(function(x, m) x:mul_(2) x[1]:add_(m[0]) m:t():zero_() return x:view(-1), x:cumsum(0) end)
for i = 1, 3 do local x, m = lt.randn(4, 4), lt.randn(4, 4) local a, b = f(x, m) show(a) show(b) show(x) show(m) end]],
  errors = [[
local f = lt.compile(function(x, i) x:add_(1) return x:index_select(0, i):exp() end)
local x = lt.zeros(3, 2)
show(f(x, lt.tensor({0, 2}, {dtype = "int64"})))
print(pcall(f, x, lt.tensor({0, 7}, {dtype = "int64"})))
show(x)]],
  breaks = [[
local f = lt.compile(function(x) local y = x:exp() print("a break") return y:log1p() + lt.rand(3) end)
for i = 1, 3 do show(f(lt.ones(3))) end]],
  freed = [[
local f = lt.compile(function(x, w) return (x * 2):sin() + w:exp() end)
local leaf = {requires_grad = true}
for i = 1, 3 do
  local x, w = lt.randn(3, leaf), lt.randn(3, leaf)
  local y = f(x, w)
  x:free()
  y:sum():backward()
  show(x.grad) show(w.grad)
end
local g = lt.compile(function(x) return x * x end)
local x = lt.randn(3, leaf)
local y = g(x)
x:free()
print((pcall(function() y:sum():backward() end)))]],
  dtypes = [[
local f = lt.compile(function(a, b, c)
  return a * 2, b + b:half(), c:logical_not(), (a / 0):nan_to_num(1), a / 0 * 0
end)
for i = 1, 2 do
  for _, t in ipairs {f(lt.randn(3, 3), lt.randn(3, 3):bfloat16(), lt.randn(3):gt(0))} do
    show(t:double():nan_to_num(5))
  end
end]],
}

for name, text in pairs(clean) do
  test("right code is told nothing: " .. name, function()
    forget()
    local file = program("clean_" .. name, text)
    local eager = run(file, "LUTRA_VERIFY=0")
    local verified, code = run(file)
    equal(code, 0, verified)
    truthy(verified:find("verified\ttrue\t0\t0", 1, true), verified)
    equal((verified:gsub("verified.*", "")), (eager:gsub("verified.*", "")), "what it prints")
    equal(#repros(), 0, "repros")
  end)
end

-- The programs in which each bug shows.
local bugs = {
  relu = [[
local f = lt.compile(function(x, y) return (x * y):relu():exp() + x end)
for i = 1, 3 do show(f(lt.randn(4, 5), lt.randn(4, 5))) end]],
  fusion_store = [[
local f = lt.compile(function(x, y) local a = x * y return a:exp(), a:sin() + 1 end)
for i = 1, 3 do local a, b = f(lt.randn(4, 5), lt.randn(4, 5)) show(a) show(b) end]],
  reduction_last = [[
local f = lt.compile(function(x) return (x * x):exp():sum(1):log() end)
for i = 1, 3 do show(f(lt.randn(4, 5))) end]],
  cse_attribute = [[
local f = lt.compile(function(x) return x:sum(0) * 2 + x:sum(1) end)
for i = 1, 3 do show(f(lt.randn(5, 5))) end]],
  dce_write = [[
local f = lt.compile(function(x, m) m:mul_(0.9):add_(x) return (x * 2):exp() end)
local m = lt.zeros(4, 4)
for i = 1, 3 do show(f(lt.randn(4, 4), m)) show(m) end]],
  view_stride = [[
local f = lt.compile(function(x, y) return (x:t() * y):exp() end)
for i = 1, 3 do show(f(lt.randn(5, 5), lt.randn(5, 5))) end]],
  broadcast_index = [[
local f = lt.compile(function(x, b) return ((x + b) * x):tanh() end)
for i = 1, 3 do show(f(lt.randn(4, 5), lt.randn(5))) end]],
  memory_reuse = [[
local f = lt.compile(function(x, w)
  local a = x:matmul(w)
  local b = a:matmul(w)
  return b:matmul(w):matmul(a):matmul(b)
end)
for i = 1, 3 do show(f(lt.randn(6, 6), lt.randn(6, 6))) end]],
  recompute_operand = [[
local f = lt.compile(function(x, y, w)
  local a, b = x:tanh(), y:sigmoid()
  local c = a * x
  return (c:matmul(w) * c + b):matmul(w) * c * b
end)
for i = 1, 3 do show(f(lt.randn(64, 64), lt.randn(64, 64), lt.randn(64, 64))) end]],
  guard = [[
local mode
local f = lt.compile(function(x) if mode == "exp" then return x:exp() end return x:sin() end)
for i = 1, 4 do mode = i < 3 and "exp" or "sin" show(f(lt.randn(4))) end]],
}

test("each bug is noticed, its program has eager's results, its repro becomes small", function()
  local rows = {}
  for name, text in pairs(bugs) do
    forget()
    local file, bug = program("bug_" .. name, text), "LUTRA_INJECT=" .. name
    local right = run(file, "LUTRA_VERIFY=0")
    local wrong = run(file, "LUTRA_VERIFY=0 " .. bug)
    truthy(wrong:gsub("verified.*", "") ~= right:gsub("verified.*", ""), name .. ": the bug shows nowhere\n" .. wrong)
    local out, code = run(file, bug)
    equal(code, 0, name .. ": " .. out)
    local warnings = select(2, out:gsub("lutra: [^\n]*; repro: [^\n]*\n", ""))
    equal(warnings, 1, name .. ": warnings\n" .. out)
    equal(#repros(), 1, name .. ": repros\n" .. out)
    truthy(out:find("bug_" .. name .. ".lua:%d+: compiled code"), name .. ": the place\n" .. out)
    equal((out:gsub("lutra: [^\n]*\n", ""):gsub("verified.*", "")), (right:gsub("verified.*", "")), name)
    local repro, small = repros()[1], base .. "/" .. name .. ".repro"
    local again, failed = run("repro " .. repro, bug)
    equal(failed, 1, name .. ": lutra repro\n" .. again)
    if name ~= "guard" then
      local fixed, good = run("repro " .. repro)
      equal(good, 0, name .. ": lutra repro without the bug\n" .. fixed)
    end
    local minified, done = run("minify " .. repro .. " -o " .. small, bug)
    equal(done, 0, name .. ": lutra minify\n" .. minified)
    local ops = tonumber(minified:match("(%d+) ops?: "))
    truthy(ops and ops <= 5, name .. ": ops\n" .. minified)
    if os.getenv("LUTRA_TEST_TABLE") then
      local function size(path) return (shell("stat -c %s " .. path):gsub("%s", "")) end
      local noticed = out:match("lutra: [^\n]-: (compiled code [^\n;]*)")
      rows[#rows + 1] = ("| %s | %s | %s -> %d | %s -> %s |"):format(name, noticed:gsub("%(([^,]+), [^)]*%)", "(%1)"),
        again:match("(%d+) ops?"), ops, size(repro), size(small))
    end
    equal(select(2, run("repro " .. small, bug)), 1, name .. ": the small one")
  end
  table.sort(rows)
  if #rows > 0 then print("| bug | noticed | ops | bytes of the repro |\n| --- | --- | --- | --- |") end
  for _, row in ipairs(rows) do print(row) end
end)

test("bugs reach the functions of a graph", function()
  local text = [[
local f = lt.compile(function(x, y)
  return lt.cond(x[0][0]:ge(0), function(x, y) return (x * y):relu():sum(1) end,
    function(x, y) return (x - y):relu():sum(1) end, x, y)
end)
for i = 1, 3 do show(f(lt.rand(4, 5), lt.randn(4, 5))) end]]
  for _, bug in ipairs {"relu", "reduction_last"} do
    forget()
    local file = program("function", text)
    local right, out = run(file, "LUTRA_VERIFY=0"), run(file, "LUTRA_INJECT=" .. bug)
    truthy(out:find("compiled code differs", 1, true), bug .. ": it is not noticed\n" .. out)
    equal((out:gsub("lutra: [^\n]*\n", ""):gsub("verified.*", "")), (right:gsub("verified.*", "")), bug)
  end
end)

test("bugs in a forward, a backward and a step that writes: the program goes on as eager does", function()
  local text = [[
local w = lt.randn(5, 5, {requires_grad = true})
local f = lt.compile(function(x) return (x:matmul(w):relu() * x):exp():sum(1) end)
for i = 1, 3 do f(lt.randn(4, 5)):sum():backward() show(w.grad) end]] .. "\n" .. clean.train
  for _, bug in ipairs {"relu", "reduction_last", "dce_write", "memory_reuse", "fusion_store"} do
    forget()
    local file = program("mixed", text)
    local right, out = run(file, "LUTRA_VERIFY=0"), run(file, "LUTRA_INJECT=" .. bug)
    truthy(out:find("compiled code differs", 1, true), bug .. ": it is not noticed\n" .. out)
    equal((out:gsub("lutra: [^\n]*\n", ""):gsub("verified.*", "")), (right:gsub("verified.*", "")), bug)
    for _, repro in ipairs(repros()) do
      local minified, done = run("minify " .. repro .. " -o " .. base .. "/small.repro", "LUTRA_INJECT=" .. bug)
      equal(done, 0, bug .. ": " .. minified)
      truthy(tonumber(minified:match("(%d+) ops?: ")) <= 5, bug .. ": ops\n" .. minified)
    end
  end
end)

test("where the compiler fails, the function runs eagerly, and there is a repro", function()
  forget()
  local file = program("crash", [[
local f = lt.compile(function(x) return (x + 1):relu():exp():sum(0) * 2 end)
for i = 1, 3 do show(f(lt.randn(4, 5))) end
io.stderr:write("internal errors: ", lt.counters().stats.internal_errors, "\n")]])
  local right, out = run(file, "LUTRA_VERIFY=0"), run(file, "LUTRA_VERIFY=0 LUTRA_INJECT=crash")
  equal(select(2, out:gsub("lutra: internal error", "")), 1, out)
  truthy(out:find("internal errors: 1\n", 1, true), out)
  truthy(right:find("internal errors: 0\n", 1, true), right)
  equal(#repros(), 1, out)
  truthy(out:find("repro: " .. repros()[1], 1, true), out)
  equal(out:match("(0x.*)verified"), right:match("(0x.*)verified"))
  local again, failed = run("repro " .. repros()[1], "LUTRA_INJECT=crash")
  equal(failed, 1, again)
  truthy(again:find("the compiler fails: the bug 'crash'", 1, true), again)
  local minified = run("minify " .. repros()[1] .. " -o " .. base .. "/crash.repro", "LUTRA_INJECT=crash")
  truthy(minified:find("\n1 op: ", 1, true), minified)
  equal(select(2, run("repro " .. base .. "/crash.repro")), 0, "without the bug")
end)

test("one call of n is verified, from the call on that asks for it", function()
  local out = run(write("some", [[
local f = lt.compile(function(x) return x:exp() + 1 end)
for i = 1, 3 do f(lt.ones(2)) end
print(lt.counters().verify.calls)
lt.config.verify = 2
for i = 1, 4 do f(lt.ones(2)) end
print(lt.counters().verify.calls)
lt.config.verify = 0
for i = 1, 4 do f(lt.ones(2)) end
print(lt.counters().verify.calls, lt.config.verify)
print(pcall(function() lt.config.verify = -1 end))]]), "LUTRA_VERIFY=0")
  truthy(out:find("^0\n2\n2\t0\nfalse\t[^\n]*config: verify must be a whole number of at least 0, got %-1"), out)
end)

test("a file that is damaged, cut or no repro is told so", function()
  forget()
  run(program("whole", bugs.relu), "LUTRA_INJECT=relu")
  local whole = h.read(repros()[1])
  local function told(bytes, message)
    local out, code = run("repro " .. h.write(base .. "/damaged.repro", bytes))
    equal(code, 1, out)
    truthy(out:find("lutra: " .. message, 1, true), out)
  end
  told("", "repro: this is no repro file")
  told("return 1\n", "repro: this is no repro file")
  told((whole:gsub("repro 1", "repro 9", 1)), "repro: the file is of another version of Lutra")
  told(whole:sub(1, 20), "repro: the file is damaged: it ends early")
  told(whole:sub(1, -2), "repro: the file is damaged: its checksum is another one")
  told(whole .. "x", "repro: the file is damaged: its checksum is another one")
  for _, at in ipairs {40, 200, #whole - 3} do
    told(whole:sub(1, at) .. string.char((whole:byte(at + 1) + 1) % 256) .. whole:sub(at + 2),
      "repro: the file is damaged: its checksum is another one")
  end
  local out, code = run("repro " .. base .. "/missing.repro")
  equal(code, 1, out)
  truthy(out:find("missing.repro: No such file or directory", 1, true), out)
  truthy(run("repro"):find("repro: usage: lutra repro FILE", 1, true), "usage")
  truthy(run("minify a b"):find("minify: usage: lutra minify FILE [-o OUT]", 1, true), "usage")
end)

test("an unknown bug is told with those there are", function()
  local out, code = run("-e ''", "LUTRA_INJECT=relu,reul")
  equal(code, 2, out)
  truthy(out:find("LUTRA_INJECT: unknown bug 'reul' (there are: relu, fusion_store, ", 1, true), out)
end)

h.finish()
