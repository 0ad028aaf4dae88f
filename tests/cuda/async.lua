-- Tests compilation in the background on a GPU: the bits are the same before and after, also from a thread that has not
-- used the device before; programs that end while NVRTC compiles.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local loop = [[
for i = 1, 7 do
  if i == 4 then lt.wait_compiled() end
  next_step(step)
end
for _, p in ipairs(net:parameters()) do show(p) end
print("counted", lt.counters().async.ready, lt.counters().async.failed)]]

local function run(text, environment)
  local file = h.write(base .. "/program.lua", h.gpu_training .. text)
  local command = "env LUTRA_CACHE=off %s timeout -s KILL 300 %s %s 2>&1; echo \"rc $?\""
  return shell(command:format(environment or "", lutra, file)):match("^(.*)rc (%d+)%s*$")
end
local function numbers(out) return (out:gsub("counted.*", "")) end

-- A step around a compiled module has three graphs: the module with gradients, without them, and the update of the
-- optimiser, which a GPU compiles by default.
for name, case in pairs {
  whole = {step = "local step = lt.compile(step_of(net))\n", counted = "counted\t[12]\t0"},
  outside = {step = "local step = step_of(lt.compile(net))\n", counted = "counted\t[123]\t0"},
} do
  test("eager's bits: " .. name, function()
    local eager = run("local step = step_of(net)\n" .. loop)
    local out = run(case.step .. loop, "LUTRA_ASYNC=1")
    equal(numbers(out), numbers(eager))
    truthy(out:find(case.counted), out)
  end)
end

test("a program may end while it compiles", function()
  for _, last in ipairs {"", "os.exit(0)"} do
    local out, code = run([[
local step = lt.compile(step_of(net), {wait = false})
next_step(step)
]] .. last, "LUTRA_CUDA_INTERPRET=0")
    equal(code, "0", out)
  end
end)

h.finish()
