-- Shared by the ports of this folder: makes a program that trains a model, or times it (--bench).
--   local zoo = dofile(here .. "zoo.lua")
--   return zoo.model {name = "vit", sizes = {d = 384, ...}, tiny = {d = 16, ...},
--     make = function(sizes) return net end, batch = function(sizes) return x, y end}
-- sizes: the program's options; tiny: the options of tests, with their learning rate. Both have `batch`, the size of a
-- batch. The loss is the cross entropy of net(x), or the model's loss(net, x, y). A model may have draw(sizes, random)
-- in place of batch; its x may be a list of the net's arguments. random.floats(sizes) and random.below(n, sizes) return
-- random numbers in a program, and numbers by a formula in tests. kinds and flags are further options. main(options)
-- may return another program. If the file is loaded by dofile, it returns the model and runs nothing.
local lt = require "lutra"
local nn, F = lt.nn, lt.nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")
local zoo = {median = common.median}

-- Returns net(x), or net(...) if x is a list.
function zoo.call(net, x)
  if lt.is_tensor(x) then return net(x) end
  return net(unpack(x))
end
function zoo.cross_entropy(net, x, y) return F.cross_entropy(zoo.call(net, x), y) end

-- Random batches: images of three channels and their classes; tokens and a class; tokens and the next token of each.
function zoo.images(s) return lt.randn(s.batch, 3, s.image, s.image), lt.randint(0, s.classes, {s.batch}) end
function zoo.texts(s)
  return lt.randint(0, s.vocabulary, {s.batch, s.length}), lt.randint(0, s.classes, {s.batch})
end
function zoo.sequences(s)
  local ids = lt.randint(0, s.vocabulary, {s.batch, s.length + 1})
  return ids:narrow(1, 0, s.length):contiguous(), ids:narrow(1, 1, s.length):contiguous()
end

-- The `random` of draw(sizes, random) in programs.
local random = {}
function random.floats(sizes) return lt.randn(sizes) end
function random.below(limit, sizes) return lt.randint(0, limit, sizes) end

local function batch_of(model, options)
  if model.draw then return model.draw(options, random) end
  return model.batch(options)
end

-- Rounds a number of channels to a multiple of eight, at most a tenth below it, as the MobileNet papers do.
function zoo.channels(wanted)
  local whole = math.max(8, math.floor((wanted + 4) / 8) * 8)
  return whole < 0.9 * wanted and whole + 8 or whole
end

-- Returns a convolution, which keeps the size at stride 1, its batch norm with the options `norm`, and the activation
-- if there is one.
function zoo.conv_norm(c, k, kernel, stride, groups, norm, activation)
  local options = {stride = stride, padding = (kernel - 1) / 2, groups = groups, bias = false}
  local block = nn.Sequential(nn.Conv2d(c, k, kernel, options), nn.BatchNorm2d(k, norm))
  if activation then block:append(activation {inplace = true}) end
  return block
end

-- An inverted residual: a pointwise convolution to `hidden` channels, a depthwise one, the module squeeze(hidden), and
-- a pointwise one to k channels. conv_norm(c, k, kernel, stride, groups, ends): `ends` is true for the last one, which
-- has no activation.
zoo.Inverted = nn.Module:extend("Inverted")
function zoo.Inverted:init(c, hidden, k, kernel, stride, conv_norm, squeeze)
  self.residual = stride == 1 and c == k
  self.block = nn.Sequential()
  if hidden ~= c then self.block:append(conv_norm(c, hidden, 1, 1, 1)) end
  self.block:append(conv_norm(hidden, hidden, kernel, stride, hidden))
  if squeeze then self.block:append(squeeze(hidden)) end
  self.block:append(conv_norm(hidden, k, 1, 1, 1, true))
end
function zoo.Inverted:forward(x)
  if self.residual then return x + self.block(x) end
  return self.block(x)
end

-- Initialises the weights of convolutions as torchvision does for nets with ReLU.
function zoo.init_convolutions(net)
  for module in net:modules() do
    if lt.isinstance(module, nn.Conv2d) then
      nn.init.kaiming_normal_(module.weight, {mode = "fan_out"})
    end
  end
