-- Tests lt.profile, lutra explain (as text and as JSON), lutra tune --limits.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, near, raises = h.test, h.equal, h.truthy, h.near, h.raises

local run, program = h.shell, h.program()

local function kernel(p, name)
  for _, k in ipairs(p.kernels) do
    if k.name:find(name, 1, true) then return k end
  end
  error("no kernel " .. name .. " in\n" .. tostring(p), 2)
end

local function narrow(text)
  for line in text:gmatch("[^\n]+") do truthy(#line <= 80, "wider than 80 columns: " .. line) end
end

test("eager and compiled launches: bytes, flops, lines, results", function()
  local x, w = lt.rand(64, 128), lt.rand(128, 32)
  local function f(a, b) return a:mm(b), a:size(0) end
  for _, g in ipairs {f, lt.compile(f)} do
    g(x, w)
    local p = lt.profile(g)(x, w)
    equal(p.result.n, 2)
    truthy(p.result[1]:equal(x:mm(w)))
    equal(p.result[2], 64)
    local k = kernel(p, "mm")
    equal(k.calls, 1)
    equal(k.flops, 2 * 64 * 128 * 32)
    equal(k.bytes, 4 * (64 * 128 + 128 * 32 + 64 * 32))
    truthy(k.ms > 0 and k.ms <= p.total_ms)
    near(k.gbps, k.bytes / k.ms * 1e-6, 1e-9 * k.gbps)
    truthy(k.file:find("profile.lua", 1, true))
    equal(k.line, debug.getinfo(f, "S").linedefined)
    narrow(tostring(p))
  end
end)

test("bytes of fused kernels, broadcasts and reductions", function()
  local x, row = lt.rand(1000, 100), lt.rand(100)
  local f = lt.compile(function(x, row) return (x * row + 1):relu() end)
  f(x, row)
  local p = lt.profile(f)(x, row)
  equal(#p.kernels, 1)
  equal(p.kernels[1].bytes, 4 * (2 * 1000 * 100 + 100))
  local g = lt.compile(function(x) return x:softmax(1) end)
  g(x)
  p = lt.profile(g)(x)
  local bytes = 0
  for _, k in ipairs(p.kernels) do bytes = bytes + k.bytes end
  truthy(bytes >= 4 * 2 * 1000 * 100 and bytes < 4 * 2.2 * 1000 * 100 * #p.kernels, bytes)
  -- Calls that ran without a profile are not counted later.
  local calls = 0
  for _, k in ipairs(lt.profile(function() for _ = 1, 5 do g(x) end end)().kernels) do calls = calls + k.calls end
  equal(calls % 5, 0)
end)

test("compilation is told apart from kernels, and warmup does without it", function()
  local calls = 0
  local function new() -- a kernel that nothing has compiled before
    return lt.compile(function(x)
      calls = calls + 1
      return ((x * 3 + 1):sin() * (x - 2):cos()):tanh()
    end)
  end
  local x = lt.rand(33, 7)
  local cold = lt.profile(new())(x)
  equal(calls, 1)
  truthy(cold.compiled_kernels >= 1 and cold.compile_ms > 0 and cold.compile_ms < cold.total_ms)
  truthy(cold.kernel_ms + cold.compile_ms <= cold.total_ms, tostring(cold))
  truthy(tostring(cold):find("to compile (" .. cold.compiled_kernels .. " new kernel", 1, true), tostring(cold))
  narrow(tostring(cold))
  local eager = lt.profile(function(x) return x:expm1():log1p():erfinv() end)(lt.rand(5, 1, 3))
  truthy(eager.compile_ms > 0 and eager.kernel_ms + eager.compile_ms <= eager.total_ms)
  local warm = lt.profile(new(), {warmup = 2})(x)
  equal(calls, 4)
  equal(warm.compile_ms, 0)
  equal(warm.compiled_kernels, 0)
  truthy(not tostring(warm):find("compile", 1, true))
  raises("profile: unknown option 'warm' (known: warmup)", lt.profile, print, {warm = 1})
  raises("profile: warmup must be a whole number", lt.profile, print, {warmup = -1})
end)

test("errors pass, and end the profile", function()
  raises("boom", lt.profile(function() error("boom") end))
  raises("a function or a module is needed", lt.profile, 3)
  equal(#lt.profile(function() end)().kernels, 0)
  local m = lt.nn.Linear(3, 2)
  truthy(#lt.profile(m)(lt.rand(4, 3)).kernels > 0)
end)

local folder = h.folder()
local script = h.write(folder .. "/script.lua", [[
local step = lt.compile(function(x, n)
  local y = (x * 2 + 1):relu():sum()
  if y:item() > 1e9 then print("large") end
  return y * n
end)
for i = 1, 3 do step(lt.ones(4, i + 2), i) end
local unused = lt.compile(function() end)
print("out", ...)
if ... == "exit" then os.exit(0) end
]])

-- Enough JSON for a test.
local function parse(text)
  local at = 1
  local value
  local function skip() at = text:match("^%s*()", at) end
  local function expect(c)
    skip()
    if text:sub(at, at) ~= c then error("expected " .. c .. " at " .. at .. ": " .. text:sub(at, at + 20)) end
    at = at + 1
  end
  local function string_()
    expect '"'
    local out = {}
    while true do
      local c = text:sub(at, at)
      if c == '"' then break end
      if c == "\\" then
        at = at + 1
        c = ({n = "\n", t = "\t", r = "\r"})[text:sub(at, at)] or text:sub(at, at)
        if c == "u" then at = at + 4 end
      end
      if c == "" then error "open string" end
      out[#out + 1] = c
      at = at + 1
    end
    at = at + 1
    return table.concat(out)
  end
  local function sequence(close, item)
    local out = {}
    at = at + 1
    skip()
    if text:sub(at, at) == close then
      at = at + 1
      return out
    end
    while true do
      item(out)
      skip()
      local c = text:sub(at, at)
      at = at + 1
      if c == close then return out end
      if c ~= "," then error("expected , at " .. at) end
    end
  end
  function value()
    skip()
    local c = text:sub(at, at)
    if c == '"' then return string_() end
    if c == "[" then return sequence("]", function(out) out[#out + 1] = value() end) end
    if c == "{" then
      return sequence("}", function(out)
        skip()
        local key = string_()
        expect ":"
        out[key] = value()
      end)
    end
    local word = text:match("^[%w%.%+%-]+", at)
    at = at + #word
    if word == "true" or word == "false" then return word == "true" end
    if word == "null" then return nil end
    return assert(tonumber(word))
  end
  local out = value()
  skip()
  equal(at, #text + 1, "the end of the document")
  return out
end

test("explain for people", function()
  local text = run(string.format("%s explain %s a b 2>&1 >/dev/null", program, script))
  for _, wanted in ipairs {"function at ", "3 graphs, 2 graph breaks", "break at ", "script.lua:3", "recompiled at ",
    "compiled, but not called", "kernel"} do
    truthy(text:find(wanted, 1, true), wanted .. " is not in\n" .. text)
  end
  narrow((text:gsub("[^\n]*/[^\n]*", ""))) -- paths are as long as they are
  truthy(run(string.format("%s explain %s a b 2>/dev/null", program, script)):find("^out\ta\tb\n"))
  truthy(run(string.format("%s explain %s exit 2>&1", program, script)):find("2 graph breaks", 1, true))
end)

test("explain as JSON: one document, alone on standard output", function()
  for _, argument in ipairs {"", "exit"} do
    local doc = parse(run(string.format("%s explain --json %s %s 2>/dev/null", program, script, argument)))
    equal(doc.version, 1) equal(doc.ok, true) equal(doc.script, script)
    equal(#doc.functions, 2)
    local f = doc.functions[1]
    equal(f.ran, true)
    truthy(#f.graphs >= 2 and #f.graphs[1].ops >= 3 and f.graphs[1].kernels >= 1)
    equal(#f.breaks >= 1 and f.breaks[1].line, 3)
    truthy(#f.entries >= 1 and #f.entries[1].guards >= 1 and f.entries[1].guards[1].kind)
    equal(doc.functions[2].ran, false)
    truthy(#doc.kernels >= 1 and doc.kernels[1].ms > 0 and doc.counters.frames.total >= 1)
  end
  local bad = h.write(folder .. "/bad.lua", "error('it \"fails\"')")
  local doc = parse(run(string.format("%s explain --json %s 2>/dev/null", program, bad)))
  equal(doc.ok, false)
  truthy(doc.error:find('it "fails"', 1, true))
end)

test("tune --limits is measured once, and read by profiles", function()
  local env = "XDG_CACHE_HOME=" .. folder .. "/cache "
  local text = run(env .. program .. " tune --limits 2>&1")
  truthy(text:find("GFLOP/s", 1, true) and text:find("limits.txt", 1, true), text)
  local code = h.write(folder .. "/limits.lua", [[
    local x = lt.rand(512, 512)
    local p = lt.profile(function() return x:mm(x), x + 1 end)()
    for _, k in ipairs(p.kernels) do
      print(k.name, k.ratio_to_limit and k.ratio_to_limit > 0 and k.ratio_to_limit < 20)
    end
    print(tostring(p):find("tune", 1, true))
    local half = lt.rand(1024, 1024):to("bfloat16")
    local k = lt.profile(function() return half:mm(half) end, {warmup = 2})().kernels[1]
    print("halves", k.name, k.ratio_to_limit and k.ratio_to_limit < 4)]])
  local said = run(env .. program .. " " .. code .. " 2>&1")
  truthy(said:find("mm\ttrue", 1, true) and said:find("\nnil\n", 1, true), said)
  -- A share of what products of bfloat16 reach: tiles are 6 to 8 times as fast as those of float32.
  truthy(said:find("halves\tmm\ttrue", 1, true), said)
  -- A damaged file counts as none.
  local path = folder .. "/cache/lutra/limits.txt"
  for _, damage in ipairs {"", "version 1\nthreads 99999999\n", "\0\1\2",
    "version 1\ncpu x\nthreads 2\ncache_bytes 1\nread_cache 1 nan\n"} do
    h.write(path, damage)
    said = run(env .. program .. " " .. code .. " 2>&1")
    truthy(said:find("mm\tnil", 1, true) and not said:find("traceback", 1, true), said)
  end
  said = run("LUTRA_CACHE_DIR=/dev/null " .. program .. " tune --limits 2>&1")
  truthy(said:find("lutra: tune: cannot keep the limits: /dev/null/", 1, true), said)
end)

test("LUTRA_LOGS=perf prints rates", function()
  local text = run("LUTRA_LOGS=perf " .. program .. " -e 'local x = lt.rand(100, 100) x:mm(x)' 2>&1")
  truthy(text:find("GB/s", 1, true) and text:find("GFLOP/s", 1, true) and text:find("mm (library)", 1, true), text)
end)

os.execute("rm -rf " .. folder)
test("a value whose parts are read after products is stored once, not for each of them", function()
  local f = lt.compile(function(x, w, b, v)
    local gates, state = x:matmul(w) + b, x:new_zeros(4, 16)
    for t = 0, 7 do
      local reset, fresh = unpack(gates:select(1, t):chunk(2, -1))
      local r = (reset + state:mm(v)):sigmoid()
      state = (fresh + r * state):tanh()
    end
    return state
  end)
  local x, w, b, v = lt.rand(4, 8, 16), lt.rand(16, 32), lt.rand(32), lt.rand(16, 16)
  local p = lt.no_grad(function()
    f(x, w, b, v)
    return lt.profile(function() f(x, w, b, v) end)()
  end)
  local most = 0
  for _, k in ipairs(p.kernels) do most = math.max(most, k.bytes) end
  truthy(most <= 4 * 3 * 4 * 8 * 32, most) -- a kernel for all parts reads and writes gates once
end)

h.finish()
