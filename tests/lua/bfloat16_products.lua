-- Tests bfloat16 products of random shapes, layouts and epilogues: they are near those of float64, and have the same
-- bits eagerly and compiled, on every instruction set of this machine and with any number of threads.
local lt = require "lutra"
local h = require "harness"
local test, truthy, equal = h.test, h.truthy, h.equal

local isas = h.isas {"avx512", "avx2"}

local seed = 1
local function random(n)
  seed = (seed * 48271) % 2147483647
  return seed % n
end
local function pick(list) return list[random(#list) + 1] end

-- An operand in a layout of its own: as it is, transposed, with a gap behind each row, at an odd address, every other
-- element.
local function operand(batch, rows, cols)
  local function make(r, c) return lt.randn(batch and {batch, r, c} or {r, c}):to("bfloat16") end
  local layout = random(5)
  if layout == 0 then return make(rows, cols) end
  if layout == 1 then return make(cols, rows):transpose(-1, -2) end
  if layout == 2 then return make(rows, cols + 5):narrow(-1, 0, cols) end
  if layout == 3 then return make(rows + 1, cols + 3):narrow(-1, 3, cols):narrow(-2, 1, rows) end
  return make(rows, 2 * cols + 1):narrow(-1, 0, 2 * cols):unflatten(-1, {cols, 2}):select(-1, 1)
end

-- Compiled code gives the same bits: it also rounds between the steps.
local epilogues = {
  plain = function(y) return y end,
  bias = function(y, b) return y + b end,
  relu = function(y, b) return (y + b):relu() end,
  gelu = function(y, b) return lt.nn.functional.gelu(y + b) end,
  residual = function(y, b) return y * 0.5 + b + y end,
  wide = function(y, b) return y:to("float32") * b:to("float32") end,
  sums = function(y, b) return (y * b):sum(-1), y:amax(-2) end,
  softmax = function(y) return y:softmax(-1) end,
  again = function(y, b) return y:matmul(y:transpose(-1, -2)) + b:sum() end,
}
local names = {}
for name in pairs(epilogues) do names[#names + 1] = name end
table.sort(names)

local function results(f, ...)
  local out = {f(...)}
  for i, t in ipairs(out) do out[i] = t:to("float32") end
  return out
end
local function check_same(want, got, what)
  for i, w in ipairs(want) do
    local g = got[i]
    truthy(w:eq(g):logical_or(w:ne(w):logical_and(g:ne(g))):all():item(), what)
  end
end

local sizes = {1, 2, 7, 16, 17, 31, 32, 33, 64, 100}
local function case(round)
  local batch = round % 3 == 0 and pick{1, 2, 5} or nil
  local m, n, k = pick(sizes), pick(sizes), round % 4 == 0 and pick{511, 512, 513, 1025, 1600} or pick(sizes)
  local a, b = operand(batch, m, k), operand(batch, k, n)
  local bias, name = lt.randn({n}):to("bfloat16"), names[round % #names + 1]
  local what = string.format("round %d: %s x %d x %d x %d, %s", round, batch, m, k, n, name)
  local y = a:matmul(b)
  local exact = a:to("float64"):matmul(b:to("float64"))
  local bound = a:to("float64"):abs():matmul(b:to("float64"):abs()) * 1e-6 + exact:abs() / 256 + 1e-30
  truthy((y:to("float64") - exact):abs():le(bound):all():item(), what .. ": far from float64")

  local epilogue = epilogues[name]
  local f = function(x, w, z) return epilogue(x:matmul(w), z) end
  lt.reset()  -- each round is a first one for its function
  local want = results(f, a, b, bias)
  check_same(want, results(lt.compile(f), a, b, bias), what .. ": compiled")
  h.on_each_machine(isas, function(machine)
    check_same(want, results(f, a, b, bias), what .. machine)
  end)
end

for part = 0, 3 do
  test("products of random shapes, part " .. part, function()
    lt.manual_seed(part)
    local rounds = 30 * (tonumber(os.getenv("LUTRA_TEST_SCALE")) or 1)
    for round = 1, rounds do case(part * rounds + round) end
  end)
end

test("long sums are cut alike at any number of threads", function()
  lt.manual_seed(1)
  local a, b = lt.randn({64, 9000}):to("bfloat16"), lt.randn({9000, 96}):to("bfloat16")
  local want = a:mm(b)
  local before = lt.get_num_threads()
  for _, threads in ipairs{1, 2, 16} do
    lt.set_num_threads(threads)
    for _, isa in ipairs{false, isas[1] or false, isas[2] or false} do
      lt.config.isa = isa or nil
      truthy(a:mm(b):eq(want):all():item(), threads .. " threads on " .. tostring(isa))
    end
  end
  lt.config.isa = nil
  lt.set_num_threads(before)
end)

test("denormal operands are zeros, and what is around a product keeps its denormal numbers", function()
  local tiny = lt.full({40, 40}, 1e-40):to("bfloat16")
  equal(tiny:ne(0):all():item(), true)
  equal(tiny:mm(lt.ones({40, 40}):to("bfloat16")):eq(0):all():item(), true)
  equal((lt.full({40}, 1e-40) * 1):ne(0):all():item(), true)
  local f = lt.compile(function(x, y) return x:mm(x):to("float32") + y end)
  equal(f(tiny, lt.full({40, 40}, 1e-40)):ne(0):all():item(), true)
end)

h.finish()
