-- lutra tune [SCRIPT [ARGS]]: measures which candidate of each library call is the fastest on this machine, and with
-- how many pieces. It measures the calls that the script makes, or products and convolutions that are common in
-- networks. From then on all programs of this user make such calls that way, eager and compiled alike.
-- lutra tune --limits: measures the limits of this machine, for reports of kernels.
local lt, use = ...
local native = lt._native

local PRODUCTS = {{128, 128, 128}, {512, 512, 512}, {1024, 1024, 1024}, {2048, 2048, 2048}, {1, 4096, 4096},
  {8, 4096, 4096}, {128, 768, 768}, {1024, 768, 768}, {1024, 768, 3072}, {1024, 3072, 768}, {64, 784, 128}}
-- Images, channels, rows and columns; then the results' channels, the window, its step, the groups.
local CONVOLUTIONS = {{{8, 3, 224, 224}, 64, 7, 2, 1}, {{8, 64, 56, 56}, 64, 3, 1, 1}, {{8, 64, 56, 56}, 256, 1, 1, 1},
  {{8, 128, 28, 28}, 128, 3, 1, 1}, {{8, 256, 14, 14}, 256, 3, 1, 1}, {{8, 512, 7, 7}, 512, 3, 1, 1},
  {{8, 96, 56, 56}, 96, 3, 2, 96}, {{8, 144, 28, 28}, 144, 3, 1, 144}}

local function usual_calls()
  for _, dtype in ipairs {lt.float32, lt.bfloat16} do
    for _, p in ipairs(PRODUCTS) do lt.randn(p[1], p[2]):to(dtype):mm(lt.randn(p[2], p[3]):to(dtype)) end
  end
  for _, c in ipairs(CONVOLUTIONS) do
    local size, channels, window, step, groups = unpack(c)
    local x, w = lt.randn(size), lt.randn(channels, size[2] / groups, window, window)
    lt.nn.functional.conv2d(x, w, {stride = step, padding = math.floor(window / 2), groups = groups})
  end
end

local function report()
  local calls = native.tune_stop()
  table.sort(calls, function(a, b) return a.gain > b.gain or (a.gain == b.gain and a.call < b.call) end)
  for _, c in ipairs(calls) do
    io.stderr:write(string.format("%5.2f x  %s%s%s, of %d: %s\n", c.gain, c.candidate,
      c.way > 0 and " " .. c.way or "", c.threads > 0 and ", as for " .. c.threads .. " threads" or "", c.options,
      c.call))
  end
  local path, problem = native.tune_save()
  if not path then error(problem, 0) end
  io.stderr:write(string.format("%d call%s, kept in %s\n", #calls, #calls == 1 and "" or "s", path))
end

return function(script, ...)
  if script == "--limits" then
    local limits = use "limits"
    local function say(text) io.stdout:write(text, "\n") io.stdout:flush() end
    print("kept in " .. limits.save(limits.measure(say)))
    return
  end
  local chunk, problem = usual_calls, nil
  if script then chunk, problem = loadfile(script) end
  if not chunk then error(problem, 0) end
  local exit = os.exit
  os.exit = function(...)
    os.exit = exit
    report()
    exit(...)
  end
  if script then _G.arg = {[0] = script, ...} end
  native.tune_start()
  local ok, message = xpcall(chunk, debug.traceback, ...)
  os.exit = exit
  report()
  if not ok then error(message, 0) end
end
