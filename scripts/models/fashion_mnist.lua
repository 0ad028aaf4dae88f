-- Trains an MLP 784-256-256-10 or a convnet on Fashion-MNIST with its whole train step compiled, then prints how
-- much faster it is than eager code.
--   lutra scripts/models/fashion_mnist.lua [--model mlp|conv] [--epochs N] [--batch 128] [--seed 0] [--data DIR]
--     [--json FILE] [--device cpu|cuda] [--threads N]
-- --epochs is 8 for the MLP and 5 for the convnet. --data names the folder of the images, if they are not where
-- Debian's package puts them.
local lt = require "lutra"
local nn, optim, data = lt.nn, lt.optim, lt.data
local common = dofile((arg[0]:match("^(.*/)[^/]*$") or "./") .. "common.lua")

local options = {model = "mlp", batch = 128, seed = 0}
local models = {mlp = 8, conv = 5} -- and their epochs
local function model_name(text) return models[text] and text end
local kinds = {model = model_name, epochs = tonumber, batch = tonumber, seed = tonumber, data = tostring,
  json = tostring,
               device = tostring, threads = tonumber}
local refuse = common.refuser("fashion_mnist")
common.read_options(options, kinds, {}, refuse)
options.epochs = options.epochs or models[options.model]
if options.epochs < 1 then refuse("--epochs must be at least 1") end

local device = lt.get_default_device()
local function wait() if device ~= "cpu" then lt.cuda.synchronize(device) end end
local train_set = data.FashionMNIST {root = options.data, train = true, device = device}
local test_set = data.FashionMNIST {root = options.data, train = false, device = device}
lt.manual_seed(options.seed)

-- The network and one step of training. Pixels stay bytes until here. -------------------------------------------------

local functional = nn.functional
local Mlp = nn.Module:extend("Mlp")
function Mlp:init()
  self.fc1 = nn.Linear(784, 256)
  self.fc2 = nn.Linear(256, 256)
  self.fc3 = nn.Linear(256, 10)
end
function Mlp:forward(images)
  local x = images:view(-1, 784):to("float32") / 255
  return self.fc3(self.fc2(self.fc1(x):relu()):relu())
end

-- Two convolutions, each with a pool, and two linear layers.
local Conv = nn.Module:extend("Conv")
function Conv:init()
  self.conv1 = nn.Conv2d(1, 32, 3, {padding = 1})
  self.conv2 = nn.Conv2d(32, 64, 3, {padding = 1})
  self.fc1 = nn.Linear(64 * 7 * 7, 128)
  self.fc2 = nn.Linear(128, 10)
end
function Conv:forward(images)
  local x = images:view(-1, 1, 28, 28):to("float32") / 255
  x = functional.max_pool2d(self.conv1(x):relu(), 2)
  x = functional.max_pool2d(self.conv2(x):relu(), 2)
  return self.fc2(self.fc1(x:flatten(1)):relu())
end

local net = options.model == "conv" and Conv() or Mlp()
local opt = optim.AdamW(net:parameters(), {lr = 1e-3})

local function train_step(x, y)
  local loss = functional.cross_entropy(net(x), y)
  opt:zero_grad()
  loss:backward()
  opt:step()
  return loss
end
local step = lt.compile(train_step)
local predict = lt.compile(function(x) return net(x):argmax(-1) end)

-- Training -----------------------------------------------------------------------------------------------------------

print(net)
local loader = data.DataLoader(train_set, {batch_size = options.batch, shuffle = true})
local first_call_ms
local train_start = lt.perf_counter()
local steps, done = options.epochs * loader:len(), 0
for epoch = 1, options.epochs do
  local bar = lt.progress(loader, {desc = string.format("epoch %d/%d", epoch, options.epochs)})
  for x, y in bar do
    opt.param_groups[1].lr = 1e-3 * (1 - done / steps) -- a number that changes at each step, and compiles nothing anew
    local start = lt.perf_counter()
    local loss = step(x, y)
    first_call_ms = first_call_ms or (lt.perf_counter() - start) * 1e3
    done = done + 1
    if done % 50 == 0 then bar:set(string.format("loss %.3f", loss:item())) end
  end
