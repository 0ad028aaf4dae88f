-- Tests machines that lack a part, each in its own process, with a driver or a library that is too old, empty or
-- missing. Functions that need it raise an error that says so; the others work.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra = h.program()
local folder = os.getenv("LUTRA_CUDA_PATH")
local base = h.folder()

-- Returns the output of a program, standard error first.
local function run(environment, text)
  h.write(base .. "/program.lua", "local function told(f, ...) return (select(2, pcall(f, ...))) end\n" .. text)
  return shell(("cd %s && env LUTRA_CACHE_DIR=%s/cache %s %s program.lua 2>&1"):format(base, base, environment, lutra))
end
local function has(text, part) truthy(text:find(part, 1, true), text) end

-- Makes an empty library of that name, with the fake NVRTC or without it.
local function libraries(names)
  local at = shell(("mktemp -d -p %s"):format(base)):gsub("\n", "")
  for name, source in pairs(names) do shell(("ln -s %s/%s %s/%s"):format(folder, source, at, name)) end
  return "LUTRA_CUDA_PATH=" .. at
end
local empty = "libcudnn.so.9"

test("no driver", function()
  local out = run("LUTRA_CUDA_DRIVER=/nonexistent/libcuda.so.1", [[
    print(lt.cuda.is_available(), lt.cuda.device_count())
    print(told(lt.ones, 2, {device = "cuda"}))
    print((lt.ones(2) + 1):sum():item())]])
  has(out, "false\t0\n") has(out,
    "device 'cuda:0' is not available: no NVIDIA driver: /nonexistent/libcuda.so.1") has(out, "\n4\n")
end)

test("a driver that is too old, finds no GPU, or does not start", function()
  local text =
    [[print(lt.cuda.is_available()) print(told(lt.ones, 2, {device = "cuda"})) print(lt.ones(2):sum():item())]]
  local out = run("FAKE_CUDA_VERSION=11040", text)
  has(out, "false\n") has(out,
    "the NVIDIA driver is too old: it supports CUDA 11.4, and 12.0 or newer is needed") has(out, "\n2\n")
  has(run("FAKE_CUDA_DEVICES=0", text), "the NVIDIA driver finds no GPU")
  has(run("FAKE_CUDA_FAIL=cuInit:999", text), "the NVIDIA driver does not start")
  -- A library that lacks the needed functions.
  has(run(("LUTRA_CUDA_DRIVER=%s/%s"):format(folder, empty), text), "the NVIDIA driver is too old")
end)

test("--device cuda without one", function()
  local out =
    shell(("cd %s && LUTRA_CUDA_DRIVER=/nonexistent %s --device cuda -e 'print(1)' 2>&1; echo $?"):format(base, lutra))
  has(out, "not available: no NVIDIA driver") has(out, "\n2\n")
end)

test("no NVRTC: tensors move, kernels say what is missing, the CPU goes on", function()
  local out = run(libraries {["libnvrtc.so.13"] = empty}, [[
    local x = lt.arange(4):to("float32"):cuda()
    print(x:cpu():sum():item(), x[{1}]:item(), lt.zeros(2):copy_(x[{{1, 3}}]):totable()[2])
    local f = lt.compile(function(a) return (a * 2):softmax(0):cumsum(0) end)
    print(told(function() return f(x):cpu() end))
    print(told(function() return x:cumsum(0):cpu() end))
    print(f(x:cpu()):dim(), lt.cuda.memory_allocated() > 0)]])
  has(out, "6\t1\t2\n")
  local _, times = out:gsub("kernels cannot be compiled: libnvrtc", "")
  truthy(times == 2, out)
  has(out, "1\ttrue\n")
end)

