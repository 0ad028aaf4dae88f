-- Trains a small GPT on the characters of a text, and prints samples of the model from time to time. The train step is
-- one compiled graph.
--   lutra scripts/models/char_gpt.lua [--data FILE] [--steps 500] [--sample-every 100]
--     [--checkpoint FILE.safetensors] [--resume] [--batch 16] [--length 128] [--d 128] [--heads 4] [--layers 4]
--     [--lr 1e-3] [--seed 0] [--threads N] [--sample 200] [--eager] [--json FILE] [--device cpu|cuda]
-- Without --data it reads the repository's own texts. --checkpoint writes FILE at every sample and at the end; --resume
-- goes on from it.
local lt = require "lutra"
local nn, optim = lt.nn, lt.optim
local here = arg[0]:match("^(.*/)[^/]*$") or "./"
local common, GPT = dofile(here .. "common.lua"), dofile(here .. "gpt.lua")
local refuse = common.refuser("char_gpt")

local options = {steps = 500, ["sample-every"] = 100, batch = 16, length = 128, d = 128, heads = 4, layers = 4,
  lr = 1e-3, seed = 0,
                 sample = 200}
local flags = {resume = true, eager = true}
local kinds = {data = tostring, checkpoint = tostring, json = tostring, threads = tonumber, device = tostring}
common.read_options(options, kinds, flags, refuse)
if options.resume and not options.checkpoint then refuse("--resume needs --checkpoint FILE") end
if options.checkpoint then common.check_writable(options.checkpoint, refuse) end

-- The text as numbers, one per byte -----------------------------------------------------------------------------------

local text
if options.data then
  text = common.read_file(options.data, refuse)
