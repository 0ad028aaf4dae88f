-- Tests correct and wrong programs for two GPUs, on fake GPUs: devices, guards, models that move,
-- files.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local lt = require "lutra"
local nn, optim = lt.nn, lt.optim
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy

test("wrong devices name who was called", function()
  local x = lt.ones(2)
  local missing = "device 'cuda:9' is not available: this machine has 2 GPUs"
  for name, f in pairs {
    ["to"] = function() return x:to(9) end,
    ["cuda"] = function() return x:cuda(9) end,
    ["zeros"] = function() return lt.zeros(2, {device = 9}) end,
    ["set_default_device"] = function() return lt.set_default_device("cuda:9") end,
    ["cuda.set_device"] = function() return lt.cuda.set_device(9) end,
    ["cuda.device"] = function() return lt.cuda.device(9, print) end,
    ["cuda.synchronize"] = function() return lt.cuda.synchronize(9) end,
    ["cuda.Event"] = function() return lt.cuda.Event {device = 9} end,
    ["cuda.memory_allocated"] = function() return lt.cuda.memory_allocated(9) end,
    ["cuda.get_device_name"] = function() return lt.cuda.get_device_name(9) end,
    ["Generator"] = function() return lt.Generator("cuda:9") end,
  } do
    local ok, message = pcall(function()
      local r = f()
      return r
    end)
    truthy(not ok and message:find(": " .. name .. ": " .. missing, 1, true), name .. ": " .. tostring(message))
  end
  raises("cuda: argument 'device' must be an integer, got number 1.5", function() x:cuda(1.5) end)
  raises("cuda.Event: device 'cpu' is not a GPU", lt.cuda.Event, {device = "cpu"})
  raises("cuda.Event.elapsed_time: argument 'end_event' must be a cuda.Event, got number 3",
    function() lt.cuda.Event():elapsed_time(3) end)
  raises("cuda.Event.record: is called with a colon, object:record()", function() lt.cuda.Event().record() end)
  truthy(tostring(lt.cuda.Event()):find("^<lutra.cuda.Event"))
end)

test("tensors of two devices do not mix", function()
  local x, there = lt.ones(2, 2, {requires_grad = true}), lt.ones(2, 2):cuda()
  raises("add: expected all tensors to be on the same device, but found at least two devices, cpu and cuda:0 (out=)!",
    function() lt.add(lt.ones(2), lt.ones(2), {out = lt.ones(2):cuda()}) end)
  raises("backward: a gradient on cuda:0 does not fit an output on cpu", function() (x * 2):backward(there) end)
  raises("grad: a gradient on cuda:0 does not fit an output on cpu",
    function() lt.grad(x * 2, x, {grad_outputs = there}) end)
  raises("grad: is on cuda:0, the tensor on cpu", function() x.grad = there end)
  equal(x.grad, nil)
end)

test("compiled code mixes devices as eager code does", function()
  local x, three = lt.ones(2):cuda(), lt.tensor(3)
  local function outcome(f, ...)
    local ok, r = pcall(f, ...)
    return ok and tostring(r) or r:match("^.-:%d+: (.*)$")
  end
  local cases = {
    {function(a, b) return a + b end, x, three},
    {function(a, b) return a:clone():mul_(b) end, x, three},
    {function(a, b) return a:lerp(a, b) end, x, three}, -- made of an op on the CPU
    {function(a, b) return a:addcmul(a, b) end, x, three},
    {function(a, b) local c = b * 2 return a * 2 + c end, x, three},
    {function(a, b) a = a:clone() a[0] = b return a end, x, three},
    {function(a, b) local c = a:clone() c:copy_(b) return c + 1 end, x, lt.tensor({7, 8})},
    {function(a, b) local c = b:clone() c:copy_(a) return c + 1 end, x, lt.tensor({7, 8})},
    {function(a, b) a:copy_(b) return a + 1 end, x:clone(), lt.tensor({7, 8})},
    {function(a, b) b:copy_(a) return b + 1 end, x, lt.tensor({7, 8})},
    {function(a, b) return a + b end, x, lt.ones(1)},
    {function(a, b) return b:cuda() + lt.ones(2) end, x, three},
    {function(a, b) return a + b end, x, lt.ones(2, {device = "cuda:1"})},
  }
  for i, case in ipairs(cases) do
    local f, a, b = unpack(case)
    local want = outcome(f, a, b)
    equal(outcome(lt.compile(f), a, b), want, "case " .. i)
  end
  raises("fullgraph=true, but the graph breaks: ", lt.compile(cases[3][1], {fullgraph = true}), x, three)
end)

test("compiled code follows the default device and the current GPU", function()
  local made = lt.compile(function() return lt.ones(2) + 1 end)
  local named = lt.compile(function() return lt.zeros(2, {device = "cuda"}) end)
  for _, device in ipairs {"cpu", "cuda:0", "cuda:1", "cpu", "cuda:0"} do
    lt.set_default_device(device)
    equal(made().device, device)
  end
  lt.set_default_device("cpu")
  equal(lt.recompiles(made)[1].kind .. " " .. lt.recompiles(made)[1].old .. " " .. lt.recompiles(made)[1].new,
    "default_device cpu cuda:0")
  equal(#lt.recompiles(made), 2)
  for _, i in ipairs {0, 1, 0} do
    equal(lt.cuda.device(i, named).device, "cuda:" .. i)
  end
end)

test("the optimiser may be made before the model moves", function()
  for _, compiled in ipairs {false, true} do
    local function run(moved)
      lt.manual_seed(1)
      local net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
      local x = lt.randn(5, 3)
      local opt = optim.AdamW(net:parameters(), {lr = 0.1})
      local weight = net[1].weight
      local step = function(input)
        opt:zero_grad()
        local loss = net(input):square():mean()
        loss:backward()
        opt:step()
        return loss
      end
      if compiled then step = lt.compile(step) end
      if moved then
        net:to("cuda")
        x = x:cuda()
        equal(weight.device, "cuda:0")
        equal(opt.state[weight].exp_avg.device, "cuda:0")
      end
      local losses = {}
      for i = 1, 4 do losses[i] = step(x):item() end
      if moved then -- and home again, between steps
        net:cpu()
        equal(weight.grad.device, "cpu")
        x = x:cpu()
      end
      for i = 5, 8 do losses[i] = step(x):item() end
      equal(net[1].weight, weight)
      return losses
    end
    local want = run(false)
    truthy(want[8] < want[1])
    deep(run(true), want, 1e-5)
  end
end)

test("states go from one device to another", function()
  local here, there = nn.Linear(3, 2), nn.Linear(3, 2):cuda(1)
  there:load_state_dict(here:state_dict())
  equal(there.weight.device, "cuda:1")
  deep(there.weight:totable(), here.weight:totable())
  local path = os.tmpname() .. ".safetensors"
  lt.save(path, there:state_dict())
  equal(lt.load(path).weight.device, "cpu")
  equal(lt.load(path, {device = "cuda:1"}).weight.device, "cuda:1")
  raises("load: device 'cuda:9' is not available", lt.load, path, {device = "cuda:9"})
  raises("load: device 'gpu' is unknown", lt.load, path, {device = "gpu"})
  os.remove(path)
end)

test("a generator of numbers draws the same on each device", function()
  local function drawn(generator, device) return lt.randn(3, {generator = generator, device = device}):totable() end
  deep(drawn(lt.Generator("cuda"):manual_seed(3), "cuda"), drawn(lt.Generator(3), "cpu"))
  equal(tostring(lt.Generator {device = "cuda:1"}), "Generator(device='cuda:1', seed=0)")
end)

h.finish()
