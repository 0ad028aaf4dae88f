-- lutra scripts/bench/misses.lua: measures calls past recompile_limit that no entry serves, beside the same function in
-- eager code: while the entries' guards still run, after they are given up, and if entries serve some of the calls.
-- Blocks of compiled and eager calls alternate. A line has the minima in ns and their ratio. LuaJIT's JIT is off.
local lt = require "lutra"
jit.off()

local function source(text) return assert(loadstring("local lt = ... return " .. text))(lt) end

-- Values that each need their own entry. The first kMet of them are passed before timing.
local kMet, kAll = 16, 116
local x, functions, sizes, slices = lt.randn(4), {}, {}, {}
for i = 1, kAll do
  functions[i] = assert(loadstring(("return function(x) return x + %d end"):format(i)))()
  sizes[i], slices[i] = lt.randn(i + 1), lt.randn(2, i + 1)
end

local cases = {
  {"a callee, one op", "function(f, x) return f(x) end", functions},
  {"a callee, twelve ops", "function(f, x) for _ = 1, 11 do x = x * 2 end return f(x) end", functions},
  {"a size, one op", "function(y) return y + 1 end", sizes, {dynamic = false}},
  {"a size, a decoding step", "function(k) return (lt.cat({k, k}, 0) * k:sum()):softmax(1):sum() end", slices,
    {dynamic = false}},
  {"a callee, a break", "function(f, x) x = f(x) lt.graph_break() return x * 2 end", functions},
  {"a callee, a loop that breaks", [[function(f, x)
    for _ = 1, 4 do
      x = f(x)
      lt.graph_break()
    end
    return x
  end]], functions},
}

-- Returns the least times per call of an eager and of a compiled block. One of `served` calls has a value that an entry
-- serves. Each round makes a new compiled function and does not time its first `skip` calls.
local function compare(case, rounds, skip, served)
  local calls, blocks, values = 96, 40, case[3]
  local function time(f, from)
    local start = os.clock()
    for i = from, from + calls - 1 do
      f(i % served == 0 and values[2] or values[kMet + 1 + i % (kAll - kMet)], x)
    end
    return (os.clock() - start) / calls * 1e9
  end
  local eager, compiled = math.huge, math.huge
  for _ = 1, rounds do
    lt.reset()
    local f, g = source(case[2]), lt.compile(source(case[2]), case[4])
    for _ = 1, 3 do
      for i = 1, kMet do g(values[i], x) end
    end
    for block = 1, math.floor(skip / calls) do time(g, block * calls) end
    for block = 1, blocks do
      eager = math.min(eager, time(f, block * calls))
      compiled = math.min(compiled, time(g, block * calls))
    end
  end
  return eager, compiled
end

print(("%-30s %-24s %7s %9s %6s"):format("what changes", "when", "eager", "compiled", "ratio"))
for _, case in ipairs(cases) do
  local function line(when, ...)
    local eager, compiled = compare(case, ...)
    print(("%-30s %-24s %7.0f %9.0f %6.2f"):format(case[1], when, eager, compiled, compiled / eager))
  end
  line("past the limit", 5, 1000, math.huge)
  line("given up", 3, 10000, math.huge)
  for _, served in ipairs {2, 16, 96} do
    local when = served == 2 and "every 2nd call served" or ("every %dth call served"):format(served)
    line(when, 5, 1000, served)
    line("  in the long run", 3, 16000, served)
  end
end
