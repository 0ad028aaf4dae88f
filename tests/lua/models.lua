-- Tests the ports of scripts/models: each trains at a tiny size, eagerly and compiled with the same bits, in one graph.
-- Its float64 losses equal PyTorch's (models.losses, written by scripts/bench/torch_zoo.py --losses). A formula gives
-- weights and batches on both sides. Steps are small: batch norm has few numbers here, so large steps would multiply
-- rounding errors by a thousand each step.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local PRIME = 2147483647
local STEPS = math.max(2, math.floor(20 * math.min(1, h.scale)))
lt.config.recompile_limit = 64 -- all models train by one function

local function port(name) return dofile("../../scripts/models/" .. name .. ".lua") end
local zoo = port "zoo"

local function hashed(count, seed)
  local n = (lt.arange(count) * 1103515245 + seed) % PRIME
  for _ = 1, 2 do n = (n * (n % 65521 + 1) + 12345) % PRIME end
  return n
end

local function floats(sizes, seed)
  local count = 1
  for _, n in ipairs(sizes) do count = count * n end
  return (hashed(count, seed):to("float64") / PRIME * 2 - 1):view(sizes)
end

local function seed_of(name)
  local seed = 7
  for i = 1, #name do seed = (seed * 31 + name:byte(i)) % PRIME end
  return seed
end

local function fill(net)
  for name, p in net:named_parameters() do
    local values = floats({p:size()}, seed_of(name))
    if p:dim() > 1 then
      values = values * math.sqrt(3 * p:size(0) / p:numel())
    else
      values = values * 0.1 + (name:match("weight$") and 1 or 0)
    end
    lt.no_grad(p.copy_, p, values)
  end
end

-- Returns the argument `random` of a model's draw(sizes, random). Each draw has its own seed.
local function formula(seed)
  local random = {}
  function random.floats(sizes)
    seed = seed + 1
    return floats(sizes, seed)
  end
  function random.below(limit, sizes)
    seed = seed + 1
    local count = 1
    for _, n in ipairs(sizes) do count = count * n end
    return (hashed(count, seed) % limit):view(sizes)
  end
  return random
end

local function batch(model, s, step)
  local seed = 1000 * step
  if model.draw then return model.draw(s, formula(seed)) end
  if s.image then
    return floats({s.batch, 3, s.image, s.image}, seed), hashed(s.batch, seed + 1) % s.classes
  end
  if s.classes then
    return (hashed(s.batch * s.length, seed) % s.vocabulary):view(s.batch, s.length), hashed(s.batch, seed + 1)
      % s.classes
  end
  local ids = (hashed(s.batch * (s.length + 1), seed) % s.vocabulary):view(s.batch, s.length + 1)
  return ids:narrow(1, 0, s.length), ids:narrow(1, 1, s.length)
end

-- x, a tensor or a list of them, with numbers of `dtype`.
local function cast(x, dtype)
  if lt.is_tensor(x) then return x:is_floating_point() and x:to(dtype) or x end
  local list = {}
  for i, each in ipairs(x) do list[i] = cast(each, dtype) end
  return list
end

-- The losses of some steps.
local function train(model, sizes, dtype, steps, compile)
  local net = model.make(sizes):to(dtype)
  fill(net)
  local opt = lt.optim.SGD(net:parameters(), {lr = sizes.rate or 0.01, momentum = 0.5})
  local step, losses = zoo.train_step(model, net, opt), {}
  if compile then step = lt.compile(step, {fullgraph = true}) end
  for i = 1, steps do
    local x, y = batch(model, sizes, (i - 1) % 4)
    losses[i] = step(cast(x, dtype), y):item()
  end
  return losses, net
end

local wanted = {}
for line in io.lines("models.losses") do
  local name, list = line:match("^(%S+) (.*)")
  wanted[name] = {}
  for number in list:gmatch("%S+") do table.insert(wanted[name], tonumber(number)) end
