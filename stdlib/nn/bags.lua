-- nn.EmbeddingBag and functional.embedding_bag: rows of a table, reduced by bag. A bag is a row of ids, or the ids
-- between two offsets.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local init = use "nn.initialisers"
local keywords = use "keywords"

local native = lt._native
local Module, Parameter = base.Module, base.Parameter
local read, none = keywords.read, keywords.none

local modes = {sum = true, mean = true, max = true}

local schema = {{"input"}, {"weight"}, {"offsets", none}, {"max_norm", none}, {"norm_type", 2},
  {"scale_grad_by_freq", false}, {"mode", "mean"},
  {"sparse", false}, {"per_sample_weights", none}, {"include_last_offset", false}, {"padding_idx", none}}

local function check_weights(o)
  local weights = o.per_sample_weights
  if weights == nil then return end
  errors.tensor("embedding_bag", "per_sample_weights", weights)
  if weights.dtype ~= o.weight.dtype then
    fail("embedding_bag: per_sample_weights must be %s as weight is, got %s", o.weight.dtype, weights.dtype)
  end
  if o.mode ~= "sum" then fail("embedding_bag: per_sample_weights go with mode 'sum', not '%s'", o.mode) end
  local a, b = weights.shape, o.input.shape
  if #a ~= #b or a[1] ~= b[1] or a[2] ~= b[2] then
    fail("embedding_bag: per_sample_weights of size {%s} do not go with input of size {%s}", table.concat(a, ", "),
      table.concat(b, ", "))
  end
end

local function check_index(name, t)
  errors.tensor("embedding_bag", name, t)
  if t.dtype ~= "int64" and t.dtype ~= "int32" then
    fail("embedding_bag: argument '%s' must be int64 or int32, got %s", name, t.dtype)
  end
end

-- Returns the row of padding of n, counted from 0, or nil.
local function padding_of(name, row, n)
  if row == nil then return nil end
  if type(row) ~= "number" or row >= n or row < -n or row % 1 ~= 0 then
    errors.wrong(name, "padding_idx", string.format("from %d to %d and whole", -n, n - 1), row)
  end
  return row < 0 and row + n or row
end

local function check(o)
  check_index("input", o.input)
  errors.tensor("embedding_bag", "weight", o.weight)
  if o.weight:dim() ~= 2 then fail("embedding_bag: weight has 2 dimensions, got %d", o.weight:dim()) end
  if not o.weight:is_floating_point() then fail("embedding_bag: weight must be floating, got %s", o.weight.dtype) end
  if o.max_norm ~= nil then
    fail("embedding_bag: max_norm is not implemented; renormalise the weight before the call")
  end
  if modes[o.mode] == nil then errors.wrong("embedding_bag", "mode", "'sum', 'mean' or 'max'", o.mode) end
  if o.sparse then fail("embedding_bag: sparse = true does not exist yet") end
  if o.mode == "max" and o.scale_grad_by_freq then
    fail("embedding_bag: scale_grad_by_freq does not go with mode 'max'")
  end
  check_weights(o)
  local dims = o.input:dim()
  if dims == 2 then
    if o.offsets ~= nil then fail("embedding_bag: an input of 2 dimensions takes no offsets: its rows are the bags") end
  elseif dims == 1 then
    if o.offsets == nil then fail("embedding_bag: an input of 1 dimension needs offsets") end
    check_index("offsets", o.offsets)
    if o.offsets:dim() ~= 1 then fail("embedding_bag: offsets have 1 dimension, got %d", o.offsets:dim()) end
  else
    fail("embedding_bag: input has 1 or 2 dimensions, got %d", dims)
  end
end

-- embedding_bag(input, weight, offsets, {mode =, padding_idx =, per_sample_weights =, ...}): reduces rows of weight by
-- bag.
local function embedding_bag(...)
  local o = read("embedding_bag", schema, ...)
  -- PyTorch formerly had the two in the other order.
  if lt.is_tensor(o.input) and lt.is_tensor(o.weight) and o.input:is_floating_point()
    and not o.weight:is_floating_point() then
    o.input, o.weight = o.weight, o.input
  end
  check(o)
  local ids, offsets, weights, weight = o.input, o.offsets, o.per_sample_weights, o.weight
  local last, padding = o.include_last_offset, padding_of("embedding_bag", o.padding_idx, weight:size(0)) or -1
  if ids:dim() == 2 then
    last = false -- as in PyTorch: there are no offsets
  elseif offsets:size(0) == 0 then
    if last then fail("embedding_bag: include_last_offset needs an offset") end
    ids, weights = ids:narrow(0, 0, 0), weights and weights:narrow(0, 0, 0) -- no bag takes the ids
  end
  if o.mode ~= "max" then
    return native.embedding_bag_sum(weight, ids, offsets, weights, padding, o.scale_grad_by_freq, o.mode == "mean",
      last):to(weight.dtype)
  end
  local row = native.embedding_bag_max(weight, ids, offsets, padding, last)
  if weight:size(0) == 0 then return weight:new_zeros(row.shape) end
  return weight:gather(0, row:clamp_min(0)):masked_fill(row:lt(0), 0) -- 0 where no id counts
end

local EmbeddingBag = Module:extend("EmbeddingBag")

function EmbeddingBag:init(...)
  local o = read("EmbeddingBag",
    {{"num_embeddings"}, {"embedding_dim"}, {"max_norm", none}, {"norm_type", 2}, {"scale_grad_by_freq", false},
    {"mode", "mean"}, {"sparse", false}, {"_weight", none}, {"include_last_offset", false}, {"padding_idx", none},
      {"device", none},
    {"dtype", "float32"}}, ...)
  errors.count("EmbeddingBag", "num_embeddings", o.num_embeddings, 0)
  errors.count("EmbeddingBag", "embedding_dim", o.embedding_dim, 0)
  if modes[o.mode] == nil then errors.wrong("EmbeddingBag", "mode", "'sum', 'mean' or 'max'", o.mode) end
  if o.sparse then fail("EmbeddingBag: sparse = true does not exist yet") end
  self.num_embeddings, self.embedding_dim, self.max_norm, self.norm_type = o.num_embeddings, o.embedding_dim,
    o.max_norm, o.norm_type
  self.scale_grad_by_freq, self.mode, self.include_last_offset = o.scale_grad_by_freq, o.mode, o.include_last_offset
  self.padding_idx = padding_of("EmbeddingBag", o.padding_idx, o.num_embeddings)
  if o._weight ~= nil then
    self.weight = Parameter(o._weight)
    return
  end
  self.weight = Parameter(lt.empty({o.num_embeddings, o.embedding_dim}, {dtype = o.dtype, device = o.device}))
  self:reset_parameters()
end

function EmbeddingBag:reset_parameters()
  init.normal_(self.weight)
  if self.padding_idx then
    lt.no_grad(function() self.weight[self.padding_idx]:zero_() end)
  end
end

function EmbeddingBag:forward(input, offsets, per_sample_weights)
  return embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
    false, per_sample_weights,
    self.include_last_offset, self.padding_idx)
end

function EmbeddingBag:extra_repr()
  local text = string.format("%d, %d, mode='%s'", self.num_embeddings, self.embedding_dim, self.mode)
  return self.padding_idx and text .. ", padding_idx=" .. self.padding_idx or text
end

return {EmbeddingBag = EmbeddingBag, embedding_bag = embedding_bag}
