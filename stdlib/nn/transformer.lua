-- nn.TransformerEncoderLayer, TransformerDecoderLayer, the stacks of them, and nn.Transformer, with PyTorch's names of
-- parameters, defaults and initial values. Masks follow the inputs by position or, in a table, by name.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"
local deepcopy = use "deepcopy"

local MultiheadAttention, Linear = use "nn.attention", use "nn.linear"
local Dropout, LayerNorm = use("nn.dropout").Dropout, use("nn.norms").LayerNorm
local ModuleList = use("nn.containers").ModuleList

local Module = base.Module
local read, none = keywords.read, keywords.none
local M = {}

-- Layers ------------------------------------------------------------------------------------------------------------

local layer_schema = {{"d_model"}, {"nhead"}, {"dim_feedforward", 2048}, {"dropout", 0.1}, {"activation", "relu"},
  {"layer_norm_eps", 1e-5},
  {"batch_first", false}, {"norm_first", false}, {"bias", true}, {"device", none}, {"dtype", "float32"}}

local function activation_of(name, given)
  if given == "relu" or given == "gelu" then return functional[given] end
  if type(given) == "string" then
    fail("%s: activation should be relu or gelu, not '%s'%s", name, given, errors.question(given, {"relu", "gelu"}))
  end
  errors.callable(name, "activation", given)
  return given
end

-- Makes the shared parts of both kinds of layers: n norms and dropouts, and attentions by their names.
local function init_layer(self, n, attentions, ...)
  local o = read(self._name, layer_schema, ...)
  local bias = {bias = o.bias, device = o.device, dtype = o.dtype}
  local norm = {eps = o.layer_norm_eps, bias = o.bias, device = o.device, dtype = o.dtype}
  for _, name in ipairs(attentions) do
    self[name] = MultiheadAttention(o.d_model, o.nhead,
      {dropout = o.dropout, bias = o.bias, batch_first = o.batch_first, device = o.device,
      dtype = o.dtype})
  end
  self.linear1 = Linear(o.d_model, o.dim_feedforward, bias)
  self.dropout = Dropout(o.dropout)
  self.linear2 = Linear(o.dim_feedforward, o.d_model, bias)
  self.norm_first = o.norm_first
  for i = 1, n do self["norm" .. i] = LayerNorm(o.d_model, norm) end
  for i = 1, n do self["dropout" .. i] = Dropout(o.dropout) end
  self.activation = activation_of(self._name, o.activation)
end

local function feed(self, x, dropout) return dropout(self.linear2(self.dropout(self.activation(self.linear1(x))))) end

local function attend(attention, dropout, x, memory, mask, padding, is_causal)
  return dropout((attention(x, memory, memory,
    {attn_mask = mask, key_padding_mask = padding, is_causal = is_causal, need_weights = false})))
end

local TransformerEncoderLayer = Module:extend("TransformerEncoderLayer")
M.TransformerEncoderLayer = TransformerEncoderLayer

function TransformerEncoderLayer:init(...) init_layer(self, 2, {"self_attn"}, ...) end

local encoder_options = {src_mask = none, src_key_padding_mask = none, is_causal = false}

function TransformerEncoderLayer:forward(src, src_mask, src_key_padding_mask, is_causal)
  if type(src_mask) == "table" then
    local o = keywords.check("TransformerEncoderLayer", src_mask, encoder_options)
    src_mask, src_key_padding_mask, is_causal = o.src_mask, o.src_key_padding_mask, o.is_causal
  end
  local attention, first = self.self_attn, self.dropout1
  if self.norm_first then
    local normed = self.norm1(src)
    local x = src + attend(attention, first, normed, normed, src_mask, src_key_padding_mask, is_causal)
    return x + feed(self, self.norm2(x), self.dropout2)
  end
  local x = self.norm1(src + attend(attention, first, src, src, src_mask, src_key_padding_mask, is_causal))
  return self.norm2(x + feed(self, x, self.dropout2))
end

local TransformerDecoderLayer = Module:extend("TransformerDecoderLayer")
M.TransformerDecoderLayer = TransformerDecoderLayer

