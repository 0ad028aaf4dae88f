-- Tests failures on a GPU within a train step (fake_driver.cc): memory runs out at every point, each driver call fails
-- once, a kernel traps. Each has a message; nothing is lost; the run continues as if it had not happened.
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local ffi = require "ffi"
local test, equal, truthy = h.test, h.equal, h.truthy
local nn = lt.nn

ffi.cdef "int fake_cuda_calls(void); void fake_cuda_fail(int in_calls, int code); const char* fake_cuda_failed(void);"
local driver = ffi.load(os.getenv "LUTRA_CUDA_DRIVER")

-- Returns a net, its optimiser and a train step, with the same numbers each time.
local function start(options)
  lt.manual_seed(4)
  local layers = {nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)}
  if options.dropout then table.insert(layers, 2, nn.Dropout(0.2)) end
  local net = nn.Sequential(unpack(layers)):to("cuda")
  local opt = lt.optim.AdamW(net:parameters(), {lr = 1e-2})
  return {net = net, opt = opt, step = lt.compile(h.train_step(net, opt))}
end

local function batch(n, seed)
  local x, y = lt.ones(n, 12), lt.ones(n, {dtype = "int64"})
  for i = 0, n - 1 do
    y[i] = (i + seed) % 4
    x[i] = lt.arange(12) * ((i % 7 + seed) / 50) - 0.5
  end
  return {x:cuda(), y:cuda()}
end

-- Returns everything that a step changes, copied to the host.
local function state(t)
  local all = {}
  for _, p in ipairs(t.net:parameters()) do
    all[#all + 1] = p:detach():cpu()
    local kept = t.opt.state[p]
    if kept then
      all[#all + 1] = kept.exp_avg:cpu()
      all[#all + 1] = kept.exp_avg_sq:cpu()
      all[#all + 1] = lt.tensor(type(kept.step) == "number" and kept.step or kept.step:item())
    end
  end
  return all
end
local function same(a, b)
  if #a ~= #b then return false end
  for i = 1, #a do
    if not lt.equal(a[i], b[i]) then return false end
  end
  return true
end

local function collect() collectgarbage() collectgarbage() end

test("memory runs out at every point of a model's way to another device", function()
  local failures, done = 0, false
  for n = 0, 200 do
    collect()
    local net = nn.Linear(300, 300)
    net(lt.ones(1, 300)):sum():backward()
    driver.fake_cuda_fail(n, 2)
    done = pcall(net.to, net, "cuda")
    driver.fake_cuda_fail(0, 0)
    if not done then failures = failures + 1 end
    for _, p in ipairs(net:parameters()) do
      truthy(p.grad ~= nil and p.grad.device == p.device, "a gradient is lost at call " .. n .. "; it")
    end
    lt.cuda.empty_cache()
    if done and n > 40 then break end
  end
  truthy(failures > 0)
end)

test("memory runs out at every point of a compiled step", function()
  local sizes, batches = {}, {}
  for i = 1, 40 do sizes[i] = 40 + 40 * i batches[i] = batch(sizes[i], i) end
  local function run(limited)
    local t, losses, told = start {}, {}, 0
    local rooms = {0, 1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 256,
      320}
    for i = 1, #rooms + 3 do
      local room = limited and rooms[i - 3]
      if room then
        collect()
        lt.cuda.empty_cache()
        local held, before = {}, state(t)
        for _, bytes in ipairs {2 ^ 25, 2 ^ 20, 2 ^ 16, 2 ^ 12, 2 ^ 9} do
          while pcall(function() held[#held + 1] = lt.empty(bytes, {dtype = "uint8", device = "cuda"}) end) do end
        end
        for _ = 1, room do
          if #held > 0 then held[#held]:free() held[#held] = nil end
        end
        local ok, result = pcall(t.step, batches[i][1], batches[i][2])
        held = nil
        collect()
        if ok then
          losses[i] = result:item()
        else
          told = told + 1
          truthy(tostring(result):find("out of memory on cuda:0: tried to allocate", 1, true), tostring(result))
          truthy(same(state(t), before), "a step that failed with room " .. room .. " changed something")
        end
      end
      -- Now there is memory: the failed step is repeated.
      if not losses[i] then losses[i] = t.step(batches[i][1], batches[i][2]):item() end
    end
    return losses, state(t), told
  end
  local want, want_state = run(false)
  lt.reset()
  collect()
  local got, got_state, told = run(true)
  truthy(told >= 5, "memory ran out " .. told .. " times")
  truthy(told < 26, "memory never was enough")
  for i = 1, #want do equal(got[i], want[i], "loss " .. i) end
  truthy(same(got_state, want_state))
end)

test("every call of the driver fails once: in the first run, the recorded one, a replay", function()
  local data = batch(24, 1)
  local function run(fail_in, n, code)
    lt.reset()
    collect()
    local t = start {dropout = true}
    local problem, failed
    for i = 1, 4 do
      local before = state(t)
      if i == fail_in then driver.fake_cuda_fail(n, code) end
      local calls = driver.fake_cuda_calls()
      local ok, result = pcall(t.step, data[1], data[2])
      calls = driver.fake_cuda_calls() - calls
      if i == fail_in then
        failed = ffi.string(driver.fake_cuda_failed())
        driver.fake_cuda_fail(0, 0)
        if failed == "" then return nil, calls end
      end
      if not ok then
        problem = tostring(result)
        -- Earlier work of the GPU may have been done by then, but never only half of it.
        local now = state(t)
        if same(now, before) then t.step(data[1], data[2]) end
      end
    end
    return state(t), failed, problem
  end
  local want = run(0, 0, 0)
  for _, code in ipairs {2, 1} do
    for fail_in = 1, 3 do
      local told, n = 0, 0
      while true do
        local got, failed, problem = run(fail_in, n, code)
        if not got then break end
        local what = ("call %d of run %d, %s, with %d: %s"):format(n, fail_in, failed, code, problem or "no error")
        -- If a launch is refused after others were accepted, there is only an error: no work is repeated.
        truthy(same(got, want) or (problem and problem:find("had begun to write its results", 1, true)), what)
        if problem then
          told = told + 1
          truthy(problem:find("CUDA_ERROR", 1, true) or problem:find("out of memory on cuda:0", 1, true), what)
        end
        n = n + 1
      end
      truthy(n > 3, "calls " .. n)
    end
  end
end)

h.finish()
