-- Tests tensors on a fake GPU (fake_driver.cc): they are moved, read, counted and freed. No kernel runs.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, deep, raises, truthy = h.test, h.equal, h.deep, h.raises, h.truthy
local MB = 2 ^ 20

local function allocated()
  collectgarbage()
  collectgarbage()
  return lt.cuda.memory_allocated()
end

test("devices", function()
  equal(lt.cuda.is_available(), true)
  equal(lt.cuda.device_count(), 2)
  equal(lt.cuda.current_device(), 0)
  equal(lt.cuda.get_device_name(), "Fake GPU")
  local major, minor = lt.cuda.get_device_capability(1)
  equal(major * 10 + minor, 90)
  equal(lt.cuda.get_device_properties(0).total_memory, 256 * MB)
  truthy(tostring(lt.cuda.get_device_properties(0)):find(
    "^_CudaDeviceProperties%(name='.+', major=%d+, minor=%d, total_memory=256MB, "))
  equal(lt.cuda.is_bf16_supported(), true)
  raises("device 'cuda:3' is not available: this machine has 2 GPUs", function() return lt.ones(2):to("cuda:3") end)
  raises("device 'cuda:2' is not available: this machine has 2 GPUs", lt.cuda.memory_allocated, 2)
end)

test("there and back", function()
  local x = lt.tensor({{1, 2, 3}, {4, 5, 6}})
  local y = x:to("cuda")
  equal(y.device, "cuda:0")
  equal(y.is_cuda, true)
  deep(y:totable(), x:totable())
  deep(y:cpu():totable(), x:totable())
  equal(y:to("cuda"), y)
  equal(y:cuda(0), y)
  local z = y:cuda(1)
  equal(z.device, "cuda:1")
  deep(z:totable(), x:totable())
  deep(x:t():to("cuda"):totable(), x:t():totable())
  deep(y[1]:totable(), {4, 5, 6})
  equal(y[{1, 2}]:item(), 6)
  equal(tostring(y), "tensor([[1., 2., 3.],\n        [4., 5., 6.]], device='cuda:0')")
  equal(#y, 2)
end)

test("printed", function()
  for _, sizes in ipairs {{1001}, {50, 60}, {7, 3, 90}, {4, 400}, {2, 3, 4, 50}, {1000}} do
    local x = lt.arange(lt.ones(sizes):numel()):view(sizes)
    for _, t in ipairs {x, x:to("float32") / 7, x:transpose(0, -1), (x % 2):to("bool")} do
      equal((tostring(t:cuda()):gsub(",%s*device='cuda:0'", "")), (tostring(t)))
    end
  end
end)

test("made there", function()
  equal(lt.tensor({1, 2}, {device = "cuda:1"}).device, "cuda:1")
  deep(lt.tensor({1, 2}, {device = "cuda:1"}):totable(), {1, 2})
  equal(lt.tensor(lt.ones(2), {device = "cuda"}).device, "cuda:0")
  equal(lt.empty(3, {device = "cuda"}).device, "cuda:0")
  equal(lt.randperm(5, {device = "cuda"}).device, "cuda:0")
end)

test("current device", function()
  lt.cuda.set_device(1)
  equal(lt.ones(2):to("cuda").device, "cuda:1")
  equal(lt.ones(2):cuda().device, "cuda:1")
  equal(lt.cuda.device(0, function(x) return x:cuda().device end, lt.ones(2)), "cuda:0")
  equal(lt.cuda.current_device(), 1)
  raises("oh", lt.cuda.device, 0, function() error("oh") end)
  equal(lt.cuda.current_device(), 1)
  lt.cuda.set_device("cuda:0")
  lt.set_default_device("cuda")
  local made = lt.tensor({1, 2})
  lt.set_default_device("cpu")
  equal(made.device, "cuda:0")
end)

test("copy_ and gradients", function()
  local x = lt.tensor({1, 2, 3}, {requires_grad = true})
  local y = x:to("cuda")
  y:backward(lt.tensor({10, 20, 30}):cuda())
  equal(x.grad.device, "cpu")
  deep(x.grad:totable(), {10, 20, 30})
  local z = lt.zeros(3)
  z:copy_(lt.tensor({7, 8, 9}, {device = "cuda"}))
  deep(z:totable(), {7, 8, 9})
  local on_gpu = lt.empty(3, {device = "cuda"})
  on_gpu:copy_(z)
  deep(on_gpu:totable(), {7, 8, 9})
  raises("add: expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
         function() return on_gpu + z end)
end)

test("saved and loaded", function()
  local path = os.tmpname() .. ".safetensors"
  lt.save(path, {w = lt.tensor({1, 2, 3}, {device = "cuda"})})
  local w = lt.load(path).w
  equal(w.device, "cpu")
  deep(w:totable(), {1, 2, 3})
  w = lt.load(path, {device = "cuda:1"}).w
  equal(w.device, "cuda:1")
  deep(w:totable(), {1, 2, 3})
  os.remove(path)
end)

test("pinned memory", function()
  local x = lt.tensor({{1, 2, 3}, {4, 5, 6}})
  equal(x:is_pinned(), false)
  local p = x:t():pin_memory()
  equal(p:is_pinned(), true)
  equal(p:pin_memory(), p)
  equal(p.device, "cpu")
  deep(p:totable(), {{1, 4}, {2, 5}, {3, 6}})
  deep(p:to("cuda", {non_blocking = true}):totable(), {{1, 4}, {2, 5}, {3, 6}})
  p:copy_(lt.zeros(3, 2):cuda())
  deep(p:totable(), {{0, 0}, {0, 0}, {0, 0}})
  raises("only tensors of the CPU", function() return x:cuda():pin_memory() end)
end)

test("modules and optimisers", function()
  local m = lt.nn.Linear(3, 2)
  local weight = m.weight:totable()
  m:to("cuda")
  equal(m.weight.device, "cuda:0")
  equal(m.weight.is_leaf, true)
  equal(m.weight.requires_grad, true)
  deep(m.weight:totable(), weight)
  m:cuda(1)
  equal(m.bias.device, "cuda:1")
  m:to {device = "cpu", non_blocking = true}
  equal(m.bias.device, "cpu")
  local other = lt.nn.Linear(3, 2)
  other:to("cuda")
  other:load_state_dict(m:state_dict())
  equal(other.weight.device, "cuda:0")
  deep(other.weight:totable(), weight)
end)

test("memory is counted and collected", function()
  local before = allocated()
  local x = lt.empty(4 * MB, {device = "cuda", dtype = "uint8"})
  equal(allocated() - before, 4 * MB)
  x = nil
  equal(allocated(), before)
  local y = lt.empty(4 * MB, {device = "cuda", dtype = "uint8"})
  y:free()
  equal(lt.cuda.memory_allocated(), before)
  lt.cuda.reset_peak_memory_stats()
  equal(lt.cuda.max_memory_allocated(), before)
  truthy(lt.cuda.memory_reserved() >= 20 * MB)
  lt.cuda.empty_cache()
  truthy(lt.cuda.memory_reserved() < 20 * MB)
  -- Garbage is collected before memory runs out.
  for _ = 1, 100 do lt.empty(30 * MB, {device = "cuda", dtype = "uint8"}) end
  local held = {}
  raises("out of memory on cuda:0: tried to allocate 30.00 MB\n  in tensors ", function()
    for i = 1, 100 do held[i] = lt.empty(30 * MB, {device = "cuda", dtype = "uint8"}) end
  end)
  held = nil
  equal(allocated(), before)
  lt.empty(200 * MB, {device = "cuda", dtype = "uint8"})
  truthy(lt.cuda.memory_stats()["num_ooms"] == 1)
  truthy(lt.cuda.memory_summary():find("in tensors", 1, true))
end)

test("events", function()
  local start, stop = lt.cuda.Event {enable_timing = true}, lt.cuda.Event {enable_timing = true}
  raises("must be recorded", start.elapsed_time, start, stop)
  start:record()
  stop:record()
  lt.cuda.synchronize()
  equal(start:query(), true)
  equal(start:elapsed_time(stop), 1)
  local untimed = lt.cuda.Event()
  untimed:record()
  untimed:synchronize()
  raises("enable_timing", start.elapsed_time, start, untimed)
end)

test("a compiled function that moves its tensors", function()
  local f = lt.compile(function(x)
    local y = x * 2
    local z = y:to("cuda")
    return z, y + 1
  end)
  for _ = 1, 3 do
    local z, y = f(lt.tensor({1, 2, 3}))
    equal(z.device, "cuda:0")
    deep(z:totable(), {2, 4, 6})
    deep(y:totable(), {3, 5, 7})
  end
end)

h.finish()
