-- Tests a machine without a GPU: what needs no GPU works, the rest raises the reason. It hides this machine's GPUs.
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises

-- Everything runs in a process of its own, where the driver is a file that is not there.
if not os.getenv("LUTRA_CUDA_ABSENT") then
  local first = 0
  while arg[first - 1] do first = first - 1 end
  local command = "LUTRA_CUDA_ABSENT=1 LUTRA_CUDA_DRIVER=/nonexistent/libcuda.so.1"
  for i = first, 0 do command = command .. (" %q"):format(arg[i]) end
  os.exit(os.execute(command) == 0 and 0 or 1)
end

local reason = "no NVIDIA driver: /nonexistent/libcuda.so.1"

test("questions have answers", function()
  equal(lt.cuda.is_available(), false)
  truthy(lt.cuda.missing().driver, "the reason")
  equal(lt.cuda.device_count(), 0)
  equal(lt.cuda.is_bf16_supported(), false)
  for _, name in ipairs {"memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"} do
    equal(lt.cuda[name](), 0, name)
  end
  equal(lt.cuda.memory_stats()["num_ooms"], 0)
  lt.cuda.empty_cache()
  lt.cuda.reset_peak_memory_stats()
  lt.cuda.manual_seed(1)
end)

test("what needs a GPU says why there is none", function()
  local missing = "device 'cuda:0' is not available: " .. reason
  raises(missing, function() return lt.zeros(2, {device = "cuda"}) end)
  raises(missing, function() return lt.tensor({1, 2}, {device = "cuda"}) end)
  raises(missing, function() return lt.ones(2):to("cuda") end)
  raises(missing, function() return lt.ones(2):cuda() end)
  raises(missing, function() return lt.nn.Linear(2, 2):to("cuda") end)
  raises("device 'cuda:1' is not available: " .. reason, function() return lt.ones(2):cuda(1) end)
  for _, name in ipairs {"current_device", "synchronize", "get_device_name", "get_device_properties",
    "get_device_capability", "Event", "mem_get_info"} do
    raises(missing, lt.cuda[name])
  end
  raises(missing, lt.cuda.set_device, 0)
  raises(missing, lt.set_default_device, "cuda")
  raises(missing, function() return lt.ones(2):pin_memory() end)
end)

test("wrong devices", function()
  raises("device 'gpu' is unknown", function() return lt.zeros(2, {device = "gpu"}) end)
  raises("device 'cuda:x' is unknown", function() return lt.zeros(2, {device = "cuda:x"}) end)
  raises("device index -1", function() return lt.ones(2):cuda(-1) end)
  raises("'cpu' is not a GPU", function() return lt.ones(2):cuda("cpu") end)
  raises("cuda.Event: unknown keyword 'timing'", lt.cuda.Event, {timing = true})
  raises("argument 'device' must be", lt.cuda.synchronize, {})
end)

test("the CPU goes on", function()
  local x = lt.ones(3, {device = "cpu"})
  equal(x:to("cpu"), x)
  equal(x:cpu(), x)
  equal(x:to("cpu", {non_blocking = true}), x)
  equal(x:get_device(), -1)
  equal(lt.get_default_device(), "cpu")
  equal(x:is_pinned(), false)
  truthy(x:to("cpu", {copy = true}) ~= x)
  equal(x:to("cpu", lt.float64).dtype, "float64")
  equal((x + 1):sum():item(), 6)
end)

test("settings of libraries", function()
  local backends = lt.backends
  equal(backends.cudnn.allow_tf32, true)
  backends.cudnn.allow_tf32 = false
  equal(backends.cudnn.allow_tf32, false)
  backends.cudnn.allow_tf32 = true
  equal(backends.cuda.matmul.allow_tf32, false)
  backends.cuda.matmul.allow_tf32 = true
  equal(lt.get_float32_matmul_precision(), "high")
  backends.cuda.matmul.allow_tf32 = false
  equal(lt.get_float32_matmul_precision(), "highest")
  raises("backends.cudnn: unknown field 'speed' (known: allow_tf32)", function() return backends.cudnn.speed end)
  raises("backends.cudnn.allow_tf32: must be true or false, got 1", function() backends.cudnn.allow_tf32 = 1 end)
end)

h.finish()
