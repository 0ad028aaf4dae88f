-- Ops whose formula depends on a number, in compiled code that meets one number after the other: what is right for one
-- must not be used for the next.
local h = require "harness"
local F, linalg, special = lt.nn.functional, lt.linalg, lt.special

lt.manual_seed(3)
local x, y, image = lt.randn(4, 4), lt.randn(4, 4), lt.randn(1, 2, 8, 8)
local labels = lt.tensor({0, 1, 2, 3}, {dtype = "int64"})
local ops = {
  vector_norm = function(n) return linalg.vector_norm(x, n) end,
  norm = function(n) return x:norm(n) end,
  norm_of_rows = function(n) return x:norm(n, 1) end,
  matrix_norm = function(n) return linalg.matrix_norm(x, n) end,
  linalg_norm = function(n) return linalg.norm(x, n) end,
  normalize = function(n) return F.normalize(x, {p = n}) end,
  pairwise_distance = function(n) return F.pairwise_distance(x, y, n) end,
  cdist = function(n) return lt.cdist(x, y, n) end,
  dist = function(n) return lt.dist(x, y, n) end,
  pdist = function(n) return F.pdist(x, n) end,
  renorm = function(n) return x:renorm(n, 0, 1) end,
  lp_pool2d = function(n) return F.lp_pool2d(image, n, 2) end,
  triplet_margin_loss = function(n) return F.triplet_margin_loss(x, y, x:flip(0), {p = n}) end,
  multi_margin_loss = function(n) return F.multi_margin_loss(x, labels, {p = n}) end,
  smooth_l1_loss = function(n) return F.smooth_l1_loss(x, y, {beta = n}) end,
  polygamma = function(n) return lt.polygamma(n, x:abs() + 1) end,
  polygamma_method = function(n) return (x:abs() + 1):polygamma(n) end,
  special_polygamma = function(n) return special.polygamma(n, x:abs() + 1) end,
  addmm = function(n) return lt.addmm(x / 0, x, y, {beta = n}) end,
  batch_norm = function(n) return F.batch_norm(x, nil, nil, {training = true, eps = n}) end,
  quantile = function(n) return x:quantile(n / 8) end,
  linspace = function(n) return lt.linspace(0, n, 5) end,
  histc = function(n) return x:histc(4, {min = -n, max = n}) end,
  round = function(n) return x:round {decimals = n} end,
  roll = function(n) return x:roll(n) end,
  matrix_power = function(n) return x:matrix_power(n) end,
  empty_permuted = function(n)
    local order = {{2, 1, 0}, {1, 0, 2}, {0, 2, 1}}
    return unpack(lt.empty_permuted({2, 3, 4}, order[n] or {n, 1, 2}):stride())
  end,
  random_ = function(n)
    local drawn = lt.zeros({50}, {dtype = "int8"}):random_(0, n * 100)
    return drawn:ge(0):all(), drawn:lt(n * 100):all()
  end,
}

local function outcome(op, n)
  local results = {pcall(op, n)}
  if not results[1] then return (tostring(results[2]):gsub("^.-:%d+: ", "")) end
  return h.text(results)
end

for name, op in pairs(ops) do
  h.test(name, function()
    local compiled = lt.compile(op)
    for _, n in ipairs {1, 2, 3, 1, 0, 2, .5, -1, 4, math.huge} do
      h.equal(outcome(compiled, n), outcome(op, n), name .. " of " .. n)
    end
  end)
end

h.finish()
