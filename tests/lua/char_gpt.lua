-- Tests scripts/models/char_gpt.lua as a program: it trains, samples and saves. A resumed run continues exactly where
-- the other one stopped.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local run, result, directory = h.model "char_gpt.lua --d 16 --heads 2 --layers 1 --length 16 --batch 4 --sample 5"

test("a resumed run is the uninterrupted one", function()
  local checkpoint = directory .. "/c.safetensors"
  local whole, text = result "--steps 6 --sample-every 3"
  truthy(text:find("-- step 3, loss", 1, true) and text:find("-- step 6, loss", 1, true), text)
  result("--steps 4 --checkpoint " .. checkpoint)
  local resumed = result("--steps 6 --checkpoint " .. checkpoint .. " --resume")
  equal(resumed, whole, "the loss of step 6")
end)

test("eager and compiled give the same loss", function()
  equal(result "--steps 3 --eager", (result "--steps 3"))
end)

test("--help is no mistake", function()
  local text, status = run("--help")
  equal(status, 0)
  truthy(text:find("^usage: lutra scripts/models/char_gpt.lua ")
    and text:find("[--checkpoint FILE.safetensors]", 1, true), text)
end)

test("bad options are refused", function()
  for options,
    message in pairs {["--steps"] = "cannot read --steps", ["--colour red"] = "unknown option --colour\nusage:",
    ["--resume"] = "--checkpoint",
                                 ["--data /nowhere"] = "/nowhere", ["--data /dev/null"] = "letters",
                                 ["--checkpoint a.npy"] = ".safetensors",
                                   ["--checkpoint /dev/null/a.safetensors"] = "/dev/null/a.safetensors: "} do
    local text, status = run(options)
    equal(status, 2, options)
    truthy(text:find(message, 1, true), text)
  end
end)

os.execute("rm -rf " .. directory)
h.finish()
