-- Checks for a machine with GPUs, beside smoke.lua: a loss curve against the CPU's, memory that runs out
-- within a train step, a long run's memory, a kernel that traps, an index out of range, two processes on one cache
-- directory, two GPUs.
--   lutra tests/gpu/must_see.lua [curve|memory|soak|trap|index|cache|devices ...]
local lt = require "lutra"
local ffi = require "ffi"
local nn, optim, F = lt.nn, lt.optim, lt.nn.functional
local here = arg[0]:match("^(.*/)[^/]*$") or "./"
local common = dofile(here .. "common.lua")
local report = common.report

local probe = assert(io.popen("readlink /proc/$PPID/exe"))
local program = probe:read("*l")
probe:close()

local function shell(command)
  local pipe = assert(io.popen(command))
  local text = pipe:read("*a")
  pipe:close()
  return text
end
-- Returns whether f raises an error with this text, and the first line of its message.
local function raises(text, f, ...)
  local ok, message = pcall(f, ...)
  message = tostring(message)
  return not ok and message:find(text, 1, true) ~= nil, ok and "no error" or message:match("^[^\n]*")
end

local fake = lt.cuda.get_device_name(0) == "Fake GPU" -- tests/cuda/fake_driver.cc: all of it is smaller there
local sections = {}

-- Twenty steps of a small GPT: on the GPU eager and compiled give the same bits, and both the CPU's curve within 0.1 %.
function sections.curve()
  local GPT = dofile(here .. "../../scripts/models/gpt.lua")
  local steps, batch, length, vocabulary = fake and 3 or 20, fake and 2 or 16, fake and 8 or 64, 60
  local function train(device, compiled)
    lt.manual_seed(1)
    local net = GPT {d = fake and 16 or 128, heads = 4, layers = fake and 1 or 4, vocabulary = vocabulary,
      length = length}
    net:to(device)
    local opt = optim.AdamW(net:parameters(), {lr = 1e-3})
    local function loss_of(x, y) return F.cross_entropy(net(x):flatten(0, 1), y:reshape(-1)) end
    local step = common.train_step(opt, loss_of, compiled and {})
    lt.manual_seed(2)
    local losses = {}
    for i = 1, steps do
      -- A sequence that can be learnt: each token is the one before plus three.
      local ids = (lt.randint(0, vocabulary, {batch, 1}) + lt.arange(length + 1) * 3) % vocabulary
      losses[i] = step(ids:narrow(1, 0, length):contiguous():to(device),
        ids:narrow(1, 1, length):contiguous():to(device)):item()
    end
    return losses
  end
  local cpu, eager, compiled = train("cpu", true), train("cuda"), train("cuda", true)
  local worst, same = 0, true
  for i = 1, steps do
    worst = math.max(worst, math.abs(cpu[i] - eager[i]) / cpu[i])
    same = same and eager[i] == compiled[i]
  end
  report("char GPT against the CPU", worst <= 1e-3,
    string.format("%d steps, loss %.4f to %.4f, at most %.5f %% apart (0.1 %% allowed)",
    steps, cpu[1], cpu[steps], worst * 100))
  report("char GPT compiled is eager", same, string.format("%.9g and %.9g", eager[steps], compiled[steps]))
end

