-- Tests bfloat16 convolutions of random shapes and layouts, and their gradients: they are near those of float64, and
-- have the same bits eagerly and compiled, on every instruction set of this machine and with any number of threads.
local lt = require "lutra"
local h = require "harness"
local test, truthy, equal = h.test, h.truthy, h.equal
local F = lt.nn.functional

local isas = h.isas {"avx512", "avx2", "interp"}

local seed = 1
local function random(n)
  seed = (seed * 48271) % 2147483647
  return seed % n
end
local function pick(list) return list[random(#list) + 1] end

-- An image in a layout of its own: as it is, channels innermost, a part of a larger one, lines innermost.
local function image(n, c, height, width)
  local layout = random(4)
  if layout == 0 then return lt.randn({n, c, height, width}):to("bfloat16") end
  if layout == 1 then return lt.randn({n, height, width, c}):to("bfloat16"):permute(0, 3, 1, 2) end
  if layout == 2 then
    local whole = lt.randn({n, c + 1, height + 1, width + 2}):to("bfloat16")
    return whole:narrow(1, 1, c):narrow(2, 0, height):narrow(3, 1, width)
  end
  return lt.randn({n, c, width, height}):to("bfloat16"):transpose(2, 3)
end

local function convolve(x, w, b, o)
  return F.conv2d(x, w, b, o.stride, o.padding, o.dilation, o.groups)
end

-- The map and the gradients of image, weight and bias.
local function answers(f, x, w, b, g, o)
  x, w = x:detach():requires_grad_(), w:detach():requires_grad_()
  b = b and b:detach():requires_grad_()
  local y = f(x, w, b, o)
  y:backward(g)
  return {y:detach(), x.grad, w.grad, b and b.grad}
end

local function same(want, got, what)
  for i, t in pairs(want) do
    local a, b = t:to("float32"), got[i]:to("float32")
    truthy(a:eq(b):logical_or(a:ne(a):logical_and(b:ne(b))):all():item(), what .. ": result " .. i)
  end
end

local function near(want, bound, got, what)
  for i, t in pairs(want) do
    local far = (t - got[i]:to("float64")):abs():gt(bound[i] * 1e-5 + t:abs() / 200)
    truthy(not far:any():item(), what .. ": result " .. i .. " is far from float64's")
  end
end

local function double(t) return t and t:to("float64") end
local function absolute(t) return t and t:to("float64"):abs() end

local function case(round)
  local o = {groups = pick{1, 1, 1, 2, 3}, stride = pick{1, 1, 2}, padding = pick{0, 1, 2}, dilation = pick{1, 1, 2}}
  local kh, kw = pick{1, 1, 2, 3}, pick{1, 1, 3}
  if round % 3 == 0 then kh, kw, o.stride, o.padding = 1, 1, 1, 0 end
  local c, k = pick{1, 3, 8, 17, 32, 40, 64}, pick{1, 2, 8, 17, 32, 48}
  if round % 5 == 0 then c = 200 end
  local n, height, width = pick{1, 2, 3}, kh * 2 + random(9), kw * 2 + random(12)
  local x = image(n, o.groups * c, height, width)
  local w = image(o.groups * k, c, kh, kw)
  local b = random(2) == 0 and lt.randn({o.groups * k}):to("bfloat16") or nil
  local what = string.format("round %d: %d x (%d x %d) x %d x %d, %d maps, %d x %d, stride %d, padding %d, dilation %d",
    round, n, o.groups, c, height, width, k, kh, kw, o.stride, o.padding, o.dilation)
  local g = lt.randn(convolve(x, w, b, o).shape):to("bfloat16")
  lt.reset()  -- each round is a first one for its function
  local want = answers(convolve, x, w, b, g, o)
  near(answers(convolve, double(x), double(w), double(b), double(g), o),
    answers(convolve, absolute(x), absolute(w), absolute(b), absolute(g), o), want, what)
  same(want, answers(lt.compile(convolve), x, w, b, g, o), what .. ": compiled")
  same(want, answers(convolve, x:contiguous(), w:contiguous(), b, g, o), what .. ": contiguous")
  h.on_each_machine(isas, function(machine)
    same(want, answers(convolve, x, w, b, g, o), what .. machine)
  end)
end

for part = 0, 3 do
  test("convolutions of random shapes, part " .. part, function()
    lt.manual_seed(part)
    local rounds = 15 * (tonumber(os.getenv("LUTRA_TEST_SCALE")) or 1)
    for round = 1, rounds do case(part * rounds + round) end
  end)
end

test("a convolution of one pixel is the product of its channels", function()
  lt.manual_seed(1)
  for _, c in ipairs{5, 32, 700} do
    local x, w = lt.randn({2, c, 7, 9}):to("bfloat16"), lt.randn({33, c}):to("bfloat16")
    local want = w:matmul(x:flatten(2)):view(2, 33, 7, 9)
    equal(F.conv2d(x, w:view(33, c, 1, 1)):eq(want):all():item(), true)
  end
end)

test("denormal elements and biases are zeros", function()
  local tiny = lt.full({1, 40, 5, 5}, 1e-40):to("bfloat16")
  local ones, bias = lt.ones({8, 40, 3, 3}):to("bfloat16"), lt.full({8}, 1e-40):to("bfloat16")
  equal(tiny:ne(0):all():item(), true)
  equal(F.conv2d(tiny, ones, bias):eq(0):all():item(), true)
end)

h.finish()
