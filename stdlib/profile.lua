-- lt.profile(f, {warmup = 0})(...): runs f once on these arguments, after `warmup` runs that do not count, and returns
-- the cost of each kernel and library call:
-- {kernels = {{name, op, calls, ms, bytes, flops, gbps, gflops, ratio_to_limit, file, line, candidate, why}, ...},
--    total_ms, kernel_ms, compile_ms, compiled_kernels, result = {n =, ...}}
-- candidate is the implementation of a library call, and why is the reason for choosing it (mode "max-autotune", `lutra
-- tune`). compile_ms is the part of total_ms that capture and compilation took, and compiled_kernels the kernels that
-- they made; no kernel's time includes it. Kernels are sorted by time, those of one name and line together. tostring
-- gives a table of 80 columns. ratio_to_limit is the least time that the machine's memory and arithmetic need (as
-- `lutra tune --limits` measured them), divided by the time taken. It is nil without a measurement.
local lt, use = ...
local keywords = use "keywords"
local fail = use("errors").fail
local native = lt._native

local WIDTH = 80

local function by_time(a, b) return a.ms > b.ms end

-- Returns the least seconds for so many bytes and operations of a call, some of them of bfloat16.
local function bound(limits, bytes, flops, bfloat16_flops)
  local threads = math.min(lt.get_num_threads(), limits.threads)
  local rates, level = limits[threads], "memory"
  if bytes <= limits.cache_bytes * threads then
    level = "cache"
  elseif bytes <= limits.shared_bytes then
    level = "shared"
  end
  local arithmetic = (flops - bfloat16_flops) / rates.gemm + bfloat16_flops / rates.gemm_bfloat16
  return math.max(bytes / math.max(rates["read_" .. level], rates["copy_" .. level]), arithmetic)
end

local function add_rates(rows)
  local limits = use "limits".load()
  for _, row in ipairs(rows) do
    local seconds = math.max(row.ms, 1e-6) / 1e3
    row.gbps, row.gflops = row.bytes / seconds / 1e9, row.flops / seconds / 1e9
    if limits and row.calls > 0 then
      local least = bound(limits, row.bytes / row.calls, row.flops / row.calls, row.bfloat16_flops / row.calls)
      row.ratio_to_limit = least * row.calls / seconds
    end
  end
  return limits ~= nil
end

local function clipped(text, width)
  if #text <= width then return text end
  return text:sub(1, width - 3) .. "..."
end

local function amount(n)
  for _, unit in ipairs {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} do
    if n >= unit[1] then return string.format("%.1f%s", n / unit[1], unit[2]) end
  end
  return string.format("%d", n)
end

local function count(n, noun, plural) return n .. " " .. noun .. (n == 1 and "" or plural or "s") end

local function place(row)
  if not row.file then return "" end
  return (row.file:match("[^/]+$") or row.file) .. ":" .. row.line
end

local Profile = {}
Profile.__index = Profile

function Profile:__tostring()
  local lines = {string.format("%9s %6s %6s %7s %6s %7s %6s  %s", "ms", "share", "calls", "bytes", "GB/s", "GFLOP/s",
    "limit", "kernel")}
  for _, row in ipairs(self.kernels) do
    local limit = row.ratio_to_limit and string.format("%d%%", row.ratio_to_limit * 100 + 0.5) or "-"
    local head = string.format("%9.3f %5.1f%% %6d %7s %6.1f %7s %6s  ", row.ms,
      100 * row.ms / math.max(self.kernel_ms, 1e-9), row.calls,
      amount(row.bytes / row.calls), row.gbps, row.flops > 0 and string.format("%.1f", row.gflops) or "-", limit)
    lines[#lines + 1] = head .. clipped(row.name, WIDTH - #head)
    local where = place(row)
    local ops = row.op ~= row.name and row.op or ""
    if row.candidate then ops = ops .. (ops ~= "" and " " or "") .. "by " .. row.candidate .. ": " .. row.why end
    if where ~= "" or ops ~= "" then
      where = clipped(where, 30)
      local room = WIDTH - 12 - (where ~= "" and #where + 2 or 0)
      lines[#lines + 1] = "            " .. where .. (where ~= "" and ops ~= "" and "  " or "") .. clipped(ops, room)
    end
  end
  local calls = 0
  for _, row in ipairs(self.kernels) do calls = calls + row.calls end
  lines[#lines + 1] = string.format("%9.3f ms in all, %.3f ms in %s of %s", self.total_ms, self.kernel_ms,
    count(calls, "launch", "es"),
    count(#self.kernels, "kernel"))
  if self.compile_ms > 0 then
    lines[#lines + 1] = string.format("%9.3f ms of them to compile (%s); {warmup = 1} calls f before", self.compile_ms,
      count(self.compiled_kernels, "new kernel"))
  end
  if not self.has_limits then
    lines[#lines + 1] = "limit: run `lutra tune --limits` once to learn what this machine can do"
  end
  return table.concat(lines, "\n")
end

-- Makes the users' report from the native records.
local function report(rows, total_ms, compile_ms, compiled_kernels, ...)
  table.sort(rows, by_time)
  local has_limits, kernel_ms = add_rates(rows), 0
  for _, row in ipairs(rows) do kernel_ms = kernel_ms + row.ms end
  return setmetatable({kernels = rows, total_ms = total_ms, kernel_ms = kernel_ms, compile_ms = compile_ms,
    compiled_kernels = compiled_kernels,
                       has_limits = has_limits, result = {n = select("#", ...), ...}}, Profile)
end
lt._native.profile_report = report -- lutra explain uses it too

local function finish(start, ok, ...)
  local total = (lt.perf_counter() - start) * 1e3
  local rows, compile_ms, compiled_kernels = native.profile_stop()
  if not ok then error((...), 0) end
  return report(rows, total, compile_ms, compiled_kernels, ...)
end

return function(f, options)
  local meta = type(f) == "table" and getmetatable(f)
  if type(f) ~= "function" and not (meta and meta.__call) then
    fail("profile: a function or a module is needed, not a " .. type(f))
  end
  local warmup = keywords.check("profile", options, {warmup = 0}).warmup
  if type(warmup) ~= "number" or warmup < 0 or warmup % 1 ~= 0 then
    fail("profile: warmup must be a whole number of at least 0, got " .. tostring(warmup))
  end
  return function(...)
    for _ = 1, warmup do f(...) end
    native.profile_start()
    return finish(lt.perf_counter(), pcall(f, ...))
  end
end
