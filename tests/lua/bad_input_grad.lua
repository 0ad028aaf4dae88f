-- Tests that errors of wrong arguments are the same whether the op's first argument requires grad or not.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- g: the argument that may require grad; L: a tensor of int64.
local calls = [[
  F.mse_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.l1_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.huber_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.huber_loss(g(ones(2)), ones(2), {delta = -1})
  F.smooth_l1_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.smooth_l1_loss(g(ones(2)), ones(2), {beta = -1})
  F.cross_entropy(g(ones(2, 3)), L{0, 1}, {reduction = 'bad'})
  F.cross_entropy(g(ones(2, 3)), L{0, 1}, {weight = ones(2)})
  F.cross_entropy(g(ones(2, 3)), L{0, 1}, {weight = ones(4)})
  F.cross_entropy(g(ones(2, 3)), L{0, 1}, {label_smoothing = 2})
  F.cross_entropy(g(ones(2, 3)), L{0, 1, 2})
  F.cross_entropy(g(ones(2, 3)), L{0, 3})
  F.nll_loss(g(ones(2, 3)), L{0, 1}, {weight = ones(2)})
  F.kl_div(g(ones(2)), ones(2), {reduction = 'bad'})
  F.binary_cross_entropy(g(ones(2)), ones(2), {reduction = 'bad'})
  F.binary_cross_entropy_with_logits(g(ones(2)), ones(2), {reduction = 'bad'})
  F.binary_cross_entropy_with_logits(g(ones(2)), ones(3))
  F.binary_cross_entropy(g(ones(2)), ones(1))
  F.binary_cross_entropy(g(lt.full({2}, 2)), ones(2))
  F.poisson_nll_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.gaussian_nll_loss(g(ones(2)), ones(2), ones(2), {reduction = 'bad'})
  F.gaussian_nll_loss(g(ones(2)), ones(2), -ones(2))
  F.hinge_embedding_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.cosine_embedding_loss(g(ones(2, 3)), ones(2, 3), ones(2), {reduction = 'bad'})
  F.margin_ranking_loss(g(ones(2)), ones(2), ones(2), {reduction = 'bad'})
  F.multi_margin_loss(g(ones(2, 3)), L{0, 1}, {p = 3})
  F.multi_margin_loss(g(ones(2, 3)), L{0, 1}, {reduction = 'bad'})
  F.multilabel_margin_loss(g(ones(2, 3)), L{{0, 1, -1}, {0, 1, -1}}, {reduction = 'bad'})
  F.multilabel_soft_margin_loss(g(ones(2, 3)), ones(2, 3), {reduction = 'bad'})
  F.triplet_margin_loss(g(ones(2, 3)), ones(2, 3), ones(2, 3), {reduction = 'bad'})
  F.ctc_loss(g(ones(3, 1, 3):log_softmax(2)), L{{1, 2}}, L{3}, L{2}, {reduction = 'bad'})
  F.soft_margin_loss(g(ones(2)), ones(2), {reduction = 'bad'})
  F.glu(g(ones(3)))
  F.celu(g(ones(3)), 0)
  g(ones(3)):mean{dtype = 'int64'}
  lt.cov(g(ones(2, 2, 2)))
  F.prelu(g(ones(2, 3)), ones(2))
  g(ones(2, 3)):quantile(2)
  g(ones(3)):kthvalue(5)
  F.group_norm(g(ones(2, 4, 2)), 3)
  F.group_norm(g(ones(2, 4, 2)), 2, ones(3))
  F.layer_norm(g(ones(2, 3)), {3}, ones(2))
  F.layer_norm(g(ones(2, 3)), {3}, nil, ones(1))
  F.rms_norm(g(ones(2, 3)), {3}, ones(1))
  F.instance_norm(g(ones(2, 3, 4)), nil, nil, ones(2))
  F.batch_norm(g(ones(2, 3)), nil, nil, ones(1), nil, true)
  F.local_response_norm(g(ones(2, 3)), 2)
  F.pixel_shuffle(g(ones(1, 3, 2, 2)), 2)
  F.pixel_unshuffle(g(ones(1, 3, 3, 2)), 2)
  F.channel_shuffle(g(ones(1, 3, 2, 2)), 2)
  F.fold(g(ones(1, 5, 4)), {3, 3}, {2, 2})
  F.scaled_dot_product_attention(g(ones(1, 2, 4)), ones(1, 3, 5), ones(1, 3, 4))
  F.scaled_dot_product_attention(g(ones(1, 2, 4)), ones(1, 2, 4), ones(1, 2, 4), {attn_mask = mask, is_causal = true})
  F.bilinear(g(ones(2, 3)), ones(2, 4), ones(5, 3, 3))
  lt.cdist(g(ones(2, 3)), ones(2, 4))
  lt.cdist(g(ones(2, 3)), ones(2, 3), {p = -1})
  F.pdist(g(ones(2, 3, 1)))
  F.grid_sample(g(ones(1, 1, 2, 2)), ones(1, 2, 2, 3))
  F.grid_sample(g(ones(1, 1, 2, 2)), ones(1, 2, 2, 2), {mode = 'bad'})
  F.interpolate(g(ones(1, 1, 3)), {size = 2, mode = 'bilinear'})
  F.max_unpool2d(g(ones(1, 1, 2, 2)), lt.full({1, 1, 2, 2}, 99, {dtype = 'int64'}), 2)
  F.gumbel_softmax(g(ones(3)), {tau = 0, dim = 4})
  lt.tensordot(g(ones(2, 3)), ones(2, 3), 1)
  F.embedding(L{5}, g(ones(2, 2)))
  F.lp_pool2d(g(ones(1, 1, 2, 2)), 2, 5)
  g(ones(3)):take(L{5})
  lt.trace(g(ones(3)))
  lt.diag(g(ones(2, 2, 2)))
  lt.vander(g(ones(2, 2)))
  lt.renorm(g(ones(2, 2)), -1, 0, 1)
  lt.logcumsumexp(g(ones(2)), 3)
  lt.nanquantile(g(ones(2)), 0.5, {interpolation = 'bad'})
  lt.gradient(g(ones(2)), {edge_order = 3})
  lt.matrix_power(g(ones(2, 2)), -1)
  F.affine_grid(g(ones(1, 2, 2)), {1, 1, 2, 2})
  F.gelu(g(ones(2)), {approximate = 'bad'})
  F.normalize(g(ones(2)), {dim = 4})
  g(ones(3)):kthvalue(0)
  F.group_norm(g(ones(1, 4)), 4)
]]

-- Returns the error of a call without the op's name, because an op of its decomposition may raise it.
local function told(f, g)
  local ok, message = pcall(f, g)
  return not ok and (tostring(message):gsub("^.-:%d+: ", ""):gsub("^[%w_]+: ", ""))
end

test("each wrong call is told with a gradient, too", function()
  local env = setmetatable({
    F = lt.nn.functional,
    ones = lt.ones,
    mask = lt.ones(2, 2):bool(),
    L = function(v) return lt.tensor(v, {dtype = "int64"}) end,
    lt = lt,
  }, {__index = _G})
  for call in calls:gmatch("%s*([^\n]+)") do
    local f = setfenv(assert(loadstring("local g = ... return " .. call)), env)
    local plain = told(f, function(t) return t end)
    truthy(plain, call .. " raises nothing")
    equal(told(f, function(t) return t:detach():requires_grad_() end), plain, call)
  end
end)

h.finish()
