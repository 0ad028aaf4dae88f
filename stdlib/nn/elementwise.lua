-- Modules of one op with options: activations, losses and distances. Returns a table of classes; each is made from its
-- row when its name is first read. Options come by position or in a trailing table, by PyTorch's names. They are passed
-- on to the op unchanged.
local lt, use = ...
local errors = use "errors"
local keywords = use "keywords"
local Module, none = use("nn.module").Module, keywords.none

local flags = {"inplace", "log_target", "log_input", "full"} -- the op itself checks the other options

-- Returns the options of a constructor's call by name, only those that were given.
local function read_options(where, names, ...)
  local schema = {}
  for i, name in ipairs(names) do schema[i] = {name, none} end
  local given = keywords.read(where, schema, ...)
  for _, name in ipairs(flags) do
    if given[name] ~= nil then errors.boolean(where, name, given[name]) end
  end
  return given
end

local function repr(self)
  local parts = {}
  for _, name in ipairs(self._options) do
    local value = self[name]
    if value ~= nil and type(value) ~= "userdata" then
      if type(value) == "boolean" then value = value and "True" or "False" end
      parts[#parts + 1] = name .. "=" .. tostring(value)
    end
  end
  return table.concat(parts, ", ")
end

-- Stores the options in the module: fields to read, one table to pass on (nil if there are none), tensors as buffers.
local function take(self, names, ...)
  local given, any, tensors = read_options(self._name, names, ...), false, false
  for name, value in pairs(given) do
    if type(value) == "userdata" then
      self:register_buffer(name, value)
      tensors = true
    else
      self[name] = value
    end
    any = true
  end
  rawset(self, "_given", any and given or nil)
  rawset(self, "_tensors", tensors)
end

-- Returns the current options: buffers may have moved or changed their dtype.
local function options_of(self)
  if not self._tensors then return self._given end
  local now = {}
  for name, value in pairs(self._given) do
    if type(value) == "userdata" then now[name] = self[name] else now[name] = value end
  end
  return now
end

local function of_one(op)
  return function(self, input)
    local options = options_of(self)
    if options == nil then return op(input) end
    return op(input, options)
  end
end
local function of_two(op)
  return function(self, input, target)
    local options = options_of(self)
    if options == nil then return op(input, target) end
    return op(input, target, options)
  end
end
local function of_three(op)
  return function(self, a, b, c)
    local options = options_of(self)
    if options == nil then return op(a, b, c) end
    return op(a, b, c, options)
  end
end

-- The number of tensors that forward takes; the class, the op, and the options in PyTorch's order.
local rows = [[
1 CELU celu alpha inplace
1 ELU elu alpha inplace
1 GELU gelu approximate
1 GLU glu dim
1 Hardshrink hardshrink lambd
1 Hardsigmoid hardsigmoid inplace
1 Hardswish hardswish inplace
1 Hardtanh hardtanh min_val max_val inplace
1 LeakyReLU leaky_relu negative_slope inplace
1 LogSigmoid logsigmoid
1 Mish mish inplace
1 ReLU relu inplace
1 ReLU6 relu6 inplace
1 SELU selu inplace
1 Sigmoid sigmoid
1 SiLU silu inplace
1 Softplus softplus beta threshold
1 Softshrink softshrink lambd
1 Softsign softsign
1 Tanh tanh
1 Tanhshrink tanhshrink
1 Threshold threshold threshold value inplace
2 BCELoss binary_cross_entropy weight reduction
2 BCEWithLogitsLoss binary_cross_entropy_with_logits weight reduction pos_weight
2 CosineSimilarity cosine_similarity dim eps
2 CrossEntropyLoss cross_entropy weight ignore_index reduction label_smoothing
2 HingeEmbeddingLoss hinge_embedding_loss margin reduction
2 HuberLoss huber_loss reduction delta
2 KLDivLoss kl_div reduction log_target
2 L1Loss l1_loss reduction
2 MSELoss mse_loss reduction
2 MultiLabelMarginLoss multilabel_margin_loss reduction
2 MultiLabelSoftMarginLoss multilabel_soft_margin_loss weight reduction
2 MultiMarginLoss multi_margin_loss p margin weight reduction
2 NLLLoss nll_loss weight ignore_index reduction
2 PairwiseDistance pairwise_distance p eps keepdim
2 PoissonNLLLoss poisson_nll_loss log_input full eps reduction
2 SmoothL1Loss smooth_l1_loss reduction beta
2 SoftMarginLoss soft_margin_loss reduction
3 CosineEmbeddingLoss cosine_embedding_loss margin reduction
3 GaussianNLLLoss gaussian_nll_loss full eps reduction
3 MarginRankingLoss margin_ranking_loss margin reduction
3 TripletMarginLoss triplet_margin_loss margin p eps swap reduction
]]

local by_count = {of_one, of_two, of_three}

local function make(classes, name)
  local count, op, options = rows:match("(%d) " .. name .. " (%S+) ?([^\n]*)\n")
  if count == nil then return nil end
  local names = {}
  for option in options:gmatch "%S+" do names[#names + 1] = option end
  local class = Module:extend(name)
  class._options = names
  function class:init(...) take(self, names, ...) end
  class.forward = by_count[tonumber(count)](assert(lt[op], op))
  class.extra_repr = repr
  classes[name] = class
  return class
end

return setmetatable({}, {__index = make})
