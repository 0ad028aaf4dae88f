-- nn.EmbeddingBag and functional.embedding_bag: rows of a table, reduced by bag. A bag is a row of ids, or the ids
-- between two offsets.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local init = use "nn.initialisers"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local read, none = keywords.read, keywords.none

-- Returns x and checks that no element is negative; `wrong` is the error. Compiled code checks when it runs.
local function checked(x, wrong) return lt._native.check_values(x, "nonnegative", "embedding_bag: " .. wrong) end

-- Returns the bag of each id: the number of offsets at or before it, less 1.
local function bags_of(offsets, count)
  local bags = offsets:size(0)
  checked(-offsets[0]:abs(), "offsets[0] must be 0: the first bag begins with the first id")
  checked(count - offsets[-1], "an offset is greater than the number of ids")
  if bags > 1 then checked(offsets:diff(), "offsets must not descend") end
  local starts = lt.zeros({count + 1}, {dtype = "int64", device = offsets.device})
  return starts:index_add(0, offsets, lt.ones({bags}, {dtype = "int64", device = offsets.device}))
    :cumsum(0):narrow(0, 0, count) - 1
end

-- bags: {count =, length =} if each bag has `length` ids, or else {count =, of =}, where `of` has the bag of each id.
-- Returns the sum of x, which has an element or a row for each id, over each bag.
local function add_up(x, bags)
  if bags.length then return x:unflatten(0, {bags.count, bags.length}):sum(1) end
  local sizes = x.shape
  sizes[1] = bags.count
  return x:new_zeros(sizes):index_add(0, bags.of, x)
end

-- Returns the largest row of each bag, by element; 0 where no id counts. Of equal ones in a bag, the first has the
-- gradient.
local function largest(rows, bags, kept)
  local ids, features = rows:size(0), rows:size(1)
  if bags.length == 0 or ids == 0 then return add_up(rows, bags) end
  if bags.length and kept == nil then return (rows:unflatten(0, {bags.count, bags.length}):max(1)) end
  local of = bags.of
    or lt.arange(bags.count, {device = rows.device}):unsqueeze(1):expand(-1, bags.length):reshape(-1)
  local function reduced(x, how, start)
    return lt.full({bags.count, features}, start, {dtype = x.dtype, device = x.device})
      :scatter_reduce(0, of:unsqueeze(1):expand(-1, features), x, how)
  end
  local value = rows:detach()
  if kept ~= nil then value = value:masked_fill(kept:logical_not():unsqueeze(1), -math.huge) end
  local most = reduced(value, "amax", -math.huge):index_select(0, of)
  local is_most = value:eq(most):logical_or(value:isnan())
  if kept ~= nil then is_most = is_most:logical_and(kept:unsqueeze(1)) end
  local position = lt.arange(ids, {device = rows.device}):unsqueeze(1)
  local first = reduced(lt.where(is_most, position, ids), "amin", ids)
  return rows:gather(0, first:clamp_max(ids - 1)):masked_fill(first:eq(ids), 0)
end

-- Returns x, or halves as float32, which are rounded once at the end.
local function wide(x)
  local half = x.dtype == "float16" or x.dtype == "bfloat16"
  return half and x:float() or x
end

-- Reduces rows (ids, features) by bag. kept: a mask of the ids that count; nil if all do.
local reduce = {max = largest}

function reduce.sum(rows, bags, kept)
  if kept ~= nil then rows = rows:masked_fill(kept:logical_not():unsqueeze(1), 0) end
  return add_up(rows, bags)
end

function reduce.mean(rows, bags, kept)
  local counted = kept ~= nil and kept:to(rows.dtype) or rows:new_ones({rows:size(0)})
  return reduce.sum(rows, bags, kept) / add_up(counted, bags):clamp_min(1):unsqueeze(1)
end

local schema = {{"input"}, {"weight"}, {"offsets", none}, {"max_norm", none}, {"norm_type", 2},
  {"scale_grad_by_freq", false}, {"mode", "mean"},
  {"sparse", false}, {"per_sample_weights", none}, {"include_last_offset", false}, {"padding_idx", none}}

local function check_weights(o)
  local weights = o.per_sample_weights
  if weights == nil then return end
  errors.tensor("embedding_bag", "per_sample_weights", weights)
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

-- Returns the row of padding, counted from 0.
local function padding_of(o)
  local row, n = o.padding_idx, o.weight:size(0)
  if row == nil then return nil end
  if type(row) ~= "number" or row >= n or row < -n then
    errors.wrong("embedding_bag", "padding_idx", string.format("from %d to %d", -n, n - 1), row)
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
  if reduce[o.mode] == nil then errors.wrong("embedding_bag", "mode", "'sum', 'mean' or 'max'", o.mode) end
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
  local ids, weights, bags = o.input, o.per_sample_weights, nil
  if ids:dim() == 2 then
    bags = {count = ids:size(0), length = ids:size(1)}
    o.include_last_offset = false -- as in PyTorch: there are no offsets
    ids = ids:reshape(-1)
    if weights ~= nil then weights = weights:reshape(-1) end
  else
    bags = {count = o.offsets:size(0)}
    if o.include_last_offset and bags.count == 0 then fail("embedding_bag: include_last_offset needs an offset") end
    if bags.count == 0 then -- no bag takes the ids
      ids, weights = ids:narrow(0, 0, 0), weights and weights:narrow(0, 0, 0)
      bags.of = ids:long()
    else
      bags.of = bags_of(o.offsets:long(), ids:size(0))
    end
  end
  local padding = padding_of(o)
  ids = checked(lt.where(ids:lt(o.weight:size(0)), ids, -1), "an id is no row of weight")
  local rows = lt.embedding(ids, o.weight, padding, nil, o.norm_type, o.scale_grad_by_freq)
  rows = wide(rows)
  if weights ~= nil then rows = rows * wide(weights):unsqueeze(1) end
  local out = reduce[o.mode](rows, bags, padding and ids:ne(padding)):to(o.weight.dtype)
  if not o.include_last_offset then return out end
  return out:narrow(0, 0, bags.count - 1) -- no bag has the ids from the last offset on
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
  if reduce[o.mode] == nil then errors.wrong("EmbeddingBag", "mode", "'sum', 'mean' or 'max'", o.mode) end
  if o.sparse then fail("EmbeddingBag: sparse = true does not exist yet") end
  local row = o.padding_idx
  if row ~= nil and (type(row) ~= "number" or row >= o.num_embeddings or row < -o.num_embeddings) then
    errors.wrong("EmbeddingBag", "padding_idx", string.format("from %d to %d", -o.num_embeddings, o.num_embeddings - 1),
      row)
  end
  self.num_embeddings, self.embedding_dim, self.max_norm, self.norm_type = o.num_embeddings, o.embedding_dim,
    o.max_norm, o.norm_type
  self.scale_grad_by_freq, self.mode, self.include_last_offset = o.scale_grad_by_freq, o.mode, o.include_last_offset
  self.padding_idx = row and row < 0 and row + o.num_embeddings or row
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
