-- Tests scripts/models/gpt2.lua as a program with small sizes: it trains, in bfloat16, too; a resumed run continues
-- exactly where the other one stopped; it reads its kinds of data.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local run, result,
  directory = h.model "gpt2.lua --d 16 --heads 2 --layers 2 --length 16 --batch 4 --vocabulary 300 --log-every 2"

test("a resumed run is the uninterrupted one, and nothing is compiled twice", function()
  local checkpoint = directory .. "/c.safetensors"
  local whole, text = result "--steps 6 --warmup 2"
  truthy(text:find("step     6  loss", 1, true) and text:find("tokens/s", 1, true), text)
  truthy(tonumber(text:match("recompiles%s+(%d+)")) <= 1, text)
  result("--steps 6 --warmup 2 --save-every 3 --stop-at 4 --save " .. checkpoint)
  equal(lt.load(checkpoint).step, 4)
  equal(result("--steps 6 --warmup 2 --resume --save " .. checkpoint), whole, "the loss of step 6")
end)

test("eager and compiled give the same loss, in bfloat16, too", function()
  for _, kind in ipairs {"", "--bf16", "--untied --clip 0"} do
    equal(result("--steps 4 --eager " .. kind), (result("--steps 4 --compile " .. kind)))
  end
  local exact, half = result "--steps 4", result "--steps 4 --bf16"
  truthy(exact ~= half and math.abs(exact - half) < 0.02, exact .. " and " .. half)
end)

test("it learns", function()
  local last, _, json = result "--steps 60 --lr 1e-2"
  truthy(last < tonumber(json:match('"first_loss": ([%d.]+)')) - 0.2, json)
end)

test("data is bytes, 16-bit numbers or an array", function()
  h.write(directory .. "/a.txt", ("abcd"):rep(30))
  h.write(directory .. "/b.bin", ("a\0b\0c\0d\0"):rep(30))
  lt.save(directory .. "/c.npy", lt.tensor({97, 98, 99, 100}, {dtype = "int64"}):tile({30}))
  local loss = result("--steps 3 --data " .. directory .. "/a.txt")
  equal(result("--steps 3 --data " .. directory .. "/b.bin"), loss)
  equal(result("--steps 3 --data " .. directory .. "/c.npy"), loss)
end)

test("bad options are refused", function()
  for options,
    message in pairs {["--steps"] = "cannot read --steps", ["--colour red"] = "unknown option --colour\nusage:",
    ["--resume"] = "--save", ["--heads 3"] = "--heads",
                                 ["--eager --compile"] = "not both", ["--data /nowhere"] = "/nowhere",
                                   ["--data /dev/null"] = "tokens",
                                 ["--vocabulary 5 --data gpt2.lua"] = "--vocabulary", ["--steps 0"] = "--steps",
                                   ["--device gpu"] = "gpt2: --device gpu: device 'gpu' is unknown",
                                 ["--save a"] = ".safetensors",
                                 ["--save /dev/null/a.safetensors"] = "/dev/null/a.safetensors: "} do
    local text, status = run(options)
    equal(status, 2, options .. text)
    truthy(text:find(message, 1, true), text)
  end
end)

os.execute("rm -rf " .. directory)
h.finish()
