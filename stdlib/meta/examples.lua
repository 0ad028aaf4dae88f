-- One short example line for each public name, for its page and for tests. A name without a line has one by rule from
-- its schema: x:NAME() or x:NAME(y). A name_ has the example of its name, an alias that of the op. Only docs.lua and
-- tests load this.
local lt = ...
local describe = lt._native.describe

-- The inputs of the lines. `floats` are cast when an op is tried in each dtype. The others are not.
local floats = {
  {"x", "lt.tensor {{0.5, -1, 2}, {1.5, 0.25, -0.5}}"},
  {"y", "lt.tensor {{1, 2, -1}, {0.5, 3, 2}}"},
  {"v", "lt.tensor {1, 2, 3}"},
  {"p", "lt.tensor {{0.125, 0.5, 0.75}, {0.5, 0.25, 0.875}}"},
  {"m", "lt.tensor {{1, 2, 0}, {0, 1, 1}, {2, 0, 1}}"},
  {"a", "lt.tensor {{{1, 2, 0}, {0, 1, 1}}, {{2, 0, 1}, {1, 1, 3}}}"},
  {"image", "lt.arange(16, {dtype = \"float32\"}):view(1, 1, 4, 4)"},
  {"n", "lt.tensor {6, 4, 9}"},
  {"k", "lt.tensor {4, 6, 3}"},
  {"w", "lt.tensor {5, 7}"},
}
local others = {
  {"i", "lt.tensor({0, 2}, {dtype = \"int64\"})"},
  {"j", "lt.tensor({{0, 2, 1}, {1, 0, 2}}, {dtype = \"int64\"})"},
  {"labels", "lt.tensor({2, 0}, {dtype = \"int64\"})"},
  {"signs", "lt.tensor {1, -1}"},
  {"mask", "lt.tensor {{true, false, true}, {false, true, false}}"},
  {"z", "lt.complex(lt.tensor {1, 2}, lt.tensor {0, -1})"},
  {"leaf", "lt.tensor({1, 2, 3}, {requires_grad = true})"},
  {"path", "os.tmpname() .. \".npy\""},
}

