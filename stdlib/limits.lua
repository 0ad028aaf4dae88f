-- The limits of this machine, measured once by `lutra tune --limits` and kept as a small text in the user's cache
-- folder.
--   limits.measure(say) -> limits; limits.save(limits) -> path; limits.load() -> limits or nil
-- limits = {cpu =, threads =, cache_bytes =, shared_bytes =, [1] = {read_cache, copy_cache, read_shared, copy_shared,
-- read_memory, copy_memory, fma, gemm, gemm_bfloat16}, [threads] = {...}} in bytes and operations a second: of a core's
-- own cache, of the cache that cores share, of memory.
local lt, use = ...
local native = lt._native
local ffi = require "ffi"

local VERSION = 3
local CACHE_BYTES, SHARED_BYTES, MEMORY_BYTES = 2 ^ 19, 2 ^ 23, 2 ^ 28 -- for each thread
local GEMM = 1024
local RATES = {"read_cache", "copy_cache", "read_shared", "copy_shared", "read_memory", "copy_memory", "fma", "gemm",
  "gemm_bfloat16"}

ffi.cdef [[int lutra_limits_getpid(void) __asm__("getpid");]]

local folder = native.cache_directory

local function path() return folder() and folder() .. "/limits.txt" end

local function gemm_rate(threads, dtype)
  local before = lt.get_num_threads()
  lt.set_num_threads(threads)
  local a, b, best = lt.randn(GEMM, GEMM):to(dtype), lt.randn(GEMM, GEMM):to(dtype), 0
  for _ = 1, 8 do
    local start = lt.perf_counter()
    lt.mm(a, b)
    best = math.max(best, 2 * GEMM ^ 3 / (lt.perf_counter() - start))
  end
  lt.set_num_threads(before)
  return best
end

local function measure(say)
  local limits = {cpu = native.cpu_name(), threads = lt.get_num_threads(), cache_bytes = CACHE_BYTES,
    shared_bytes = SHARED_BYTES}
  for threads = 1, limits.threads do
    if threads == 1 or threads == limits.threads then
      local rates = {
        read_cache = native.measure("read", threads, CACHE_BYTES),
          copy_cache = native.measure("copy", threads, CACHE_BYTES),
        read_shared = native.measure("read", threads, SHARED_BYTES),
          copy_shared = native.measure("copy", threads, SHARED_BYTES),
        read_memory = native.measure("read", threads, MEMORY_BYTES),
          copy_memory = native.measure("copy", threads, MEMORY_BYTES),
        fma = native.measure("fma", threads), gemm = gemm_rate(threads, "float32"),
        gemm_bfloat16 = gemm_rate(threads, "bfloat16"),
      }
      limits[threads] = rates
      say(string.format("%d thread%s", threads, threads == 1 and "" or "s"))
      say(string.format("  cache   read %7.1f GB/s   copy %7.1f GB/s (read and written)", rates.read_cache / 1e9,
        rates.copy_cache / 1e9))
      say(string.format("  shared  read %7.1f GB/s   copy %7.1f GB/s", rates.read_shared / 1e9,
        rates.copy_shared / 1e9))
      say(string.format("  memory  read %7.1f GB/s   copy %7.1f GB/s", rates.read_memory / 1e9,
        rates.copy_memory / 1e9))
      say(string.format("  float32 multiply-adds %7.1f GFLOP/s   matrix product %7.1f GFLOP/s", rates.fma / 1e9,
        rates.gemm / 1e9))
      say(string.format("  bfloat16 matrix product %7.1f GFLOP/s", rates.gemm_bfloat16 / 1e9))
    end
  end
  return limits
end

local function save(limits)
  local dir = folder()
    or error("tune: none of LUTRA_CACHE_DIR, XDG_CACHE_HOME and HOME tells where to keep the limits", 0)
  use("folders").make(dir, 448) -- 0700
  local lines = {"# rates of this machine, in bytes and operations a second: lutra tune --limits", "version "
    .. VERSION, "cpu " .. limits.cpu,
                 "threads " .. limits.threads, "cache_bytes " .. limits.cache_bytes,
                 "shared_bytes " .. limits.shared_bytes}
  for threads = 1, limits.threads do
    for _, name in ipairs(limits[threads] and RATES or {}) do
      lines[#lines + 1] = string.format("%s %d %.6g", name, threads, limits[threads][name])
    end
  end
  local temporary = string.format("%s/limits.%d.tmp", dir, ffi.C.lutra_limits_getpid())
  local file, problem = io.open(temporary, "w")
  if not file then error("tune: cannot keep the limits: " .. problem, 0) end
  local ok = file:write(table.concat(lines, "\n"), "\n") and file:close()
  if not ok or not os.rename(temporary, path()) then
    os.remove(temporary)
    error("tune: cannot write " .. path(), 0)
  end
  return path()
end

-- Parses a file. One of another version or processor, or a damaged one, counts as absent.
local function parse(text)
  local limits = {}
  if tonumber(text:match("\nversion (%d+)\n")) ~= VERSION then return nil end
  limits.cpu = text:match("\ncpu ([^\n]*)\n")
  limits.threads, limits.cache_bytes = tonumber(text:match("\nthreads (%d+)\n")),
    tonumber(text:match("\ncache_bytes (%d+)\n"))
  limits.shared_bytes = tonumber(text:match("\nshared_bytes (%d+)\n"))
  if limits.cpu ~= native.cpu_name() or not limits.threads or not limits.cache_bytes or not limits.shared_bytes then
    return nil
  end
  for name, threads, rate in text:gmatch("\n([%a_][%w_]*) (%d+) (%S+)") do
    threads, rate = tonumber(threads), tonumber(rate)
    limits[threads] = limits[threads] or {}
    limits[threads][name] = rate
  end
  for threads = 1, limits.threads do -- between one and all threads: a multiple of one thread's rate
    limits[threads] = limits[threads] or {}
    for _, name in ipairs(RATES) do
      local one = limits[1][name]
      if not (one and one > 0) then return nil end
      limits[threads][name] = limits[threads][name] or one * threads
    end
  end
  return limits
end

local function load()
  local file = path() and io.open(path())
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  local ok, limits = pcall(parse, "\n" .. text)
  return ok and limits or nil
end

return {measure = measure, save = save, load = load}
