-- Tests lt.config.verify on a GPU: correct code gets no report, also if its runs are recorded; a bug is noticed and
-- leaves eager's results.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local text = h.gpu_training .. [[
local step = lt.compile(step_of(net))
for i = 1, 6 do next_step(step) end
for _, p in ipairs(net:parameters()) do show(p) end
local c = lt.counters().verify
print("verified", c.calls, c.mismatches, c.repros)]]
local file = h.write(base .. "/step.lua", text)
local function run(arguments, environment)
  return shell(("env XDG_CACHE_HOME=%s LUTRA_CACHE=on %s %s %s 2>&1"):format(base, environment, lutra, arguments))
end
local function numbers(out) return (out:gsub("lutra: [^\n]*\n", ""):gsub("verified.*", "")) end

test("right code on a GPU is told nothing", function()
  local eager = run(file, "LUTRA_VERIFY=0")
  for every = 1, 3 do
    local out = run(file, "LUTRA_VERIFY=" .. every)
    equal(numbers(out), numbers(eager))
    truthy(out:find("verified\t[1-6]\t0\t0"), out)
  end
end)

test("a bug on a GPU is noticed, and its repro runs", function()
  local right, out = run(file, "LUTRA_VERIFY=0"), run(file, "LUTRA_VERIFY=1 LUTRA_INJECT=relu")
  equal(numbers(out), numbers(right))
  truthy(out:find("verified\t2\t2\t2", 1, true), out)  -- the first step makes the buffers of the momentum
  local repro = out:match("; repro: ([^\n]+)")
  local small = base .. "/small.repro"
  local minified = run("minify " .. repro .. " -o " .. small, "LUTRA_INJECT=relu")
  truthy(minified:find("\n1 op: ", 1, true), minified)
  truthy(run("repro " .. small, "LUTRA_INJECT=relu"):find("compiled code differs from eager", 1, true), "the small one")
  truthy(run("repro " .. small, "CUDA_VISIBLE_DEVICES= FAKE_CUDA_DEVICES=0"):find("lutra: ", 1, true), "without a GPU")
end)

h.finish()