local lines = {
  -- elementwise
  pow = "x:pow(2)", clamp = "x:clamp(-0.5, 1)", clamp_min = "x:clamp_min(0)", clamp_max = "x:clamp_max(1)",
  lerp = "x:lerp(y, 0.5)", addcdiv = "x:addcdiv(y, p)", addcmul = "x:addcmul(y, p)", rsub = "x:rsub(1)",
  gcd = "n:long():gcd(k:long())", lcm = "n:long():lcm(k:long())", heaviside = "x:heaviside(y)",
  bitwise_not = "n:long():bitwise_not()", bitwise_and = "n:long():bitwise_and(k:long())",
  bitwise_or = "n:long():bitwise_or(k:long())", bitwise_xor = "n:long():bitwise_xor(k:long())",
  bitwise_left_shift = "n:long():bitwise_left_shift(1)", bitwise_right_shift = "n:long():bitwise_right_shift(1)",
  acosh = "v:acosh()", atanh = "(x / 4):atanh()", logit = "p:logit()", erfinv = "(x / 4):erfinv()",
  acos = "(x / 4):acos()", asin = "(x / 4):asin()", log = "p:log()", log2 = "p:log2()", log10 = "p:log10()",
  log1p = "p:log1p()", sqrt = "p:sqrt()", rsqrt = "p:rsqrt()", lgamma = "p:lgamma()", digamma = "p:digamma()",
  xlogy = "x:xlogy(p)", float_power = "x:float_power(2)", float_power_ = "x:clone():double():float_power_(2)",
  threshold = "x:threshold(0, -1)", mvlgamma = "v:mvlgamma(2)",
  ["special.polygamma"] = "lt.special.polygamma(2, p)",
  ["special.entr"] = "lt.special.entr(p)", ["special.xlog1py"] = "lt.special.xlog1py(x, p)", isreal = "z:isreal()",
  prelu = "x:prelu(v)", polygamma = "p:polygamma(2)",
  igamma = "(p:detach() * 0 + 2):igamma(p)", igammac = "(p:detach() * 0 + 2):igammac(p)",
  igamma_ = "(p:detach() * 0 + 2):igamma_(p)", igammac_ = "(p:detach() * 0 + 2):igammac_(p)",
  glu = "image:glu()", fill = "x:fill(7)", fill_ = "x:clone():fill_(7)", zero_ = "x:clone():zero_()",
  copy_ = "x:clone():copy_(y)", masked_fill = "x:masked_fill(mask, 0)", nan_to_num = "(x / 0):nan_to_num(0, 1, -1)",
  where = "lt.where(mask, x, y)",
  resize_ = "x:clone():resize_(2, 2)", ldexp = "x:ldexp(y)", renorm = "x:renorm(2, 0, 1)", isin = "x:isin(v)",
  bucketize = "x:bucketize(v)", searchsorted = "v:searchsorted(x)", equal = "x:equal(y)", allclose = "x:allclose(y)",
  -- reductions and statistics
  cumsum = "x:cumsum(1)", cumprod = "x:cumprod(1)", cummax = "x:cummax(1)", cummin = "x:cummin(1)",
  logcumsumexp = "x:logcumsumexp(1)", logsumexp = "x:logsumexp(1)", softmax = "x:softmax(1)", softmin = "x:softmin(1)",
  log_softmax = "x:log_softmax(1)", sum = "x:sum(1)", mean = "x:mean(1)", max = "x:max(1)", min = "x:min(1)",
  median = "x:median(1)", nanmedian = "x:nanmedian(1)", argmax = "x:argmax(1)", argmin = "x:argmin(1)",
  prod = "x:prod(1)", all = "mask:all(1)", any = "mask:any(1)", kthvalue = "x:kthvalue(2)", topk = "x:topk(2)",
  quantile = "x:quantile(0.5)", nanquantile = "x:nanquantile(0.5)", histc = "x:histc(4, -1, 2)",
  histogramdd = "lt.histogramdd(x, 2)",
  histogram = "x:histogram(3)", mode = "x:mode(1)", bincount = "i:bincount()", std = "x:std(1)", var = "x:var(1)",
    std_mean = "x:std_mean(1)", var_mean = "x:var_mean(1)",
  gradient = "lt.gradient(v)", linalg_norm = "lt.linalg.norm(x)", linalg_matrix_norm = "lt.linalg.matrix_norm(x)",
  dist = "x:dist(y)", cdist = "x:cdist(y)", norm = "x:norm()", normalize = "x:normalize()",
  sum_to_size = "x:sum_to_size(1, 3)", trace = "m:trace()", trapezoid = "v:trapezoid()",
  cumulative_trapezoid = "v:cumulative_trapezoid()", diff = "v:diff()", unique = "n:unique()",
  -- shapes
  complex = "lt.complex(x:detach(), y:detach())", polar = "lt.polar(x:detach(), y:detach())",
  is_complex = "z:is_complex()", real = "lt.real(x)",
  imag = "lt.imag(z)", view_as_real = "lt.view_as_real(z)", view_as_complex = "lt.view_as_complex(x:t():contiguous())",
  view = "x:view(3, 2)", reshape = "x:reshape(3, 2)", expand = "v:expand(2, 3)", expand_as = "v:expand_as(x)",
  broadcast_to = "v:broadcast_to(2, 3)", broadcast_tensors = "lt.broadcast_tensors(x, v)",
  permute = "a:permute(2, 0, 1)", transpose = "x:transpose(0, 1)", t = "x:t()", movedim = "a:movedim(0, 2)",
  unsqueeze = "v:unsqueeze(0)", squeeze = "image:squeeze()", unflatten = "x:unflatten(1, {3, 1})",
  select = "x:select(0, 1)", narrow = "x:narrow(1, 0, 2)", slice = "x:slice(1, 0, 2)", split = "x:split(2, 1)",
  unsafe_split = "x:unsafe_split(2, 1)",
  split_with_sizes = "x:split_with_sizes({1, 2}, 1)", chunk = "x:chunk(2, 1)", tensor_split = "x:tensor_split(2, 1)",
  hsplit = "x:hsplit(3)", vsplit = "x:vsplit(2)", dsplit = "a:dsplit(3)", unbind = "x:unbind(0)",
  unfold = "v:unfold(0, 2, 1)", as_strided = "x:as_strided({2, 2}, {1, 2})", reshape_as = "x:reshape_as(y)",
  view_as = "x:view_as(y)", flip = "x:flip(1)", roll = "x:roll(1, 1)", rot90 = "x:rot90(1, {0, 1})", tile = "v:tile(2)",
  ["repeat"] = "x[\"repeat\"](x, 1, 2)", repeat_interleave = "v:repeat_interleave(2)", diag_embed = "v:diag_embed()",
  as_strided_scatter = "x:as_strided_scatter(y, {2, 3}, {3, 1})",
  diagonal_scatter = "m:diagonal_scatter(v)", select_scatter = "x:select_scatter(v, 0, 1)",
  slice_scatter = "x:slice_scatter(y, 0)", combinations = "v:combinations()", adjoint = "x:adjoint()",
  pad = "x:pad {1, 1}", constant_pad_nd = "x:constant_pad_nd {1, 1}", one_hot = "lt.one_hot(labels)",
  channel_shuffle = "a:permute(2, 0, 1):unsqueeze(0):channel_shuffle(3)",
  pixel_shuffle = "image:view(1, 4, 2, 2):pixel_shuffle(2)", pixel_unshuffle = "image:pixel_unshuffle(2)",
  im2col = "lt.im2col(image, 2)", col2im = "lt.col2im(image:view(1, 4, 4), 3, 2)",
  einsum = "lt.einsum(\"ij,kj->ik\", x, y)", meshgrid = "lt.meshgrid(v, n)", cat = "lt.cat({x, y}, 0)",
  stack = "lt.stack {x, y}", hstack = "lt.hstack {x, y}", vstack = "lt.vstack {x, y}", dstack = "lt.dstack {x, y}",
  column_stack = "lt.column_stack {v, n}", block_diag = "lt.block_diag {x, m}",
  pad_sequence = "lt.pad_sequence {x, x:narrow(0, 0, 1)}",
  cartesian_prod = "lt.cartesian_prod {v, n}", atleast_1d = "lt.atleast_1d(v)", atleast_2d = "lt.atleast_2d(v)",
  atleast_3d = "lt.atleast_3d(v)",
  -- products
  matmul = "x:matmul(m)", mm = "x:mm(m)", bmm = "a:bmm(a:transpose(1, 2))", mv = "x:mv(v)", dot = "v:dot(n)",
  vdot = "v:vdot(n)", inner = "x:inner(y)", outer = "v:outer(n)", addmm = "x:addmm(y, m)", addmv = "v:addmv(m, n)",
  addr = "m:addr(v, n)", addbmm = "a[0]:addbmm(a, a:new_ones(2, 3, 3))", baddbmm = "a:baddbmm(a, a:new_ones(2, 3, 3))",
  matrix_power = "m:matrix_power(2)", kron = "x:kron(v)", cross = "x:cross(y)", linalg_cross = "lt.linalg.cross(x, y)",
  linalg_multi_dot = "lt.linalg.multi_dot {x, m, m}", chain_matmul = "lt.chain_matmul(x, m, m)",
    linalg_vecdot = "lt.linalg.vecdot(x, y)",
  linalg_vector_norm = "lt.linalg.vector_norm(x)", tensordot = "lt.tensordot(x, y, 2)", linear = "x:linear(y)",
  bilinear = "x:bilinear(y, a:new_ones(1, 3, 3))",
  weight_int8pack_mm = "lt.weight_int8pack_mm(x, y:to('int8'), x:select(1, 0))",
  weight_int4pack_mm = "lt.weight_int4pack_mm(x:new_ones(2, 32), lt.ones({3, 16}, {dtype = 'uint8'}), 32, "
    .. "x:new_ones(1, 3, 2))",
  scaled_dot_product_attention = "a:scaled_dot_product_attention(a, a)", tril_indices = "lt.tril_indices(2, 2)",
  triu_indices = "lt.triu_indices(2, 2)",
  -- indexing
  gather = "x:gather(1, j)", index_select = "x:index_select(1, i)", scatter = "x:scatter(1, j, y)",
  scatter_add = "x:scatter_add(1, j, y)", scatter_reduce = "x:scatter_reduce(1, j, y, \"amax\")",
  index_add = "v:index_add(0, labels, w)", index_copy = "v:index_copy(0, labels, w)",
  index_fill = "x:index_fill(1, i, 0)", index_put = "v:index_put({i}, w)", index_put_ = "v:clone():index_put_({i}, w)",
  index_reduce = "v:index_reduce(0, labels, w, \"prod\")", take = "x:take(i)",
  take_along_dim = "x:take_along_dim(j, 1)", put = "x:put(i, w)", masked_scatter = "x:masked_scatter(mask, y)",
  masked_select = "x:masked_select(mask)", embedding = "i:embedding(m)",
  embedding_renorm_ = "lt.embedding_renorm_(m:detach():clone(), i, 1, 2)",
    unravel_index = "lt.unravel_index(i, {2, 3})",
  -- layers
  layer_norm = "x:layer_norm(3)", rms_norm = "x:rms_norm(3)", group_norm = "image:view(1, 4, 4):group_norm(2)",
  batch_norm = "lt.batch_norm(x, nil, nil, nil, nil, true)", instance_norm = "lt.instance_norm(image)",
  conv1d = "lt.conv1d(a, a)", conv2d = "lt.conv2d(image, image:new_ones(1, 1, 3, 3))",
  conv_transpose1d = "a:conv_transpose1d(a)", conv_transpose2d = "image:conv_transpose2d(image:new_ones(1, 1, 2, 2))",
  interpolate = "lt.interpolate(image, {2, 2})", avg_pool1d = "a:avg_pool1d(2)", avg_pool2d = "image:avg_pool2d(2)",
  fractional_max_pool2d_with_indices = "lt.fractional_max_pool2d_with_indices(image, 2, 2, lt.rand(1, 1, 2))",
  max_pool1d = "lt.max_pool1d(a, 2)", max_pool2d = "lt.max_pool2d(image, 2)",
  max_pool1d_with_indices = "a:max_pool1d_with_indices(2)",
  max_pool2d_with_indices = "image:max_pool2d_with_indices(2)", adaptive_avg_pool1d = "a:adaptive_avg_pool1d(1)",
  adaptive_avg_pool2d = "image:adaptive_avg_pool2d(2)", adaptive_max_pool1d = "a:adaptive_max_pool1d(1)",
  adaptive_max_pool2d = "image:adaptive_max_pool2d(2)",
  adaptive_max_pool1d_with_indices = "a:adaptive_max_pool1d_with_indices(1)",
  adaptive_max_pool2d_with_indices = "image:adaptive_max_pool2d_with_indices(2)",
  upsample = "lt.upsample(image, {2, 2})", upsample_nearest = "lt.upsample_nearest(image, {2, 2})",
  upsample_bilinear = "lt.upsample_bilinear(image, {2, 2})",
    grid_sample = "lt.grid_sample(image, lt.zeros(1, 2, 2, 2))",
  affine_grid = "lt.affine_grid(lt.ones(1, 2, 3), {1, 1, 2, 2})",
    local_response_norm = "lt.local_response_norm(image, 2)",
  gumbel_softmax = "lt.gumbel_softmax(x)", vander = "lt.vander(v)",
  hann_window = "lt.hann_window(4)", hamming_window = "lt.hamming_window(4)", blackman_window = "lt.blackman_window(4)",
  bartlett_window = "lt.bartlett_window(4)", fill_diagonal_ = "m:clone():fill_diagonal_(7)",
  lp_pool1d = "lt.lp_pool1d(a, 2, 2)", lp_pool2d = "lt.lp_pool2d(image, 2, 2)",
  max_unpool1d = "lt.max_unpool1d(lt.ones(1, 2), lt.tensor({{0, 3}}, {dtype = \"int64\"}), 2)",
  max_unpool2d = "lt.max_unpool2d(lt.ones(1, 1, 2), lt.tensor({{{0, 3}}}, {dtype = \"int64\"}), 2)",
  multilabel_margin_loss = "lt.multilabel_margin_loss(x, j)",
  multilabel_soft_margin_loss = "lt.multilabel_soft_margin_loss(x, p:gt(0.5):float())",
  fake_quantize_per_tensor_affine = "lt.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)",
  dropout1d = "a:dropout1d()", dropout2d = "image:dropout2d()",
  dropout3d = "image:unsqueeze(0):dropout3d()", feature_alpha_dropout = "a:feature_alpha_dropout()",
  -- losses
  cross_entropy = "x:cross_entropy(labels)", nll_loss = "x:nll_loss(labels)",
  multi_margin_loss = "x:multi_margin_loss(labels)", binary_cross_entropy = "p:binary_cross_entropy(p)",
  gaussian_nll_loss = "x:gaussian_nll_loss(y, p)", cosine_embedding_loss = "x:cosine_embedding_loss(y, signs)",
  margin_ranking_loss = "x[0]:margin_ranking_loss(y[0], v)", triplet_margin_loss = "x:triplet_margin_loss(y, p)",
  ctc_loss = "lt.ctc_loss(lt.randn(5, 1, 4):log_softmax(2), lt.tensor({{1, 3}}, {dtype = \"int64\"}), "
    .. "lt.tensor({5}, {dtype = \"int64\"}), lt.tensor({2}, {dtype = \"int64\"}))",
  -- making tensors
  arange = "lt.arange(5)", empty = "lt.empty(2, 3)", empty_like = "x:empty_like()", eye = "lt.eye(2)",
  full = "lt.full({2, 3}, 7)", full_like = "x:full_like(7)", linspace = "lt.linspace(0, 1, 5)",
  logspace = "lt.logspace(0, 2, 3)", ones = "lt.ones(2, 3)", zeros = "lt.zeros(2, 3)", rand = "lt.rand(2, 3)",
  randn = "lt.randn(2, 3)", randint = "lt.randint(10, {2, 3})", randint_like = "x:randint_like(10)",
  randperm = "lt.randperm(4)", normal = "lt.normal(x, p)", scalar_tensor = "lt.scalar_tensor(3)",
  tensor = "lt.tensor {{1, 2}, {3, 4}}", as_tensor = "lt.as_tensor(x)", new_tensor = "x:new_tensor {1, 2}",
  new_empty = "x:new_empty(2)", new_full = "x:new_full({2}, 7)", new_ones = "x:new_ones(2)",
  new_zeros = "x:new_zeros(2)", multinomial = "p:multinomial(2)", bernoulli = "p:bernoulli()",
  bernoulli_ = "x:clone():bernoulli_()", exponential_ = "x:clone():exponential_()",
  geometric_ = "x:clone():geometric_(0.5)", cauchy_ = "x:clone():cauchy_()",
  range = "lt.range(1, 4)",
  broadcast_shapes = "lt.broadcast_shapes({2, 1}, {3})",
  empty_strided = "lt.empty_strided({2, 3}, {1, 2})", empty_permuted = "lt.empty_permuted({2, 3}, {1, 0})",
  new_empty_strided = "x:new_empty_strided({2, 3}, {1, 2})", kaiser_window = "lt.kaiser_window(4)",
  log_normal_ = "x:clone():log_normal_()",
    normal_ = "x:clone():normal_()",
  random_ = "x:clone():random_(10)", uniform_ = "x:clone():uniform_()",
  -- what a tensor is; the session
  to = "x:to(\"float64\")", to_dtype = "x:to_dtype(\"float64\")", type_as = "x:type_as(i)",
    type = "x:type(\"float64\")", can_cast = "lt.can_cast(\"int64\", \"float16\")",
    is_nonzero = "lt.is_nonzero(v:sum())",
  detach_ = "x:clone():detach_()", requires_grad_ = "x:clone():requires_grad_()", size = "x:size()",
  stride = "x:stride()", item = "v:sum():item()", totable = "x:totable()", tolist = "x:tolist()",
  backward = "leaf:sum():backward()", register_hook = "leaf:register_hook(print)",
  register_post_accumulate_grad_hook = "leaf:register_post_accumulate_grad_hook(function(p) p.grad = nil end)",
  retain_grad = "(leaf * 2):retain_grad()", grad = "lt.grad(leaf:sum(), leaf)", free = "x:clone():free()",
  from_blob = "lt.from_blob(x:data_ptr(), {2, 3})",
  from_ffi = "lt.from_ffi(require(\"ffi\").new(\"float[2]\", 1, 2))",
  from_dlpack = "lt.from_dlpack(x:to_dlpack())", to_dlpack = "x:to_dlpack() ~= nil",
  data_ptr = "x:data_ptr() > 0", is_tensor = "lt.is_tensor(x)", device = "lt.device(\"cpu\")",
  save = "lt.save(path, x)", load = "lt.save(path, x) or lt.load(path)", memory = "lt.memory().allocated > 0",
  manual_seed = "lt.manual_seed(0)", get_rng_state = "lt.get_rng_state()",
    set_rng_state = "lt.set_rng_state(lt.get_rng_state())",
  promote_types = "lt.promote_types(\"int64\", \"float16\")", result_type = "lt.result_type(x, 0.5)",
    limits = "lt.limits {seconds = 1}(math.max, 1, 2)",
  set_default_device = "lt.set_default_device \"cpu\"",
  set_float32_matmul_precision = "lt.set_float32_matmul_precision \"highest\"",
  set_num_threads = "lt.set_num_threads(lt.get_num_threads())", set_grad_enabled = "lt.set_grad_enabled(true)",
  get_autocast_dtype = "lt.get_autocast_dtype \"cpu\"",
  set_autocast_dtype = "lt.set_autocast_dtype(\"cpu\", \"bfloat16\")",
  set_autocast_enabled = "lt.set_autocast_enabled(\"cpu\", false)",
  set_autocast_cache_enabled = "lt.set_autocast_cache_enabled(true)",
}

