-- Tests ops whose formula depends on a number, in compiled code that gets one number after another: the formula of one
-- number must not be used for the next.
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

-- Functions of Lua's libraries math and bit are expressions of numbers that change: results are LuaJIT's, bit for bit.
local NUMBERS = {3, 5, 0, -1, 1, -7, 255, 2 ^ 31 - 1, 2 ^ 31, -2 ^ 31, 2 ^ 31 + 5, 2 ^ 32, -2 ^ 32 - 3, 2 ^ 51 + 1,
  2 ^ 52 + 3, 2 ^ 53, -2 ^ 53, 2 ^ 60, 1e300, -0.0, 0.5, 1.5, 2.5, -0.5, -2.5, 2 ^ 31 - 0.5,
  1 / 0, -1 / 0, 0 / 0, 33, 64, -31}
local functions = {
  ["modf, the whole part"] = function(n) return (math.modf(n)) end,
  ["modf, the rest"] = function(n) return (select(2, math.modf(n))) end,
  ["log of base 2"] = function(n) return math.log(n, 2) end,
  ["log of base n"] = function(n) return math.log(1000, n) end,
  ["log of n of base m"] = function(n, m) return math.log(n, m) end,
  ["atan2 of 3"] = function(n) return math.atan2(n, 3) end,
  atan2 = function(n, m) return math.atan2(n, m) end,
  ["fmod by 3"] = function(n) return math.fmod(n, 3) end,
  ["fmod by -3"] = function(n) return math.fmod(n, -3) end,
  fmod = function(n, m) return math.fmod(n, m) end,
  ["band of one"] = function(n) return bit.band(n) end,
  ["bor of one"] = function(n) return bit.bor(n) end,
  ["bxor of one"] = function(n) return bit.bxor(n) end,
  ["band with 7"] = function(n) return bit.band(n, 7) end,
  ["bor with 2^31"] = function(n) return bit.bor(2 ^ 31, n) end,
  ["bxor with itself and -1"] = function(n) return bit.bxor(n, -1, n, 5) end,
  ["band of three"] = function(n, m) return bit.band(n, m, 0xff) end,
  ["bor of three"] = function(n, m) return bit.bor(n, m, 1) end,
  ["bits of a sum"] = function(n, m) return bit.bxor(n + m, n * 3) end,
  hash = function(n, m) return bit.bxor(bit.rol(bit.bnot(n), 5), bit.rshift(m, 3), bit.bswap(n)) end,
}
for _, name in ipairs {"tan", "tanh", "log10", "sinh", "cosh", "asin", "acos", "atan", "deg", "rad"} do
  local of_one = math[name]
  functions[name] = function(n) return of_one(n) end
end
for _, name in ipairs {"tobit", "bnot", "bswap"} do
  local of_one = bit[name]
  functions[name] = function(n) return of_one(n) end
end
for _, name in ipairs {"lshift", "rshift", "arshift", "rol", "ror"} do
  local shift = bit[name]
  functions[name .. " by 3"] = function(n) return shift(n, 3) end
  functions[name .. " by -1"] = function(n) return shift(n, -1) end
  functions[name .. " by n"] = function(n) return shift(0x80000005, n) end
  functions[name] = shift
end
local ones = lt.ones({3}, {dtype = "float64"})
for name, f in pairs(functions) do
  h.test("a function of a number that changes: " .. name, function()
    lt.reset()
    local function of(n, m)
      local r = f(n, m)
      return ones * r, r, r * 2
    end
    local compiled = lt.compile(of)
    for i, n in ipairs(NUMBERS) do
      local m = NUMBERS[#NUMBERS + 1 - i]
      local _, want, twice = of(n, m)
      local product, got, got_twice = compiled(n, m)
      h.equal(h.text {got, got_twice}, h.text {want, twice}, ("%s of %.17g, %.17g"):format(name, n, m))
      h.equal(("%a"):format(got), ("%a"):format(want), ("%s of %.17g, %.17g"):format(name, n, m))
      h.equal(h.text(product), h.text(ones * want))
    end
    -- The first call's numbers are constants; 1, 0 and -0 may be told apart by the product.
    local graphs = lt.counters().stats.unique_graphs
    h.truthy(graphs <= 3, graphs .. " graphs")
  end)
end

h.test("bits of a number that changes are sizes, indices and parts of texts", function()
  lt.reset()
  local t = lt.arange(64)
  local function f(n)
    local low = bit.band(n, 31)
    return t[low], t:narrow(0, low, 2 + bit.rshift(bit.lshift(n, 29), 29)), "bits " .. bit.bor(n, 64), n % 2 == 0
  end
  local compiled = lt.compile(f)
  for n = 2, 80 do h.equal(h.text {compiled(n)}, h.text {f(n)}) end
  local graphs = lt.counters().stats.unique_graphs
  h.truthy(graphs <= 4, graphs .. " graphs")
end)

h.test("functions of bits take what eager code takes, and refuse what it refuses", function()
  for _, name in ipairs {"band", "bor", "bxor", "lshift", "rol", "bnot", "tobit", "bswap", "ror"} do
    lt.reset()
    lt.config.recompile_limit = 30
    local function f(...) return ones * 2, bit[name](...) end
    local compiled = lt.compile(f)
    for _, args in ipairs {{5, 3}, {6, 3}, {7}, {8, 2, 1}, {9, "3"}, {"12", 4}, {10, 2}, {}, {nil, 3}, {11, {}},
      {12, true}, {13, 5}, {5LL, 3}, {0xffffffffffLL, 7}, {14, 6}} do
      local want, got = {pcall(f, unpack(args))}, {pcall(compiled, unpack(args))}
      for _, r in ipairs {want, got} do
        for i = 2, #r do r[i] = lt.is_tensor(r[i]) and h.text(r[i]) or tostring(r[i]):gsub("^.-:%d+: ", "") end
      end
      h.equal(h.text(got), h.text(want), name)
    end
    lt.config.recompile_limit = 8
  end
end)

h.finish()