function TransformerDecoderLayer:init(...) init_layer(self, 3, {"self_attn", "multihead_attn"}, ...) end

local decoder_options = {tgt_mask = none, memory_mask = none, tgt_key_padding_mask = none,
  memory_key_padding_mask = none, tgt_is_causal = false,
                         memory_is_causal = false}

-- Returns six masks, given by position or in a table, as a table.
local function decoder_masks(name, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask,
  tgt_is_causal, memory_is_causal)
  if type(tgt_mask) == "table" then return keywords.check(name, tgt_mask, decoder_options) end
  return {tgt_mask = tgt_mask, memory_mask = memory_mask, tgt_key_padding_mask = tgt_key_padding_mask,
          memory_key_padding_mask = memory_key_padding_mask, tgt_is_causal = tgt_is_causal,
            memory_is_causal = memory_is_causal}
end

function TransformerDecoderLayer:forward(tgt, memory, ...)
  local o = decoder_masks("TransformerDecoderLayer", ...)
  local own, cross, first, second = self.self_attn, self.multihead_attn, self.dropout1, self.dropout2
  local padding, memory_padding, causal = o.tgt_key_padding_mask, o.memory_key_padding_mask, o.memory_is_causal
  if self.norm_first then
    local normed = self.norm1(tgt)
    local x = tgt + attend(own, first, normed, normed, o.tgt_mask, padding, o.tgt_is_causal)
    x = x + attend(cross, second, self.norm2(x), memory, o.memory_mask, memory_padding, causal)
    return x + feed(self, self.norm3(x), self.dropout3)
  end
  local x = self.norm1(tgt + attend(own, first, tgt, tgt, o.tgt_mask, padding, o.tgt_is_causal))
  x = self.norm2(x + attend(cross, second, x, memory, o.memory_mask, memory_padding, causal))
  return self.norm3(x + feed(self, x, self.dropout3))
end

-- Stacks ------------------------------------------------------------------------------------------------------------

local function init_stack(self, layer, num_layers, norm)
  base.check_module(self._name, layer)
  errors.count(self._name, "num_layers", num_layers, 0)
  if norm ~= nil then base.check_module(self._name, norm) end
  self.layers = ModuleList()
  for _ = 1, num_layers do self.layers:append(deepcopy(layer)) end
  self.num_layers, self.norm = num_layers, norm
end

local TransformerEncoder = Module:extend("TransformerEncoder")
M.TransformerEncoder = TransformerEncoder

-- PyTorch's nested tensors do not exist here. Padding is computed too; elements without padding have the same results.
function TransformerEncoder:init(...)
  local o = read("TransformerEncoder",
    {{"encoder_layer"}, {"num_layers"}, {"norm", none}, {"enable_nested_tensor", none}, {"mask_check", none}}, ...)
  if o.enable_nested_tensor then fail("TransformerEncoder: enable_nested_tensor = true does not exist yet") end
  init_stack(self, o.encoder_layer, o.num_layers, o.norm)
end

local stack_options = {mask = none, src_key_padding_mask = none, is_causal = none}

function TransformerEncoder:forward(src, mask, src_key_padding_mask, is_causal)
  if type(mask) == "table" then
    local o = keywords.check("TransformerEncoder", mask, stack_options)
    mask, src_key_padding_mask, is_causal = o.mask, o.src_key_padding_mask, o.is_causal
  end
  local x, layers = src, self.layers
  for i = 1, self.num_layers do
    x = layers[i](x, {src_mask = mask, src_key_padding_mask = src_key_padding_mask, is_causal = is_causal == true})
  end
  if self.norm ~= nil then x = self.norm(x) end
  return x
end

local TransformerDecoder = Module:extend("TransformerDecoder")
M.TransformerDecoder = TransformerDecoder

function TransformerDecoder:init(...)
  local o = read("TransformerDecoder", {{"decoder_layer"}, {"num_layers"}, {"norm", none}}, ...)
  init_stack(self, o.decoder_layer, o.num_layers, o.norm)
end