-- Examples that need a GPU, which are shown but not run.
local shown = {cuda = true, pin_memory = true}

-- Returns the natural way to write a call: x:NAME(y), or lt.NAME(x, y).
local function by_rule(d)
  local args, used = {}, {"x", "y", "p"}
  for _, arg in ipairs(d.forms[1] or {}) do
    if not arg.keyword_only and not arg.default and arg.type:find "^Tensor" then args[#args + 1] = used[#args + 1] end
  end
  if d.method and #args > 0 then return string.format("%s:%s(%s)", args[1], d.name, table.concat(args, ", ", 2)) end
  return string.format("lt.%s(%s)", d.name, table.concat(args, ", "))
end

-- Returns the example of a described name.
local function example(d)
  if lines[d.name] then return lines[d.name] end
  local base = d.name:match "^(.+)_$"
  if base and describe(base) then
    local line = example(describe(base))
    local receiver, rest = line:match("^(.-):" .. base .. "(.*)$")
    if receiver then return receiver .. ":clone():" .. d.name .. rest end
    return (line:gsub("lt%.[%w_.]-" .. base .. "%((%w+)", "lt." .. d.name .. "(%1:clone()"))
  end
  local functional = d.name:match "^nn%.functional%.(.*)"
  if d.same_as or functional then
    local line = example(describe(d.same_as or functional))
    local receiver, rest = line:match("^(.-):" .. (d.same_as or functional) .. "(%b())$")
    if receiver and not d.method then -- x:t() is lt.t_copy(x)
      return string.format("lt.%s(%s%s%s)", d.name, receiver, rest == "()" and "" or ", ", rest:sub(2, -2))
    end
    if functional then return (line:gsub("lt%.", "lt.nn.functional.", 1)) end
    return (line:gsub("([:.])" .. d.same_as .. "%f[^%w_]", "%1" .. d.name, 1))
  end
  return by_rule(d)
end

-- Returns an environment with the lines' inputs. Those of `floats` have the dtype, if one is given.
local function environment(dtype, requires_grad)
  local env = setmetatable({lt = lt}, {__index = _G})
  local function add(rows, change)
    for _, row in ipairs(rows) do
      local value = setfenv(assert(loadstring("return " .. row[2])), env)()
      env[row[1]] = change and change(value) or value
    end
  end
  add(floats, function(value)
    if dtype then value = value:to(dtype) end
    return requires_grad and value:requires_grad_() or value
  end)
  add(others)
  return env
end

-- Returns the line as a function of no arguments.
local function chunk(line, env) return setfenv(assert(loadstring("return " .. line, "=example")), env) end

-- Runs a line. Returns true and its results, or false and the message without its place.
local function run(line, dtype, requires_grad)
  lt.manual_seed(0)
  local function pack(ok, ...)
    if ok then return ok, {n = select("#", ...), ...} end
    return ok, (tostring((...)):gsub("^example:1: ", ""):gsub("\n.*", ""))
  end
  return pack(pcall(chunk(line, environment(dtype, requires_grad))))
end

-- Returns the primitives that the example of d runs, each once; whether all are views; whether one draws.
local function parts(d)
  local ok, list, draws = pcall(lt._native.parts, chunk(example(d), environment()))
  local out, views = {}, true
  for _, part in ipairs(ok and list or {}) do
    if not out[part] then out[#out + 1] = part end
    out[part] = true
    views = views and (describe(part) or {}).aliases
  end
  return out, views and #out > 0, ok and draws
end

return {parts = parts, floats = floats, others = others, shown = shown, example = example, environment = environment,
  chunk = chunk, run = run}
