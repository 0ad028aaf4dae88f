-- Tests lutra-opt on the text of a captured graph: each stage is the one of the program's own compilation.
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local opt = lutra:gsub("[^/]*$", "") .. "lutra-opt"
local found = io.open(opt, "rb")
if not found then os.exit(77) end
found:close()

local passes = {"functionalise", "unroll", "join_parts", "decompose", "cse", "dce", "sink_views", "recompute",
  "channels_last", "pad_rows"}

-- The texts of the only graph of a program, by stage.
local function stages_of(program)
  local file = h.write(base .. "/program.lua", 'local lt = require "lutra"\n' .. program)
  local text = shell(("LUTRA_LOGS=graph,%s,lower %s %s 2>&1"):format(table.concat(passes, ","), lutra, file))
  local texts = {}
  for stage, body in text:gmatch("%[([%w_]+)%] (%l+ {\n.-\n}\n)") do
    truthy(not texts[stage], "a second graph: " .. stage)
    texts[stage] = body
  end
  return texts, text
end

local function run(options, text)
  h.write(base .. "/text", text)
  return shell(("%s %s %s/text 2>&1"):format(opt, options, base))
end

local programs = {train = h.training:gsub("for i = .-do", "for i = 1, 2 do"), scan = [[
local function cell(h, x) return (h * 0.5 + x):tanh(), h end
local f = lt.compile(function(h, x) local last, all = lt.scan(cell, h, x) return last:sum() + all:mean() end)
f(lt.ones(3), lt.ones(100, 3))]], writes = [[
local f = lt.compile(function(x, s)
  x:mul_(s)
  x[1]:add_(lt.rand(4))
  return lt.nn.functional.gelu(x):view(-1):cumsum(0)
end, {dynamic = true})
f(lt.ones(3, 4), 2)]]}

for name, program in pairs(programs) do
  test("each stage of " .. name, function()
    local texts, all = stages_of(program)
    truthy(texts.graph and texts.lower, all)
    for _, stage in ipairs {"graph", "lower", unpack(passes)} do
      equal(run("--stage " .. stage, texts.graph), texts[stage], stage)
    end
    equal(run("--pass functionalise --pass join_parts --pass decompose", texts.graph), texts.decompose)
    equal(run("", texts.lower), texts.lower, "lowered text")
    local artifact = run("--stage artifact", texts.graph)
    equal(run("--stage artifact", artifact), artifact, "an artifact")
    equal(run("--stage schedule", artifact), run("--stage schedule", texts.graph), "its plan")
  end)
end

test("what it refuses", function()
  local text = stages_of(programs.writes).graph
  truthy(run("--stage shedule", text):find("unknown stage 'shedule' (known: graph, ", 1, true))
  truthy(run("--pass see", text):find("unknown pass 'see' (known: functionalise, ", 1, true))
  truthy(run("--without decompose", text):find("no pass that may be left out: 'decompose'", 1, true))
  truthy(run("--stage cse --without cse", text):find("stage 'cse' is left out", 1, true))
  truthy(run("", "graph {\n  %0 = nosuch()\n}"):find("lutra-opt: graph text, line 2: unknown op 'nosuch'", 1, true))
  truthy(run("--nonsense", text):find("lutra-opt: usage: lutra-opt", 1, true))
end)

shell("rm -rf " .. base)
h.finish()