else
  local parts = {} -- a bundle has some of them
  for _, name in ipairs {"README.md", "stdlib/README.md", "stdlib/nn/init.lua", "stdlib/nn/module.lua",
    "stdlib/optim/adam.lua",
                         "stdlib/optim/optimizer.lua", "scripts/models/char_gpt.lua", "scripts/models/gpt.lua"} do
    local file = io.open(here .. "../../" .. name, "rb")
    parts[#parts + 1] = file and file:read("*a")
    if file then file:close() end
  end
  if #parts == 0 then refuse("none of the repository's texts lies there: name a text by --data FILE") end
  text = table.concat(parts, "\n")
end

local saved = options.resume and lt.load(options.checkpoint) or nil
local letters, number_of = {}, {}
local function add_letter(c)
  if not number_of[c] then
    number_of[c] = true
    letters[#letters + 1] = c
  end
end
if saved then
  for _, byte in ipairs(saved.letters:totable()) do add_letter(string.char(byte)) end
else
  for c in text:gmatch(".") do add_letter(c) end
end
table.sort(letters)
for i, c in ipairs(letters) do number_of[c] = i - 1 end

-- Leaves out letters that a resumed model does not know.
local function encode(piece)
  local numbers = {}
  for i = 1, #piece do numbers[#numbers + 1] = number_of[piece:sub(i, i)] end
  return numbers
end

local length = options.length
if saved then
  for name, value in pairs(saved.sizes) do options[name] = value end
  length = options.length
end
local numbers = encode(text)
if #numbers < length + 2 then refuse("the text has ", #numbers, " letters: more than ", length + 1, " are needed") end
local data = lt.tensor(numbers, {dtype = "int64"})

local batch = common.batches(data, options.seed, options.batch, length)

-- The network and one step of training --------------------------------------------------------------------------------

lt.manual_seed(options.seed)
local sizes = {d = options.d, heads = options.heads, layers = options.layers, length = length}
local net = GPT {d = sizes.d, heads = sizes.heads, layers = sizes.layers, vocabulary = #letters, length = length}
local opt = optim.AdamW(net:parameters(), {lr = options.lr})
local first_step = 1
if saved then
  net:load_state_dict(saved.model)
  opt:load_state_dict(saved.optimizer)
  first_step = saved.step + 1
end

local function train_step(x, y)
  local logits = net(x)
  local loss = nn.functional.cross_entropy(logits:view(-1, logits:size(2)), y:view(-1))
  opt:zero_grad()
  loss:backward()
  opt:step()
  return loss
end
local step = options.eager and train_step or lt.compile(train_step)

-- The input always has `length` letters, of which the first `count` count. Attention is causal, so the others do not
-- affect their logits.
local function next_letter(ids, last) return net(ids)[{0, last}]:softmax(-1) end
local predict = options.eager and next_letter or lt.compile(next_letter)

local function sample(prompt, count)
  local ids, out = encode(prompt), {prompt}
  for _ = 1, count do
    local window, first = {}, math.max(1, #ids - length + 1)
    for i = 1, length do window[i] = ids[first + i - 1] or 0 end
    local last = lt.tensor(math.min(#ids, length) - 1, {dtype = "int64"})
    local weights = lt.no_grad(predict, lt.tensor({window}, {dtype = "int64"}), last):totable()
    local left, chosen = lt.rand(1):item(), #weights
    for i, w in ipairs(weights) do
      left = left - w
      if left < 0 then
        chosen = i
        break
      end
    end
    ids[#ids + 1] = chosen - 1
    out[#out + 1] = letters[chosen]
  end
  return table.concat(out)
end

local function save(at)
  local bytes = lt.tensor({table.concat(letters):byte(1, -1)}, {dtype = "uint8"})
  lt.save(options.checkpoint,
    {model = net:state_dict(), optimizer = opt:state_dict(), step = at, letters = bytes, sizes = sizes})
end

-- Training ------------------------------------------------------------------------------------------------------------

local parameters = common.parameters_of(net)
print(string.format("%d letters, %d of them different; %d parameters; steps %d to %d of %d x %d letters", #numbers,
  #letters, parameters,
  first_step, options.steps, options.batch, length))

local function steps()
  local i = first_step - 1
  return function()
    i = i + 1
    if i <= options.steps then return i end
  end
end

local losses, times, first_ms = {}, {}, nil
local bar = lt.progress(steps(), {desc = "train", total = math.max(options.steps - first_step + 1, 0)})
for i in bar do
  opt.param_groups[1].lr = options.lr * math.min(1, i / 20) -- a number that changes, and compiles nothing anew
  local x, y = batch(i)
  local start = lt.perf_counter()
  local loss = step(x, y):item()
  local ms = (lt.perf_counter() - start) * 1e3
  if first_ms then times[#times + 1] = ms end
  first_ms = first_ms or ms
  losses[#losses + 1] = loss
  if loss ~= loss then refuse("the loss is not a number at step ", i) end
  if i % 10 == 0 then bar:set(string.format("loss %.3f  %.0f tokens/s", loss, options.batch * length / ms * 1e3)) end
  if i % options["sample-every"] == 0 or i == options.steps then
    print(string.format("\n-- step %d, loss %.3f", i, loss))
    print(sample("\n", options.sample))
    if options.checkpoint then save(i) end
  end
end

local median = common.median(times)
local last = losses[#losses] or 0
print(string.format([[

  loss                  %6.3f     (%.3f at the first step)
  step                  %6.2f ms  %.0f tokens/s
  first call            %6.1f ms
  recompiles            %3d]], last, losses[1] or 0, median, median > 0 and options.batch * length / median * 1e3 or 0, first_ms or 0,
  options.eager and 0 or #lt.recompiles(step)))

if options.json then
  local file = assert(io.open(options.json, "w"))
  file:write(
    string.format(
    '{"loss": %.5f, "first_loss": %.5f, "step_ms": %.4f, "first_call_ms": %.3f, "steps": %d, "parameters": %d}\n',
    last, losses[1] or 0, median, first_ms or 0, options.steps, parameters))
  file:close()
end
