-- A program of a stock LuaJIT that has its data in arrays of the ffi: Lutra works on them in place.
local ffi = require "ffi"
local lt = require "lutra"

local n = 1000
local xs, ys = ffi.new("double[?]", n), ffi.new("double[?]", n)
for i = 0, n - 1 do
  xs[i] = i / n
  ys[i] = 3 * xs[i] * xs[i] - 2 * xs[i] + 0.5
end

local x, y = lt.from_ffi(xs), lt.from_ffi(ys)
local w = lt.zeros(3, {dtype = "float64", requires_grad = true})
local opt = lt.optim.Adam({w}, {lr = 0.05})
local step = lt.compile(function()
  local loss = ((w[0] * x * x + w[1] * x + w[2] - y) ^ 2):mean()
  opt:zero_grad() loss:backward() opt:step()
  return loss
end)
for _ = 1, 1500 do step() end
print(("found %.2f x^2 + %.2f x + %.2f"):format(w[0]:item(), w[1]:item(), w[2]:item()))

-- Results go back into the program's array.
local fitted = ffi.new("double[?]", n)
lt.no_grad(function() lt.from_ffi(fitted):copy_(w[0] * x * x + w[1] * x + w[2]) end)
local worst = 0
for i = 0, n - 1 do worst = math.max(worst, math.abs(fitted[i] - ys[i])) end
print(("largest error %.4f"):format(worst))
os.exit(worst < 0.05 and 0 or 1)