test("no cuBLASLt, or one without its functions: products run on own kernels, told once", function()
  local text = [[
    local a, b = lt.arange(12):view(3, 4):to("float32"), lt.ones(4, 5)
    local c = a:cuda():matmul(b:cuda())
    print(lt.equal(c:cpu(), a:matmul(b)), lt.equal(lt.compile(function(x, y) return x:matmul(y) end)(a:cuda(), b:cuda()), c))]]
  local out = run("", text)
  has(out, "true\ttrue\n")
  local _, times = out:gsub("lutra: cuBLASLt cannot be used: [^\n]+; matrix products run on simple kernels\n", "")
  equal(times, 1, out)
end)

test("no cuDNN: convolutions run, or say what is missing", function()
  local out = run("", [[
    local x, w = lt.arange(32):view(1, 2, 4, 4):to("float32"), lt.ones(3, 2, 3, 3)
    local y = lt.nn.functional.conv2d(x:cuda(), w:cuda(), nil, {padding = 1})
    print(lt.allclose(y:cpu(), lt.nn.functional.conv2d(x, w, nil, {padding = 1})))]])
  truthy(out:find("true\n", 1, true) or out:find("cuDNN cannot be used", 1, true), out)
end)

test("wrong devices", function()
  local out = run("FAKE_CUDA_DEVICES=2", [[
    print(told(lt.ones, 2, {device = "cuda:2"}))
    print(told(lt.ones, 2, {device = "cuda:-1"}))
    print(told(lt.cuda.set_device, 7))
    local a, b, c = lt.ones(2, 2, {device = "cuda:0"}), lt.ones(2, 2, {device = "cuda:1"}), lt.ones(2, 2)
    local F = lt.nn.functional
    print(told(function() return a + b end))
    print(told(function() return a:matmul(c) end))
    print(told(lt.cat, {a, b}))
    print(told(lt.where, a:gt(0), a, b))
    print(told(F.linear, a, c))
    print(told(function() a:add_(b) end))
    print(told(lt.compile(function(x, y) return x * y end), a, c))
    print(a:add(lt.tensor(2)):sum():item())]])
  has(out, "device 'cuda:2' is not available: this machine has 2 GPUs")
  has(out, "cuda:-1")
  has(out, "'cuda:7' is not available")
  for _, pair in ipairs {{"add", "cuda:0 and cuda:1"}, {"matmul", "cuda:0 and cpu"}, {"cat", "cuda:0 and cuda:1"},
    {"where", "cuda:0 and cuda:1"},
                         {"linear", "cuda:0 and cpu"}, {"add_", "cuda:0 and cuda:1"}, {"mul", "cuda:0 and cpu"}} do
    has(out, ("%s: expected all tensors to be on the same device, but found at least two devices, %s!"):format(
      unpack(pair)))
  end
  has(out, "\n12\n")
end)

test("a kernel that traps: told at the next wait with the launches before it; the CPU goes on", function()
  local text = [[
    local x = lt.ones(3, {device = "cuda"})
    local y = x + 1
    print(told(function() return y:cpu() end))
    print(told(function() return x * 2 end))
    print(told(lt.zeros, 3, {device = "cuda"}))
    print((lt.ones(3) + 1):sum():item())]]
  local out = run("FAKE_CUDA_FAIL=cuEventSynchronize:719", text)
  has(out, "unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED) in one of the last launches: full (program.lua:2), then add (program.lua:3) (LUTRA_CUDA_SYNC=1 tells which)")
  has(out, "the GPU's context is lost, the CPU goes on\n")
  local _, times = out:gsub("the GPU's context is lost since: unspecified launch failure %(CUDA_ERROR_LAUNCH_FAILED%) after full %(program.lua:2%), then add %(program.lua:3%); the CPU goes on", "")
  equal(times, 2, out)
  has(out, "\n6\n")
  -- The host waits for each launch, so the op itself raises the error, with its line.
  out = run("LUTRA_CUDA_SYNC=1 FAKE_CUDA_FAIL=cuStreamSynchronize:719",
    "local x = lt.empty(3, {device = 'cuda'})\nlocal y = x:exp()\n")
  has(out, "program.lua:3: ") has(out, "in exp (program.lua:3); the GPU's context is lost")
end)

shell("rm -rf " .. base)
h.finish()
