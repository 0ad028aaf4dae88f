-- fold, the gradients of unfold, and paddings whose columns join rows: against sums and loads one element at a time.
-- All instruction sets have the same bits, eager and compiled.
local lt = require "lutra"
local h = require "harness"
local F = lt.nn.functional
lt.config.recompile_limit = 1000

local function same(a, b) return a:equal(b) end

-- Adds the columns up by positions, in the order of the blocks.
local function folded(x, height, width, k, d, p, s)
  local n, c = x:size(0), x:size(1) / (k[1] * k[2])
  local rows = math.floor((height + 2 * p[1] - (k[1] - 1) * d[1] - 1) / s[1]) + 1
  local columns = math.floor((width + 2 * p[2] - (k[2] - 1) * d[2] - 1) / s[2]) + 1
  local all = lt.zeros(n, c, height + 2 * p[1], width + 2 * p[2])
  local taps = x:view(n, c, k[1], k[2], rows, columns)
  for i = 0, rows - 1 do
    for j = 0, columns - 1 do
      for a = 0, k[1] - 1 do
        for b = 0, k[2] - 1 do
          all:select(2, i * s[1] + a * d[1]):select(2, j * s[2] + b * d[2]):add_(taps:select(5, j):select(4, i)
            :select(3, b):select(2, a))
        end
      end
    end
  end
  return all:narrow(2, p[1], height):narrow(3, p[2], width)
end

local function gradient(x, dim, size, step)
  x.grad = nil
  local y = x:unfold(dim, size, step)
  ;(y * y):sum():backward()
  return x.grad
end

-- Whether compiled code and each instruction set give the bits of f(...).
local isas, own = h.isas {"interp", "avx2", "avx512"}, lt.config.isa
local function check_bits(what, f, ...)
  local want = f(...)
  for _, isa in ipairs(isas) do
    lt.config.isa = isa
    h.truthy(same(f(...), want), what .. ", eager, " .. isa)
    h.truthy(same(lt.compile(f)(...), want), what .. ", compiled, " .. isa)
  end
  lt.config.isa = own
end

h.test("fold adds what lies over a position", function()
  for _, c in ipairs {
    {k = {2, 3}, d = {1, 1}, p = {0, 0}, s = {1, 1}}, {k = {3, 3}, d = {1, 1}, p = {1, 1}, s = {2, 2}},
    {k = {2, 2}, d = {1, 1}, p = {0, 0}, s = {2, 2}}, {k = {2, 3}, d = {3, 2}, p = {2, 1}, s = {1, 1}},
    {k = {2, 2}, d = {2, 2}, p = {1, 0}, s = {2, 3}}, {k = {1, 2}, d = {1, 1}, p = {0, 0}, s = {3, 4}},
    {k = {5, 4}, d = {1, 1}, p = {2, 2}, s = {3, 1}}, {k = {1, 1}, d = {1, 1}, p = {0, 0}, s = {1, 1}},
  } do
    local height, width, blocks = 9, 11, 1
    for i, n in ipairs {height, width} do
      blocks = blocks * (math.floor((n + 2 * c.p[i] - (c.k[i] - 1) * c.d[i] - 1) / c.s[i]) + 1)
    end
    -- Integers: their sums are exact in any order.
    local x = lt.randint(-50, 50, {2, 3 * c.k[1] * c.k[2], blocks}):to(lt.float32)
    local options = {dilation = c.d, padding = c.p, stride = c.s}
    local y = F.fold(x, {height, width}, c.k, options)
    h.truthy(same(y, folded(x, height, width, c.k, c.d, c.p, c.s)), "fold " .. c.k[1] .. " " .. c.s[1])
    local r = lt.randn(2, 3 * c.k[1] * c.k[2], blocks)
    check_bits("fold", function(r) return F.fold(r, {height, width}, c.k, options) end, r)
  end
end)

h.test("the gradient of unfold counts the windows of an element", function()
  for _, c in ipairs {{0, 3, 1}, {0, 3, 2}, {1, 4, 4}, {1, 2, 3}, {2, 5, 2}, {1, 1, 1}, {2, 20, 1}, {0, 1, 5}} do
    local dim, size, step = unpack(c)
    for _, x in ipairs {lt.randn(6, 9, 24), lt.randn(24, 9, 6):permute {2, 1, 0}} do
      local counts = lt.zeros(x.shape)
      for w = 0, math.floor((x:size(dim) - size) / step) do counts:narrow(dim, w * step, size):add_(1) end
      x:requires_grad_()
      x.grad = nil
      x:unfold(dim, size, step):sum():backward()
      h.truthy(same(x.grad, counts), "counts " .. table.concat(c, " "))
      check_bits("gradient " .. table.concat(c, " "), gradient, x, dim, size, step)
    end
  end
end)

local function position(mode, i, n)
  if mode == "replicate" then return math.min(math.max(i, 0), n - 1) end
  if mode == "circular" then return i % n end
  i = math.abs(i)
  return n - 1 - math.abs(i - (n - 1))
end

h.test("a padding loads the element of its position", function()
  for _, mode in ipairs {"reflect", "replicate", "circular"} do
    for _, pad in ipairs {{2, 1, 1, 2}, {0, 3, 2, 0}, {6, 5, 3, 3}, {1, 0, 0, 0}, {4, 4, 1, 1}, {-1, 2, 1, -2}} do
      for _, x in ipairs {lt.randn(2, 3, 5, 40), lt.randn(2, 3, 40, 7):transpose(2, 3):contiguous():transpose(2, 3),
        lt.randn(1, 2, 4, 7)} do
        local rows, columns, right = x:size(2), x:size(3), true
        local y = F.pad(x, pad, mode)
        if pad[1] >= 0 then
          for i = 0, y:size(2) - 1 do
            local row = x:select(2, position(mode, i - pad[3], rows))
            for j = 0, y:size(3) - 1 do
              right = right and same(y:select(2, i):select(2, j), row:select(2, position(mode, j - pad[1], columns)))
            end
          end
        end
        h.truthy(right, mode .. " " .. table.concat(pad, " "))
        check_bits(mode, function(x) return F.pad(x, pad, mode) end, x)
      end
    end
  end
end)

h.test("rows of short and long pieces", function()
  for _, n in ipairs {16, 33, 70} do
    local a, b, c, d = lt.randn(3, 5, 1), lt.randn(3, 5, 2), lt.randn(3, 5, n), lt.randn(5, 3, 9):transpose(0, 1)
    local pieces = {a, b, c, b, d, a, a, b, c, a}
    local y, at, right = lt.cat(pieces, -1), 0, true
    for _, p in ipairs(pieces) do
      right = right and same(y:narrow(2, at, p:size(2)), p)
      at = at + p:size(2)
    end
    h.truthy(right, "pieces beside " .. n)
    check_bits("cat", function(a, b, c, d) return lt.cat({a, b, c, b, d, a, a, b, c, a}, -1) end, a, b, c, d)
  end
end)

h.finish()
