-- Tests activations, losses and distances as modules: they call their functions with the given options.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises
local nn, F = lt.nn, lt.nn.functional

lt.manual_seed(3)
local x, y = lt.randn(4, 6), lt.randn(4, 6)

test("activations equal their functions, options by position or by name", function()
  local rows = {
    {nn.ReLU(), F.relu(x)}, {nn.GELU(), F.gelu(x)}, {nn.GELU {approximate = "tanh"}, F.gelu(x, {approximate = "tanh"})},
    {nn.GELU("tanh"), F.gelu(x, {approximate = "tanh"})}, {nn.SiLU(), F.silu(x)},
      {nn.LeakyReLU(0.2), F.leaky_relu(x, 0.2)},
    {nn.LeakyReLU {negative_slope = 0.2}, F.leaky_relu(x, 0.2)}, {nn.ELU(0.5), F.elu(x, 0.5)},
      {nn.Hardtanh(-0.5, 0.25), F.hardtanh(x, -0.5, 0.25)},
    {nn.Softplus(2, 10), F.softplus(x, 2, 10)}, {nn.Threshold(0.1, 7), F.threshold(x, 0.1, 7)}, {nn.GLU(), F.glu(x)},
      {nn.GLU(0), F.glu(x, 0)},
    {nn.Sigmoid(), x:sigmoid()}, {nn.Tanh(), x:tanh()}, {nn.Softmin(1), F.softmin(x, 1)},
      {nn.LogSigmoid(), F.logsigmoid(x)},
    {nn.Mish(), F.mish(x)}, {nn.Hardswish(), F.hardswish(x)}, {nn.PReLU(), F.prelu(x, lt.full({1}, 0.25))},
  }
  for i, row in ipairs(rows) do truthy(row[1](x):equal(row[2]), "row " .. i) end
end)

test("inplace writes the input", function()
  local z = x:clone()
  local r = nn.ReLU {inplace = true}(z)
  truthy(rawequal(r, z) and z:equal(x:relu()))
  z = x:clone()
  nn.LeakyReLU(0.1, true)(z)
  truthy(z:equal(F.leaky_relu(x, 0.1)))
end)

test("losses equal their functions", function()
  local t = lt.tensor({0, 2, 5, 1}, {dtype = "int64"})
  local w = lt.rand(6) + 0.5
  truthy(nn.CrossEntropyLoss {weight = w, label_smoothing = 0.1}(x,
    t):equal(F.cross_entropy(x, t, {weight = w, label_smoothing = 0.1})))
  truthy(nn.CrossEntropyLoss(w)(x, t):equal(F.cross_entropy(x, t, w)))
  truthy(nn.SmoothL1Loss {beta = 0.5}(x, y):equal(F.smooth_l1_loss(x, y, {beta = 0.5})))
  truthy(nn.HuberLoss("sum", 0.5)(x, y):equal(F.huber_loss(x, y, {reduction = "sum", delta = 0.5})))
  truthy(nn.BCEWithLogitsLoss {pos_weight = w}(x,
    y:sigmoid()):equal(F.binary_cross_entropy_with_logits(x, y:sigmoid(), {pos_weight = w})))
  truthy(nn.TripletMarginLoss {margin = 2}(x, y, x * 0.5):equal(F.triplet_margin_loss(x, y, x * 0.5, {margin = 2})))
  truthy(nn.CosineSimilarity(1)(x, y):equal(F.cosine_similarity(x, y)))
end)

test("weights of losses are buffers", function()
  local loss = nn.BCEWithLogitsLoss {pos_weight = lt.full({6}, 2)}
  loss:to("float64")
  equal(loss.pos_weight.dtype, "float64")
  equal(loss(x:double(), y:double():sigmoid()).dtype, "float64")
end)