-- Memory runs out within a train step. The step then has no effect, and once there is memory the run continues as
-- without the failure.
function sections.memory()
  local d, small, large = fake and 16 or 2048, fake and 8 or 1024, fake and 2 ^ 17 or 2 ^ 16 + 2 ^ 15
  local MB = 2 ^ 20
  local function start(compiled)
    lt.manual_seed(3)
    local net = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.Dropout(0.1), nn.Linear(d, d), nn.GELU(),
      nn.Linear(d, 8)):to("cuda")
    local opt = optim.AdamW(net:parameters(), {lr = 1e-3})
    local data = {}
    for _, n in ipairs {small, large} do
      data[n] = {lt.randn(n, d, {device = "cuda"}), lt.randint(0, 8, {n}, {device = "cuda"})}
    end
    local step = common.train_step(opt, common.row_loss(net), compiled and {dynamic = true})
    return net, opt, function(n) return step(data[n][1], data[n][2]) end
  end
  local function state(net, opt, gradients)
    local all = {}
    for _, p in ipairs(net:parameters()) do
      all[#all + 1] = p:detach():cpu()
      if p.grad and gradients then all[#all + 1] = p.grad:cpu() end
      local kept = opt.state[p]
      if kept then all[#all + 1] = kept.exp_avg:cpu() all[#all + 1] = kept.exp_avg_sq:cpu() end
    end
    return all
  end
  local function equal(a, b)
    if #a ~= #b then return false end
    for i = 1, #a do if not lt.equal(a[i], b[i]) then return false end end
    return true
  end
  local function finish(net, opt, step)
    local losses = {}
    for i = 1, 3 do losses[i] = step(i == 1 and large or small):item() end
    return losses, state(net, opt, true)
  end
  for _, compiled in ipairs {false, true} do
    local what = compiled and " compiled" or " eager"
    local net, opt, step = start(compiled)
    for _ = 1, 3 do step(small) end
    local want, want_state = finish(net, opt, step)
    net, opt, step = nil, nil, nil
    lt.reset() -- recordings keep their memory
    collectgarbage() collectgarbage()
    lt.cuda.empty_cache()

    net, opt, step = start(compiled)
    for _ = 1, 3 do step(small) end
    local before, held = state(net, opt, compiled), {}
    lt.cuda.empty_cache()
    for _, size in ipairs(fake and {32, 4, 1} or {1024, 128, 32}) do
      while pcall(function() held[#held + 1] = lt.empty(size * MB, {dtype = "uint8", device = "cuda"}) end) do end
    end
    local raised, message = raises("out of memory on cuda:0: tried to allocate", step, large)
    report("out of memory within a step," .. what, raised, message)
    report(compiled and "  parameters, gradients and moments are as before, compiled"
      or "  parameters and moments are as before, eager",
      equal(state(net, opt, compiled), before))
    held = nil
    collectgarbage() collectgarbage()
    if not compiled then
      -- Op by op, random numbers that were drawn before the failure stay drawn.
      report("  goes on," .. what, step(small):item() < 3)
    else
      local got, got_state = finish(net, opt, step)
      local same = equal(got_state, want_state)
      for i = 1, 3 do same = same and got[i] == want[i] end
      report("  goes on as if nothing had happened," .. what, same,
        string.format("loss %.9g and %.9g", got[3], want[3]))
    end
    net, opt, step = nil, nil, nil
    collectgarbage() collectgarbage()
    lt.cuda.empty_cache()
  end
end

-- Many train steps, batches of sizes that change among them: neither the GPU's memory nor the process grows.
function sections.soak()
  local steps = fake and 30 or 2000
  -- AddressSanitizer keeps memory that was freed.
  local sanitized = io.open("/proc/self/maps"):read("*a"):find("libasan", 1, true)
  local slack = sanitized and 400 or 8 -- MB
  local function resident() return tonumber(
    io.open("/proc/self/statm"):read("*l"):match("^%d+ (%d+)")) * 4096 / 2 ^ 20 end
  for _, compiled in ipairs {false, true} do
    local d = fake and 16 or 256
    local net = nn.Sequential(nn.Linear(d, d), nn.LayerNorm(d), nn.GELU(), nn.Dropout(0.1), nn.Linear(d, 10)):to("cuda")
    local opt = optim.AdamW(net:parameters(), {lr = 1e-3})
    local step = common.train_step(opt, common.row_loss(net), compiled and {dynamic = true})
    local function run(n)
      local loss
      for i = 1, n do
        local rows = i % 10 == 0 and 48 or 128
        loss = step(lt.randn(rows, d, {device = "cuda"}), lt.randint(0, 10, {rows}, {device = "cuda"}))
      end
      loss:item()
      collectgarbage() collectgarbage()
      return lt.cuda.memory_allocated(), lt.cuda.memory_reserved(), resident()
    end
    -- Lua's collector has had its longest cycles, and all code is published, before memory is measured.
    run(steps)
    lt.wait_compiled()
    local allocated, reserved, mb = run(steps)
    local allocated_later, reserved_later, mb_later = run(steps)
    report(steps .. " train steps" .. (compiled and " compiled" or " eager"),
      allocated_later <= allocated and reserved_later <= reserved and mb_later < mb + slack,
      string.format("%.2f to %.2f MB allocated, %.0f to %.0f reserved, process %.0f to %.0f MB", allocated / 2 ^ 20,
        allocated_later / 2 ^ 20,
        reserved / 2 ^ 20, reserved_later / 2 ^ 20, mb, mb_later))
  end
end

-- Runs in its own process, because the GPU is unusable afterwards.
function sections.trap()
  if fake then return end
  local text = shell(("%s %s trapped 2>&1"):format(program, arg[0]))
  io.write((text:gsub("[^\n]+", "       %0")))
  report("a kernel that traps", text:find("\ntrapped: ok\n", 1, true) ~= nil)
end
function sections.trapped()
  ffi.cdef [[int cuModuleLoadData(void**, const char*); int cuModuleGetFunction(void**, void*, const char*);
  int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     void*, void**, void**);
  int cuCtxSynchronize(void);]]
  local driver = ffi.load("libcuda.so.1")
  local x = lt.ones(4, {device = "cuda"})
  local y = x + 1
  local module, kernel = ffi.new("void*[1]"), ffi.new("void*[1]")
  local ptx = ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry trapping() { trap; }\n"
  assert(driver.cuModuleLoadData(module, ptx) == 0)
  assert(driver.cuModuleGetFunction(kernel, module[0], "trapping") == 0)
  assert(driver.cuLaunchKernel(kernel[0], 1, 1, 1, 1, 1, 1, 0, nil, nil, nil) == 0)
  driver.cuCtxSynchronize() -- it is on another stream than Lutra's work
  local told, message = raises("the GPU's context is lost, the CPU goes on", function() return y:cpu() end)
  print(message)
  local named =
    message:find(
    "last launches: full %(.*must_see.lua:%d+%), then add %(.*must_see.lua:%d+%) %(LUTRA_CUDA_SYNC=1 tells which%)")
  local again, later = raises("the GPU's context is lost since", function() return x + 1 end)
  print(later)
  local other = raises("the GPU's context is lost since", function() return lt.zeros(3, {device = "cuda"}) end)
  local cpu = (lt.ones(3) + 1):sum():item() == 6
  print(string.format("told %s, named %s, again %s and %s, CPU %s", told, named ~= nil, again, other, cpu))
  print(told and named and again and other and cpu and "trapped: ok" or "trapped: failed")
  io.stdout:flush()
end

function sections.index()
  local table_ = lt.randn(10, 4, {device = "cuda"})
  local function look(i) return (table_ * 2):index_select(0, i):sum() end
  local good, bad = lt.tensor({1, 2}, {dtype = "int64", device = "cuda"}),
    lt.tensor({1, 12}, {dtype = "int64", device = "cuda"})
  local want = look(good):item()
  for _, f in ipairs {look, lt.compile(look)} do
    for _ = 1, 3 do
      local told,
        message = raises("index_select: index 12 is out of bounds for dimension 0 with size 10 (launched at ",
        function() return f(bad):item() end)
      report("an index out of range", told, message)
      report("  the GPU goes on", f(good):item() == want)
    end
  end
end

function sections.cache()
  local base = shell("mktemp -d"):gsub("\n", "")
  local text =
    [[local f = lt.compile(function(x) return (x * 3 + 1):tanh():softmax(1):sum(0) end) local t = lt.perf_counter() ]]
    ..
    [[local y = f(lt.ones(40, 50, {device = "cuda"})):cpu() print(y:totable()[7]) io.stderr:write(lt.perf_counter() - t, "\n")]]
  local one = ("LUTRA_CACHE_DIR=%s/c %s -e '%s'"):format(base, program, text)
  local out = shell(("(%s) 2>%s/t1 & (%s) 2>%s/t2 & wait"):format(one, base, one, base))
  local a, b = out:match("^(%S+)\n(%S+)\n$")
  report("two processes on one cache directory", a ~= nil and a == b, out:gsub("\n", " "))
  local n = tonumber(shell(("find %s/c -type f | wc -l"):format(base)))
  local again = shell(("%s 2>%s/t3"):format(one, base))
  report("  found again, no more and no torn entries", n > 0 and again == a .. "\n"
    and tonumber(shell(("find %s/c -type f | wc -l"):format(base))) == n,
    n .. " entries; seconds " .. shell(("cat %s/t1 %s/t2 %s/t3"):format(base, base, base)):gsub("\n", " "))
  shell("for f in " .. base .. "/c/*/*; do truncate -s 99 $f; done")
  report("  entries cut short are made again", shell(("%s 2>%s/t4"):format(one, base)) == a .. "\n")
  shell("rm -rf " .. base)
end

function sections.devices()
  if lt.cuda.device_count() < 2 then return print("       one GPU: what needs two was not seen") end
  local function work(x, w) return F.softmax(x:matmul(w) + 1, -1):sum(0) end
  lt.manual_seed(4)
  local x, w = lt.randn(64, 96), lt.randn(96, 32)
  local compiled, results = lt.compile(work), {}
  for i = 0, 1 do
    local a, b = x:cuda(i), w:cuda(i)
    results[i] = work(a, b)
    report("computes on cuda:" .. i, results[i].device == "cuda:" .. i)
    for _ = 1, 3 do report("  compiled", lt.equal(compiled(a, b), results[i])) end
  end
  report("both give the same bits", lt.equal(results[0]:cpu(), results[1]:cpu()))
  report("mixed devices",
    raises("expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!",
    function() return x:cuda(0) + x:cuda(1) end))
  for _, n in ipairs {1, 1000, fake and 2 ^ 14 or 2 ^ 26} do
    local a = lt.arange(n):to("float32")
    local first = a:cuda(0)
    local second = first:to("cuda:1")
    report("copy of " .. n .. " between GPUs", second.device == "cuda:1" and lt.equal(second:cpu(), a)
      and lt.equal(second:to("cuda:0"), first))
  end
  -- Writes right before and right after a copy are in order.
  local a = lt.zeros(fake and 2 ^ 12 or 2 ^ 20, {device = "cuda:0"})
  local good = true
  for i = 1, fake and 5 or 50 do
    a:fill_(i)
    local b = a:to("cuda:1")
    a:fill_(-1)
    good = good and b:min():item() == i and b:max():item() == i
  end
  report("copies between GPUs are in order", good)
  local big = lt.ones(fake and 2 ^ 14 or 2 ^ 28, {device = "cuda:0"})
  local to = lt.empty_like(big, {device = "cuda:1"})
  to:copy_(big)
  lt.cuda.synchronize(1)
  local t = lt.perf_counter()
  for _ = 1, 5 do to:copy_(big) end
  lt.cuda.synchronize(0) lt.cuda.synchronize(1)
  report("a copy to the other GPU", to[17]:item() == 1,
    string.format("%.1f GB/s", 5 * big:numel() * 4 / (lt.perf_counter() - t) / 1e9))
  local before = lt.cuda.memory_allocated(1)
  local there = lt.empty(2 ^ 20, {device = "cuda:1"})
  report("memory is counted by device", lt.cuda.memory_allocated(1) - before >= 2 ^ 22 and there.device == "cuda:1")
end

local wanted = #arg > 0 and arg or {"curve", "memory", "soak", "trap", "index", "cache", "devices"}
for _, name in ipairs(wanted) do
  local start = lt.perf_counter()
  if name ~= "trapped" then print("-- " .. name) end
  local ok, problem = xpcall(assert(sections[name], "no section " .. name), debug.traceback)
  if not ok then report(name, false, problem) end
  if name == "trapped" then os.exit(0) end
  print(string.format("       %.1f s", lt.perf_counter() - start))
end
common.finish "must_see"