end

function zoo.train_step(model, net, opt) return common.train_step(model.loss or zoo.cross_entropy, net, opt) end

local function wait(device)
  if device:match("^cuda") then lt.cuda.synchronize() end
end

-- Returns the median time of f() in ms. It takes samples for options.seconds, by wall time or CPU time (options.cpu).
-- On a GPU each sample waits for the GPU.
local function time(f, options)
  for _ = 1, 3 do f() end
  local device, times, start = lt.get_default_device(), {}, lt.perf_counter()
  local clock = options.cpu and os.clock or lt.perf_counter
  wait(device)
  repeat
    local before = clock()
    f()
    wait(device)
    times[#times + 1] = (clock() - before) * 1e3
  until #times >= 5 and lt.perf_counter() - start > options.seconds
  return common.median(times)
end

-- Prints a line of JSON: {"model", "threads", "train_eager_ms", "train_ms", "infer_eager_ms", "infer_ms",
-- "compile_ms"}.
local function bench(model, options)
  local net = model.make(options)
  local opt = lt.optim.AdamW(net:parameters(), {lr = options.lr})
  local x, y = batch_of(model, options)
  local step = zoo.train_step(model, net, opt)
  local row = {model = options.name or model.name, threads = lt.get_num_threads()}
  row.train_eager_ms = time(function() step(x, y) end, options)
  local compiled, start = lt.compile(step), lt.perf_counter()
  compiled(x, y):item()
  row.compile_ms = (lt.perf_counter() - start) * 1e3
  row.train_ms = time(function() compiled(x, y) end, options)
  net:eval()
  local function infer(inputs) return zoo.call(net, inputs) end
  lt.no_grad(function()
    row.infer_eager_ms = time(function() infer(x) end, options)
    local fast = lt.compile(infer)
    row.infer_ms = time(function() fast(x) end, options)
  end)
  for key, value in pairs(row) do
    if type(value) == "number" then row[key] = tonumber(string.format("%.4f", value)) end
  end
  print(lt._native.json(row))
end

local function profile(model, options)
  local net = model.make(options)
  local opt = lt.optim.AdamW(net:parameters(), {lr = options.lr})
  local x, y = batch_of(model, options)
  print(lt.profile(lt.compile(zoo.train_step(model, net, opt)), {warmup = 3})(x, y))
  net:eval()
  local infer = lt.compile(function(inputs) return zoo.call(net, inputs) end)
  lt.no_grad(function() print(lt.profile(infer, {warmup = 3})(x)) end)
end

local function train(model, options)
  local net = model.make(options)
  local opt = lt.optim.AdamW(net:parameters(), {lr = options.lr})
  local x, y = batch_of(model, options)
  local step = zoo.train_step(model, net, opt)
  if not options.eager then step = lt.compile(step) end
  print(string.format("%d parameters", common.parameters_of(net)))
  for i = 1, options.steps do
    local start = lt.perf_counter()
    local loss = step(x, y):item()
    print(string.format("step %4d  loss %8.4f  %8.2f ms", i, loss, (lt.perf_counter() - start) * 1e3))
  end
end

-- Runs the model's program if its file is the script. Returns the model.
function zoo.model(model)
  if not (arg and arg[0] and arg[0]:match("([^/]*)$") == model.name .. ".lua") then return model end
  local options = {steps = 20, lr = 1e-3, seed = 0, seconds = 1}
  for name, value in pairs(model.sizes) do options[name] = value end
  local refuse = common.refuser(model.name)
  local kinds, flags = {threads = tonumber, device = tostring}, {eager = true, bench = true, cpu = true, profile = true}
  for name, kind in pairs(model.kinds or {}) do kinds[name] = kind end
  for name in pairs(model.flags or {}) do flags[name] = true end
  common.read_options(options, kinds, flags, refuse)
  if model.check then model.check(options, refuse) end
  lt.manual_seed(options.seed)
  local own = model.main and model.main(options)
  local main = own or options.bench and bench or options.profile and profile or train
  main(model, options)
  return model
end

return zoo