end
wait()
local train_s = lt.perf_counter() - train_start
local recompiles = lt.recompiles(step)
local guards = lt.guards(step)

local function test_accuracy()
  local correct = 0
  for x, y in data.DataLoader(test_set, {batch_size = 1000}) do
    correct = correct + lt.no_grad(predict, x):eq(y):sum():item()
  end
  return correct / test_set:len()
end
local accuracy = test_accuracy()

-- A text picture of a few test images with their predicted classes ----------------------------------------------------

local shades = " .:-=+*#%@"
local function picture_row(image, row) -- one line of text holds two rows of pixels
  local out = {}
  for column = 1, 28 do
    local light = (image[row][column] + image[row + 1][column]) / 2
    local shade = math.floor(light / 256 * #shades) + 1
    out[column] = shades:sub(shade, shade)
  end
  return table.concat(out)
end

local function show(first, count)
  local images, labels = test_set:batch(lt.arange(first, first + count))
  local said, truth, pixels = lt.no_grad(predict, images):totable(), labels:totable(), images:totable()
  for row = 1, 28, 2 do
    local parts = {}
    for i = 1, count do parts[i] = picture_row(pixels[i], row) end
    print("  " .. table.concat(parts, " "))
  end
  local parts = {}
  local names = data.fashion_mnist_classes
  for i = 1, count do
    local verdict = said[i] == truth[i] and names[said[i] + 1] or names[said[i] + 1] .. " (is " .. names[truth[i] + 1]
      .. ")"
    parts[i] = string.format("%-28s", "     " .. verdict)
  end
  print("  " .. table.concat(parts, " "))
end
print()
show(0, 4)

-- Eager and compiled steps in turn, on the same batch -----------------------------------------------------------------

local function median(times)
  table.sort(times)
  return times[math.floor((#times + 1) / 2)] * 1e3
end

local x, y = train_set:batch(lt.arange(options.batch))
local eager_times, compiled_times = {}, {}
for round = 1, 110 do
  local start = lt.perf_counter()
  train_step(x, y)
  wait()
  local middle = lt.perf_counter()
  step(x, y)
  wait()
  local stop = lt.perf_counter()
  if round > 10 then
    eager_times[#eager_times + 1] = middle - start
    compiled_times[#compiled_times + 1] = stop - middle
  end
end
local eager_ms, compiled_ms = median(eager_times), median(compiled_times)
local explained = lt.explain(train_step)(x, y)
local compile_ms = math.max(first_call_ms - compiled_ms, 0)
local guard_count = #guards[1]

print(string.format([[

  test accuracy         %6.2f %%   (%d images, %d epochs of %d in %.1f s)
  eager step            %6.2f ms
  compiled step         %6.2f ms  %.2fx
  capture and compile   %6.1f ms  once, in the first call
  graphs, breaks        %3d, %d
  guards                %3d
  recompiles            %3d]],
  accuracy * 100, test_set:len(), options.epochs, train_set:len(), train_s, eager_ms, compiled_ms,
    eager_ms / compiled_ms, compile_ms,
  explained.graph_count, explained.graph_break_count, guard_count, #recompiles))
for _, why in ipairs(recompiles) do
  print(string.format("                             %s was %s, is %s", why.source, tostring(why.old),
    tostring(why.new)))
end

if options.json then
  local file = assert(io.open(options.json, "w"))
  file:write(string.format('{"test_accuracy": %.4f, "train_s": %.3f, "eager_step_ms": %.4f, "compiled_step_ms": %.4f, '
    .. '"compile_ms": %.3f, "graphs": %d, "graph_breaks": %d, "guards": %d, "recompiles": %d}\n', accuracy, train_s,
      eager_ms,
    compiled_ms, compile_ms, explained.graph_count, explained.graph_break_count, guard_count, #recompiles))
  file:close()
end