test("printing and errors", function()
  equal(tostring(nn.LeakyReLU(0.2)), "LeakyReLU(negative_slope=0.2)")
  equal(tostring(nn.ReLU()), "ReLU()")
  raises("GELU: unknown option 'form' (known: approximate)", nn.GELU, {form = "tanh"})
  raises("Mish: takes at most 1 argument, got 2", nn.Mish, false, 1)
  raises("LeakyReLU: argument 'negative_slope' is given twice", nn.LeakyReLU, 0.1, {negative_slope = 0.2})
  raises("gelu: approximate 'no' is unknown", nn.GELU("no"), x)
end)

test("compiled modules agree with eager ones, gradients too", function()
  local net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.SiLU(), nn.PReLU(), nn.Linear(8, 6),
    nn.ELU(0.7))
  local loss = nn.CrossEntropyLoss {label_smoothing = 0.1}
  local t = lt.tensor({0, 2, 5, 1}, {dtype = "int64"})
  local function step(x, t)
    local l = loss(net(x), t)
    net:zero_grad()
    l:backward()
    return l
  end
  local l = step(x, t)
  local grads = {}
  for i, p in ipairs(net:parameters()) do grads[i] = p.grad:clone() end
  local compiled = lt.compile(step)
  for _ = 1, 3 do
    truthy(compiled(x, t):equal(l))
    for i, p in ipairs(net:parameters()) do truthy(p.grad:equal(grads[i]), "gradient " .. i) end
  end
end)

test("a class out of range is told in the loss's name, eager and compiled, with and without gradients", function()
  local bad = lt.tensor({0, 9, 5, 1}, {dtype = "int64"})
  for _, name in ipairs {"cross_entropy", "nll_loss"} do
    local function f(a, b) return F[name](a, b) end
    local g = lt.compile(function(a, b) return F[name](a, b) end)
    for _, input in ipairs {x, x:clone():requires_grad_(true)} do
      raises(name .. ": target 9 is out of bounds for 6 classes", f, input, bad)
      raises(name .. ": target 9 is out of bounds for 6 classes", g, input, bad)
    end
  end
end)

test("losses of sequences and of triplets under a distance of one's own", function()
  local p = lt.randn(6, 2, 4):log_softmax(2):requires_grad_()
  local targets, joined = lt.tensor({{1, 2}, {3, 0}}, {dtype = "int64"}), lt.tensor({1, 2, 3}, {dtype = "int64"})
  local loss = nn.CTCLoss {reduction = "sum"}
  local step = lt.compile(function(x, y) return loss(x, y, {6, 5}, {2, 1}) end, {fullgraph = true})
  local want = F.ctc_loss(p, targets, {6, 5}, {2, 1}, 0, "sum")
  want:backward()
  local gradient = p.grad
  for _, y in ipairs {targets, joined} do
    p.grad = nil
    local got = step(p, y)
    got:backward()
    truthy(got:equal(want) and p.grad:equal(gradient))
  end
  truthy(nn.CTCLoss(3, "none", true)(p, targets, {1, 5}, {2, 1}):totable()[1] == 0)
  raises("ctc_loss: target 4 is out of bounds for 4 classes", F.ctc_loss, p, targets + 1, {6, 5}, {2, 1})
  local x, y, z = lt.randn(3, 4), lt.randn(3, 4), lt.randn(3, 4)
  local function city(a, b) return (a - b):abs():sum(1) end
  local triplet = nn.TripletMarginWithDistanceLoss {distance_function = city, margin = 2, swap = true}
  local near, far = city(x, y), lt.minimum(city(x, z), city(y, z))
  truthy(triplet(x, y, z):equal((near + 2 - far):clamp_min(0):mean()))
  raises("triplet_margin_with_distance_loss: argument 'distance_function' must be a function or a module, got number 3",
    F.triplet_margin_with_distance_loss, x, y, z, {distance_function = 3})
  truthy(nn.TripletMarginWithDistanceLoss {distance_function = nn.PairwiseDistance()}(x, y, z):equal(
    nn.TripletMarginWithDistanceLoss()(x, y, z)))
  truthy(nn.TripletMarginWithDistanceLoss()(x, y, z):equal(nn.TripletMarginLoss {margin = 1}(x, y, z)))
end)

h.finish()