function TransformerDecoder:forward(tgt, memory, ...)
  local o = decoder_masks("TransformerDecoder", ...)
  local x, layers = tgt, self.layers
  for i = 1, self.num_layers do
    x = layers[i](x, memory,
      {tgt_mask = o.tgt_mask, memory_mask = o.memory_mask, tgt_key_padding_mask = o.tgt_key_padding_mask,
      memory_key_padding_mask = o.memory_key_padding_mask, tgt_is_causal = o.tgt_is_causal == true,
        memory_is_causal = o.memory_is_causal == true})
  end
  if self.norm ~= nil then x = self.norm(x) end
  return x
end

-- Both --------------------------------------------------------------------------------------------------------------

local Transformer = Module:extend("Transformer")
M.Transformer = Transformer

local schema = {{"d_model", 512}, {"nhead", 8}, {"num_encoder_layers", 6}, {"num_decoder_layers", 6},
  {"dim_feedforward", 2048}, {"dropout", 0.1},
  {"activation", "relu"}, {"custom_encoder", none}, {"custom_decoder", none}, {"layer_norm_eps", 1e-5},
    {"batch_first", false},
  {"norm_first", false}, {"bias", true}, {"device", none}, {"dtype", "float32"}}

function Transformer:init(...)
  local o = read("Transformer", schema, ...)
  local layer = {}
  for _, row in ipairs(layer_schema) do layer[row[1]] = o[row[1]] end
  local norm = {eps = o.layer_norm_eps, bias = o.bias, device = o.device, dtype = o.dtype}
  self.encoder = o.custom_encoder or
    TransformerEncoder(TransformerEncoderLayer(layer), o.num_encoder_layers, LayerNorm(o.d_model, norm))
  self.decoder = o.custom_decoder or
    TransformerDecoder(TransformerDecoderLayer(layer), o.num_decoder_layers, LayerNorm(o.d_model, norm))
  for _, p in ipairs(self:parameters()) do
    if p:dim() > 1 then init.xavier_uniform_(p) end
  end
  self.d_model, self.nhead, self.batch_first = o.d_model, o.nhead, o.batch_first
end

local function check_inputs(self, src, tgt)
  local batch = self.batch_first and 0 or 1
  if src:dim() == 3 and src:size(batch) ~= tgt:size(batch) then
    fail("Transformer: src has a batch of %d, tgt one of %d", src:size(batch), tgt:size(batch))
  end
  if src:size(-1) ~= self.d_model or tgt:size(-1) ~= self.d_model then
    fail("Transformer: src has %d features and tgt %d, d_model is %d", src:size(-1), tgt:size(-1), self.d_model)
  end
end

local forward_schema = {{"src_mask", none}, {"tgt_mask", none}, {"memory_mask", none}, {"src_key_padding_mask", none},
  {"tgt_key_padding_mask", none},
  {"memory_key_padding_mask", none}, {"src_is_causal", none}, {"tgt_is_causal", none}, {"memory_is_causal", false}}

function Transformer:forward(src, tgt, ...)
  local o = read("Transformer", forward_schema, ...)
  check_inputs(self, src, tgt)
  local memory = self.encoder(src,
    {mask = o.src_mask, src_key_padding_mask = o.src_key_padding_mask, is_causal = o.src_is_causal})
  return self.decoder(tgt, memory,
    {tgt_mask = o.tgt_mask, memory_mask = o.memory_mask, tgt_key_padding_mask = o.tgt_key_padding_mask,
    memory_key_padding_mask = o.memory_key_padding_mask, tgt_is_causal = o.tgt_is_causal == true,
      memory_is_causal = o.memory_is_causal})
end

-- Returns a mask that hides later positions: 0 on and below the diagonal, -inf above.
function Transformer.generate_square_subsequent_mask(size, ...)
  -- called as a method: model:generate_...
  if type(size) == "table" then return Transformer.generate_square_subsequent_mask(...) end
  local o = read("generate_square_subsequent_mask", {{"sz"}, {"device", none}, {"dtype", "float32"}}, size, ...)
  errors.count("generate_square_subsequent_mask", "sz", o.sz, 0)
  return lt.full({o.sz, o.sz}, -math.huge, {device = o.device, dtype = o.dtype}):triu(1)
end

return M
