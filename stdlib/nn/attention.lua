-- nn.MultiheadAttention: PyTorch's names of parameters, defaults and initial values.
local lt, use = ...
local fail = use("errors").fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"
local Linear = use "nn.linear"

local Module, Parameter = base.Module, base.Parameter
local linear, read, none = lt.linear, keywords.read, keywords.none

local MultiheadAttention = Module:extend("MultiheadAttention")

function MultiheadAttention:init(...)
  local options = read("MultiheadAttention",
    {{"embed_dim"}, {"num_heads"}, {"dropout", 0}, {"bias", true}, {"kdim", none}, {"vdim", none},
    {"batch_first", false}, {"device", none}, {"dtype", "float32"}}, ...)
  local embed_dim, num_heads = options.embed_dim, options.num_heads
  if type(embed_dim) ~= "number" or type(num_heads) ~= "number" or num_heads < 1 or embed_dim % num_heads ~= 0 then
    fail("MultiheadAttention: embed_dim must be divisible by num_heads")
  end
  self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim / num_heads
  self.dropout, self.batch_first = options.dropout, options.batch_first
  local kdim, vdim = options.kdim or embed_dim, options.vdim or embed_dim
  local how = {dtype = options.dtype, device = options.device}
  if kdim == embed_dim and vdim == embed_dim then
    self.in_proj_weight = Parameter(lt.empty({3 * embed_dim, embed_dim}, how))
  else
    self.q_proj_weight = Parameter(lt.empty({embed_dim, embed_dim}, how))
    self.k_proj_weight = Parameter(lt.empty({embed_dim, kdim}, how))
    self.v_proj_weight = Parameter(lt.empty({embed_dim, vdim}, how))
  end
  if options.bias then self.in_proj_bias = Parameter(lt.empty({3 * embed_dim}, how)) end
  self.out_proj = Linear(embed_dim, embed_dim,
    {bias = options.bias, dtype = options.dtype, device = options.device})
  self:reset_parameters()
end

function MultiheadAttention:reset_parameters()
  for _, name in ipairs {"in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight"} do
    if self[name] then init.xavier_uniform_(self[name]) end
  end
  if self.in_proj_bias then
    init.zeros_(self.in_proj_bias)
    init.zeros_(self.out_proj.bias)
  end
end

-- Computes the three projections. If all inputs are the same tensor, it uses one product.
local function project(self, query, key, value)
  local e, bias = self.embed_dim, self.in_proj_bias
  local weight = self.in_proj_weight
  if weight and query == key and key == value then
    local all = linear(query, weight, bias)
    local shape = all.shape
    shape[#shape], shape[#shape + 1] = 3, e
    all = all:view(shape)
    return all:select(-2, 0), all:select(-2, 1), all:select(-2, 2)
  end
  local function part(x, name, i)
    local w = weight and weight:narrow(0, i * e, e) or self[name]
    return linear(x, w, bias and bias:narrow(0, i * e, e))
  end
  return part(query, "q_proj_weight", 0), part(key, "k_proj_weight", 1), part(value, "v_proj_weight", 2)
end

-- Converts a mask that hides (bool) to one that is added (float).
local function as_added(mask, dtype)
  if mask.dtype ~= "bool" then return mask end
  return lt.zeros(mask.shape, {dtype = dtype, device = mask.device}):masked_fill(mask, -math.huge)
end

local function merged_mask(self, options, batch, dtype)
  local mask, padding = options.attn_mask, options.key_padding_mask
  if mask ~= nil then
    mask = as_added(mask, dtype)
    if mask:dim() == 3 then mask = mask:view(batch, self.num_heads, mask:size(1), mask:size(2)) end
  end
  if padding == nil then return mask end
  if padding:dim() == 1 then padding = padding:unsqueeze(0) end
  padding = as_added(padding, dtype):view(batch, 1, 1, padding:size(1))
  return mask == nil and padding or mask + padding
end

local known = {key_padding_mask = keywords.none, need_weights = true, attn_mask = keywords.none,
  average_attn_weights = true,
               is_causal = false}

-- Returns the output and, unless need_weights is false, the weights. Options follow value, by position or in a table.
function MultiheadAttention:forward(query, key, value, key_padding_mask, need_weights, attn_mask,
  average_attn_weights, is_causal)
  local options = key_padding_mask
  if type(options) ~= "table" then
    options = {key_padding_mask = key_padding_mask, need_weights = need_weights, attn_mask = attn_mask,
      average_attn_weights = average_attn_weights,
               is_causal = is_causal}
  end
  options = keywords.check("MultiheadAttention", options, known)
  if options.is_causal and options.attn_mask == nil then
    fail("MultiheadAttention: is_causal is a hint that attn_mask is causal: attn_mask must be given")
  end
  local batched = query:dim() == 3
  local q, k, v = project(self, query, key, value)
  if not batched then
    q, k, v = q:unsqueeze(0), k:unsqueeze(0), v:unsqueeze(0)
  elseif not self.batch_first then
    q, k, v = q:transpose(0, 1), k:transpose(0, 1), v:transpose(0, 1)
  end
  local b, l, s, heads, d = q:size(0), q:size(1), k:size(1), self.num_heads, self.head_dim
  q = q:reshape(b, l, heads, d):transpose(1, 2)
  k, v = k:reshape(b, s, heads, d):transpose(1, 2), v:reshape(b, s, heads, d):transpose(1, 2)
  local rate = self.training and self.dropout or 0
  local out, weights
  if options.need_weights then
    local scores = (q * (1 / math.sqrt(d))):matmul(k:transpose(-2, -1))
    local mask = merged_mask(self, options, b, q.dtype)
    if mask ~= nil then scores = scores + mask end
    weights = scores:softmax(-1)
    if rate > 0 then weights = functional.dropout(weights, rate) end
    out = weights:matmul(v)
    if options.average_attn_weights then weights = weights:mean(1) end
    if not batched then weights = weights:squeeze(0) end
  elseif options.is_causal and options.key_padding_mask == nil then
    out = functional.scaled_dot_product_attention(q, k, v, {dropout_p = rate, is_causal = true})
  else
    out = functional.scaled_dot_product_attention(q, k, v,
      {attn_mask = merged_mask(self, options, b, q.dtype), dropout_p = rate})
  end
  out = out:transpose(1, 2):reshape(b, l, self.embed_dim)
  if not batched then
    out = out:squeeze(0)
  elseif not self.batch_first then
    out = out:transpose(0, 1)
  end
  return self.out_proj(out), weights
end

return MultiheadAttention
