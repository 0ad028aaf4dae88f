-- Tests that results have eager's layout: eagerly, with a gradient, inside a compiled function and as its results, for
-- pointwise ops of every pair of dtypes and layouts.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal
local F = lt.nn.functional

local function words(text)
  local out = {}
  for word in text:gmatch("%S+") do out[#out + 1] = word end
  return out
end

local one = words [[neg abs exp log tanh sigmoid sqrt rsqrt reciprocal floor ceil sign relu square sin cos tan asin
  acosh erfinv lgamma polygamma trunc round positive signbit bitwise_not frexp deg2rad rad2deg frac sgn sinc logit
  nan_to_num isinf isfinite isposinf isneginf isnan logical_not gelu silu mish elu selu celu leaky_relu hardtanh relu6
  hardswish hardsigmoid hardshrink softshrink tanhshrink softsign softplus logsigmoid threshold softmin softmax
  cumsum clamp glu]]
local two = words [[add sub mul div pow remainder floor_divide minimum maximum atan2 hypot copysign nextafter fmod fmax
  fmin bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_left_shift isclose float_power ldexp logaddexp logaddexp2
  xlogy heaviside eq lt ge logical_and logical_xor rsub igamma true_divide clamp_min mse_loss l1_loss smooth_l1_loss
  huber_loss kl_div binary_cross_entropy_with_logits prelu]]
local three = words [[addcmul addcdiv lerp where masked_fill clamp]]

local given = {
  polygamma = function(f, x) return f(x, 1) end,
  softmin = function(f, x) return f(x, 1) end,
  softmax = function(f, x) return f(x, 1) end,
  cumsum = function(f, x) return f(x, 1) end,
  glu = function(f, x) return f(x, 0) end,
  threshold = function(f, x) return f(x, 1, 2) end,
  where = function(f, x, y, z) return f(z, x, y) end,
  masked_fill = function(f, x, _, z) return f(x, z, 2) end,
  prelu = function(f, x, y) return f(x, y:select(0, 0):select(-1, 0):reshape(1)) end,
}
for _, name in ipairs(words "mse_loss l1_loss smooth_l1_loss huber_loss kl_div binary_cross_entropy_with_logits") do
  given[name] = function(f, x, y) return f(x, y, {reduction = "none"}) end
end
given.clamp = function(f, x, y, z) return y and f(x, y, z) or f(x, 0, 1) end

local layouts = {
  plain = function(d) return lt.ones({2, 4, 3}, d) end,
  turned = function(d) return lt.ones({3, 4, 2}, d):permute(2, 1, 0) end,
  swapped = function(d) return lt.ones({4, 2, 3}, d):transpose(0, 1) end,
  spread = function(d) return lt.ones({4, 3}, d):expand(2, 4, 3) end,
  low = function(d) return lt.ones({3, 4}, d):t() end,
  steps = function(d) return lt.ones({2, 4, 6}, d)[{{}, {}, {0, nil, 2}}] end,
}
local kinds = words "turned swapped plain spread low steps"
local dtypes = words "float32 float64 float16 int64 bool"

local function show(t) return table.concat({t:stride()}, " ") .. " " .. t.dtype end

local cases = 0
local function compare(name, f, args, what)
  local call = given[name] and function(...) return (given[name](f, ...)) end or function(...) return (f(...)) end
  local ok, r = pcall(call, unpack(args))
  if not ok then return end
  cases = cases + 1
  -- A scale below 1 runs that share of the cases.
  if h.scale < 1 and math.floor(cases * h.scale) == math.floor((cases - 1) * h.scale) then return end
  local eager = show(r)
  lt.reset()
  local compiled = lt.compile(function(...)
    local v = call(...)
    return v, {v:stride()}, v.dtype
  end, {fullgraph = true, backend = "aot_eager"})
  local c, inside, dtype = compiled(unpack(args))
  equal(table.concat(inside, " ") .. " " .. dtype, eager, name .. " " .. what .. ": inside a compiled function")
  equal(show(c), eager, name .. " " .. what .. ": what a compiled function returns")
  local leaves, any = {}, false
  for i, x in ipairs(args) do
    leaves[i] = x
    if lt.is_floating_point(x) then leaves[i], any = x:detach():requires_grad_(), true end
  end
  if any then equal(show(call(unpack(leaves))), eager, name .. " " .. what .. ": with a gradient") end
end

local function each_name(names, run)
  for _, name in ipairs(names) do
    local f = lt[name] or F[name]
    if f then
      local ok, e = pcall(run, name, f)
      if not ok then table.insert(h.wrong, e) end
    end
  end
end

h.wrong = {}
test("of one tensor", function()
  each_name(one, function(name, f)
    for _, d in ipairs(dtypes) do
      for _, k in ipairs(kinds) do compare(name, f, {layouts[k] {dtype = d}}, d .. " " .. k) end
    end
  end)
end)
test("of two and three tensors", function()
  local n = 0
  local function pairs_of(name, f, third)
    for _, d in ipairs(dtypes) do
      for _, e in ipairs(dtypes) do
        for _, k in ipairs(kinds) do
          n = n + 1
          local l = kinds[n % #kinds + 1]
          local args = {layouts[k] {dtype = d}, layouts[l] {dtype = e}}
          if third then args[3] = layouts[kinds[n % 5 + 1]] {dtype = name:find "[wm][ha]" and "bool" or d} end
          compare(name, f, args, table.concat({d, k, e, l}, " "))
        end
      end
    end
  end
  each_name(two, function(name, f) pairs_of(name, f, false) end)
  each_name(three, function(name, f) pairs_of(name, f, true) end)
end)
test("none differed", function()
  for _, e in ipairs(h.wrong) do print(e) end
  equal(#h.wrong, 0)
end)

h.finish()
