-- Tests programs over a stream of calls in which integers change, sizes 0 and 1 included: eager's results, and at most
-- one specialised graph and two more.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, outcome = h.test, h.equal, h.truthy, h.outcome

local SIZES = {5, 3, 0, 1, 8, 2, 7, 4, 19, 18, 8, 9, 10, 11, 12, 13, 6, 15, 16, 17, 14, 3, 2, 0, 1, 19, 5, 11, 8, 4, 16,
  20, 23, 30, 25, 27}
local function size(i) return SIZES[(i - 1) % #SIZES + 1] end
local function rows(n) return lt.arange(n * 3):view(n, 3):float() + 1 end

-- most: the number of graphs; breaks: the number of graph breaks.
local function stream(name, f, arguments, most, breaks)
  test(name, function()
    lt.reset()
    local g = lt.compile(f)
    for i = 1, #SIZES do
      local function run(call)
        lt.manual_seed(i)
        math.randomseed(i)
        return outcome(call, arguments(i))
      end
      equal(run(g), run(f), "call " .. i)
    end
    local graphs, reasons = lt.counters().stats.unique_graphs, lt._report(g).break_reasons
    truthy(graphs <= (most or 3), graphs .. " graphs")
    truthy(#reasons <= (breaks or 0), reasons[1] and reasons[1].reason)
  end)
end

stream("for i = 1, x.shape[1]", function(x)
  local y = x * 2
  for i = 1, x.shape[1] do y = y * 1.5 + i end
  return y
end, function(i) return rows(size(i)) end)
stream("for i = 1, x.shape[1] over x[i - 1]", function(x)
  local y = lt.zeros(3)
  for i = 1, x.shape[1] do y = y * 1.5 + x[i - 1] end
  return y
end, function(i) return rows(size(i)) end)

h.finish()
