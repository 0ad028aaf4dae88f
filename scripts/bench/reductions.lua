-- Measures the speed of reductions on a GPU, by shape, layout, reduced dimensions and dtype: GB/s read, beside a copy
-- that reads and writes as many bytes together. Prints a line of JSON per case, and a summary. --random N adds N random
-- cases. LUTRA_CUDA_INTERPRET=0 makes Lutra compile each kernel before it is timed.
--   lutra scripts/bench/reductions.lua [--random N] [--seconds S] [CASE...]     a CASE stands for all that begin so
local lt = require "lutra"
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local common = dofile(here .. "common.lua")(arg, {random = 0, seconds = 0.02})
local options, is_wanted, emit, median = common.options, common.is_wanted, common.emit, common.median
lt.set_default_device("cuda")
lt.set_grad_enabled(false)
lt.manual_seed(0)

local function bench(f)
  return common.gpu_ms(f, {calls = 8, seconds = options.seconds, warmup = 3, samples = 5})
end

-- x of the given sizes, its dimensions in memory in the given order (outermost first).
local function laid_out(sizes, order, dtype)
  local outer, back = {}, {}
  for i, d in ipairs(order) do outer[i], back[d + 1] = sizes[d + 1], i - 1 end
  return lt.randn(outer):to(dtype):permute(back)
end

local copy_of = {}
local function copy_rate(bytes)
  local key = math.floor(math.log(bytes) / math.log(2) + 0.5)
  if not copy_of[key] then
    local x = lt.zeros(2 ^ (key - 2))
    local y = lt.zeros(2 ^ (key - 2))
    copy_of[key] = 2 * 2 ^ key / bench(function() y:copy_(x) end) / 1e6
  end
  return copy_of[key]
end

local ratios, worst = {}, {}
local function case(name, sizes, order, dims, dtype)
  if not is_wanted(name) then return end
  local x = laid_out(sizes, order, dtype)
  local bytes = x:numel() * x:element_size()
  local ms = bench(function() return x:sum(dims) end)
  local rate, copy = bytes / ms / 1e6, copy_rate(bytes)
  local full = ("%s %s [%s] by %s over %s"):format(name, dtype, table.concat(sizes, ","), table.concat(order),
    table.concat(dims, ","))
  emit(full, {{"ms", ms}, {"gbps", rate}, {"copy", copy}, {"ratio", rate / copy}})
  ratios[#ratios + 1] = rate / copy
  worst[#worst + 1] = {rate / copy, full}
end

local rows, last = {0, 1, 2, 3}, {0, 2, 3, 1}
for _, dtype in ipairs {"float32", "bfloat16"} do
  for _, shape in ipairs {{32, 64, 112, 112}, {32, 256, 56, 56}, {32, 128, 28, 28}, {32, 1024, 14, 14},
    {32, 2048, 7, 7}, {96, 96, 112, 112}, {96, 960, 7, 7}} do
    case("norm", shape, rows, {0, 2, 3}, dtype)
    case("norm_last", shape, last, {0, 2, 3}, dtype)
  end
  case("bias", {8, 512, 768}, {0, 1, 2}, {0, 1}, dtype)
  case("bias", {16, 1024, 4096}, {0, 1, 2}, {0, 1}, dtype)
  case("first", {4096, 4096}, {0, 1}, {0}, dtype)
  case("first", {65536, 256}, {0, 1}, {0}, dtype)
  case("first", {64, 262144}, {0, 1}, {0}, dtype)
  case("last", {4096, 4096}, {0, 1}, {1}, dtype)
  case("last", {64, 1048576}, {0, 1}, {1}, dtype)
  case("last", {1048576, 64}, {0, 1}, {1}, dtype)
  case("middle", {64, 512, 1024}, {0, 1, 2}, {1}, dtype)
  case("middle", {8, 16384, 128}, {0, 1, 2}, {1}, dtype)
  case("around", {16, 512, 4096}, {0, 1, 2}, {0, 2}, dtype)
  case("transposed", {4096, 8192}, {1, 0}, {0}, dtype)
  case("all", {64, 64, 64, 128}, rows, {0, 1, 2, 3}, dtype)
end

-- Random ones of 2^22 to 2^26 elements.
for n = 1, options.random do
  local rank, sizes, order, dims = math.random(2, 4), {}, {}, {}
  local left = math.random(22, 26)
  for d = 1, rank do
    local bits = d == rank and left or math.random(0, left)
    left = left - bits
    sizes[d] = math.max(1, 2 ^ bits - (bits > 4 and math.random(0, 1) * math.random(0, 2 ^ (bits - 4)) or 0))
    table.insert(order, math.random(1, #order + 1), d - 1)
  end
  for d = 0, rank - 1 do if math.random() < 0.5 then dims[#dims + 1] = d end end
  if #dims == 0 then dims[1] = math.random(0, rank - 1) end
  case("random", sizes, order, dims, ({"float32", "bfloat16", "float16"})[math.random(3)])
  if n % 16 == 0 then collectgarbage() end
end

table.sort(worst, function(a, b) return a[1] < b[1] end)
local good = 0
for _, ratio in ipairs(ratios) do good = good + (ratio >= 0.9 and 1 or 0) end
if #ratios > 0 then
  emit("all", {{"median", median(ratios)}}, {{"cases", #ratios}, {"at_copy_rate", good}})
  for i = 1, math.min(10, #worst) do emit("slow: " .. worst[i][2], {{"ratio", worst[i][1]}}) end
end
