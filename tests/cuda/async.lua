-- Tests compilation in the background on a GPU: the bits are the same before and after, also from a thread that has not
-- used the device before; programs that end while NVRTC compiles.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local prelude = [[
local nn = lt.nn
lt.manual_seed(7)
local function show(t) print(("%a"):format(t:detach():double():sum():item())) end
local net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.25), nn.Linear(16, 3)):to("cuda")
local opt = lt.optim.SGD(net:parameters(), {lr = 1e-2, momentum = 0.9})
local function step_of(model)
  return function(x, y)
    local loss = nn.functional.cross_entropy(model(x), y)
    opt:zero_grad() loss:backward() opt:step()
    return loss
  end
end
]]
local loop = [[
for i = 1, 7 do
  if i == 4 then lt.wait_compiled() end
  show(step(lt.randn(8, 6, {device = "cuda"}), lt.randint(0, 3, {8}, {device = "cuda"})))
end
for _, p in ipairs(net:parameters()) do show(p) end
print("counted", lt.counters().async.ready, lt.counters().async.failed)]]

local function run(text, environment)
  local file = h.write(base .. "/program.lua", prelude .. text)
  local command = "env LUTRA_CACHE=off %s timeout -s KILL 300 %s %s 2>&1; echo \"rc $?\""
  return shell(command:format(environment or "", lutra, file)):match("^(.*)rc (%d+)%s*$")
end
local function numbers(out) return (out:gsub("counted.*", "")) end

for name, step in pairs {
  whole = "local step = lt.compile(step_of(net))\n", outside = "local step = step_of(lt.compile(net))\n",
} do
  test("eager's bits: " .. name, function()
    local eager = run("local step = step_of(net)\n" .. loop)
    local out = run(step .. loop, "LUTRA_ASYNC=1")
    equal(numbers(out), numbers(eager))
    truthy(out:find("counted\t[12]\t0"), out) -- with and without gradients
  end)
end

test("a program may end while it compiles", function()
  for _, last in ipairs {"", "os.exit(0)"} do
    local out, code = run([[
local step = lt.compile(step_of(net), {wait = false})
show(step(lt.randn(8, 6, {device = "cuda"}), lt.randint(0, 3, {8}, {device = "cuda"})))
]] .. last, "LUTRA_CUDA_INTERPRET=0")
    equal(code, "0", out)
  end
end)

h.finish()