end

local names = {"mobilenet_v2", "mobilenet_v3", "mnasnet", "efficientnet_b0", "bert", "vit", "gru", "llama", "convnext",
  "unet", "gat", "dlrm", "swin"}
local cases = {}
for _, name in ipairs(names) do cases[name] = {port(name)} end
for _, depth in ipairs {18, 50} do
  local model, sizes = port "resnet", {}
  for key, value in pairs(model.tiny) do sizes[key] = value end
  sizes.depth = depth
  cases["resnet" .. depth] = {model, sizes}
end

if h.scale < 1 then -- a short run has one of each kind
  local some = {}
  for _, name in ipairs {"resnet18", "mobilenet_v2", "llama", "gat", "dlrm", "convnext"} do some[name] = cases[name] end
  cases = some
end

for name, case in pairs(cases) do
  local model, sizes = case[1], case[2] or case[1].tiny
  test(name .. ": losses are PyTorch's", function()
    local losses = train(model, sizes, "float64", STEPS, true)
    equal(#wanted[name], 20)
    for i = 1, STEPS do
      local want = wanted[name][i]
      h.near(losses[i], want, 1e-6 * want, "step " .. i)
    end
  end)
  test(name .. ": compiled is eager", function()
    local eager, net = train(model, sizes, "float32", 3)
    local compiled, other = train(model, sizes, "float32", 3, true)
    h.deep(compiled, eager)
    local x = cast(batch(model, sizes, 5), "float32")
    net:eval()
    other:eval()
    local out = lt.no_grad(zoo.call, net, x)
    local compiled_net = lt.compile(function(input) return zoo.call(other, input) end, {fullgraph = true})
    truthy(lt.no_grad(compiled_net, x):equal(out))
  end)
end

test("llama: a cache changes nothing, and a step compiles twice at most", function()
  local model = cases.llama[1]
  local sizes = model.tiny
  local net = model.make(sizes):eval()
  fill(net)
  local ids = (hashed(2 * 4, 3) % sizes.vocabulary):view(2, 4)
  local step = model.stepper(net, 0, 1, true)
  local written = lt.no_grad(model.generate, net, step, ids, 4, sizes.length)
  equal(#lt.recompiles(step), 1) -- the prompt, then single tokens
  for i = 4, 7 do
    local likeliest = lt.no_grad(net, written:narrow(1, 0, i)):select(1, -1):argmax(-1)
    truthy(likeliest:equal(written:select(1, i)), "token " .. i)
  end
  local eager = lt.no_grad(model.generate, net, model.stepper(net, 0, 1, false), ids, 4, sizes.length)
  truthy(eager:equal(written))
end)

test("llama draws among the likeliest", function()
  local model = cases.llama[1]
  local net = model.make(model.tiny):eval()
  local ids = (hashed(2 * 4, 3) % model.tiny.vocabulary):view(2, 4)
  local step = model.stepper(net, 0.7, 3, false)
  local logits = lt.no_grad(net, ids):select(1, -1)
  local _, top = logits:topk(3)
  for _ = 1, 10 do
    local token = lt.no_grad(step, ids, net:cache(2, 8), lt.arange(4))
    truthy(token:eq(top):any(1):all():item())
  end
end)

test("a port is a program", function()
  local run = h.model("gru.lua --d 8 --vocabulary 20 --length 4 --batch 2 --seconds 0.01")
  local text, status = run("--steps 2")
  equal(status, 0, text)
  truthy(text:find("step    2  loss", 1, true), text)
  text = run("--bench")
  for _, field in ipairs {"train_eager_ms", "train_ms", "infer_eager_ms", "infer_ms", "compile_ms"} do
    truthy(text:find('"' .. field .. '":%d'), text)
  end
  text, status = run("--depth 3")
  equal(status, 2)
  truthy(text:find("unknown option --depth", 1, true), text)
end)

h.finish()
