-- nn.LayerNorm, RMSNorm and Embedding: PyTorch's names of parameters, defaults and initial values. Options follow in a
-- trailing table.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local read, none = keywords.read, keywords.none
local M = {}

local function shape_of(name, shape)
  if type(shape) == "number" then return {shape} end
  if type(shape) ~= "table" then errors.wrong(name, "normalized_shape", "a number or a list of numbers", shape) end
  local copy = {}
  for i = 1, #shape do
    errors.count(name, "normalized_shape", shape[i], 0)
    copy[i] = shape[i]
  end
  return copy
end

local LayerNorm = Module:extend("LayerNorm")
M.LayerNorm = LayerNorm

function LayerNorm:init(...)
  local options = read("LayerNorm",
    {{"normalized_shape"}, {"eps", 1e-5}, {"elementwise_affine", true}, {"bias", true}, {"device", none},
    {"dtype", "float32"}}, ...)
  errors.number("LayerNorm", "eps", options.eps)
  self.normalized_shape = shape_of("LayerNorm", options.normalized_shape)
  self.eps, self.elementwise_affine = options.eps, options.elementwise_affine
  local how = {dtype = options.dtype, device = options.device}
  if options.elementwise_affine then
    self.weight = Parameter(lt.ones(self.normalized_shape, how))
    if options.bias then self.bias = Parameter(lt.zeros(self.normalized_shape, how)) end
  end
end

function LayerNorm:reset_parameters()
  if self.weight then init.ones_(self.weight) end
  if self.bias then init.zeros_(self.bias) end
end

local layer_norm = lt.layer_norm
function LayerNorm:forward(input) return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps) end

function LayerNorm:extra_repr()
  return string.format("(%s,), eps=%g, elementwise_affine=%s", table.concat(self.normalized_shape, ", "), self.eps,
    self.elementwise_affine and "True" or "False")
end

local RMSNorm = Module:extend("RMSNorm")
M.RMSNorm = RMSNorm

function RMSNorm:init(...)
  local options = read("RMSNorm",
    {{"normalized_shape"}, {"eps", none}, {"elementwise_affine", true}, {"device", none}, {"dtype", "float32"}}, ...)
  if options.eps ~= nil then errors.number("RMSNorm", "eps", options.eps) end
  self.normalized_shape = shape_of("RMSNorm", options.normalized_shape)
  self.eps, self.elementwise_affine = options.eps, options.elementwise_affine
  if options.elementwise_affine then
    self.weight = Parameter(lt.ones(self.normalized_shape, {dtype = options.dtype, device = options.device}))
  end
end

function RMSNorm:reset_parameters()
  if self.weight then init.ones_(self.weight) end
end

local rms_norm = lt.rms_norm
function RMSNorm:forward(input) return rms_norm(input, self.normalized_shape, self.weight, self.eps) end

function RMSNorm:extra_repr()
  return string.format("(%s,), eps=%s, elementwise_affine=%s", table.concat(self.normalized_shape, ", "),
    self.eps and string.format("%g", self.eps) or "None", self.elementwise_affine and "True" or "False")
end

local Embedding = Module:extend("Embedding")
M.Embedding = Embedding

function Embedding:init(...)
  local options = read("Embedding",
    {{"num_embeddings"}, {"embedding_dim"}, {"padding_idx", none}, {"max_norm", none}, {"norm_type", 2},
    {"scale_grad_by_freq", false}, {"device", none}, {"dtype", "float32"}}, ...)
  local num_embeddings, embedding_dim = options.num_embeddings, options.embedding_dim
  errors.count("Embedding", "num_embeddings", num_embeddings, 0)
  errors.count("Embedding", "embedding_dim", embedding_dim, 0)
  local row = options.padding_idx
  if row ~= nil and (type(row) ~= "number" or row >= num_embeddings or row < -num_embeddings) then
    errors.wrong("Embedding", "padding_idx", string.format("from %d to %d", -num_embeddings, num_embeddings - 1), row)
  end
  self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
  self.padding_idx = row and row < 0 and row + num_embeddings or row
  self.max_norm, self.norm_type, self.scale_grad_by_freq = options.max_norm, options.norm_type,
    options.scale_grad_by_freq
  self.weight = Parameter(lt.empty({num_embeddings, embedding_dim}, {dtype = options.dtype, device = options.device}))
  self:reset_parameters()
end

function Embedding:reset_parameters()
  init.normal_(self.weight)
  if self.padding_idx then
    lt.no_grad(function() self.weight[self.padding_idx]:zero_() end)
  end
end

function Embedding:forward(input)
  return functional.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type,
    self.scale_grad_by_freq)
end

function Embedding:extra_repr()
  local text = string.format("%d, %d", self.num_embeddings, self.embedding_dim)
  return self.padding_idx and text .. ", padding_idx=" .. self.padding_idx or text
end

return M
