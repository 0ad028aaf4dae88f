-- Programs whose backwards are outside of compiled functions, run eagerly and with compiled autograd.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local M = {}

function M.leaf(...) return lt.randn({...}, {requires_grad = true}) end

local function show(v)
  if type(v) == "string" then return (v:gsub("^[^ ]*:%d+: ", "")) end
  if not lt.is_tensor(v) then return tostring(v) end
  return table.concat(v.shape, "x") .. ": " .. table.concat(v:detach():reshape(-1):totable(), " ")
end

-- program(see) is run eagerly, then with compiled autograd; what it sees must be the same. Gives the counters.
function M.compare(program)
  local function run(on)
    lt.reset()
    lt.manual_seed(7)
    lt.config.compiled_autograd = on
    local seen = {}
    local ok, problem = pcall(program, function(...)
      for i = 1, select("#", ...) do seen[#seen + 1] = show((select(i, ...))) end
    end)
    lt.config.compiled_autograd = false
    truthy(ok, problem)
    return table.concat(seen, "\n")
  end
  local want = run(false)
  equal(run(true), want)
  return lt.counters().compiled_autograd
end

-- graphs: how many there are to be; calls: of them.
function M.same(name, graphs, calls, program)
  test(name, function()
    local n = M.compare(program)
    equal(n.graphs, graphs, "graphs")
    equal(n.calls, calls, "calls")
  end)
end

-- Tests Lua code that is called between graphs. why: a pattern that a reason in the counters matches.
function M.called(name, why, program)
  test(name, function()
    local found = false
    for reason in pairs(M.compare(program).eager) do found = found or reason:find(why) end
    truthy(found, "no reason is like " .. why)
  end)
end

-- run(factor) makes a backward that reads `factor` in Lua code of its own. None is alive after some of them.
function M.holds_nothing(name, run)
  test(name, function()
    local gone = setmetatable({}, {__mode = "k"})
    lt.config.compiled_autograd = true
    local function once(i)
      local factor = lt.ones(4) * i
      gone[factor] = true
      run(factor)
    end
    for i = 1, 6 do once(i) end
    lt.config.compiled_autograd = false
    for _ = 1, 3 do collectgarbage() end -- finalizers run between
    equal(next(gone) == nil, true)
  end)
end

return M
