-- Modules that are one op with options: activations, losses and distances, made from two tables. Options come by
-- position or in a trailing table, by PyTorch's names; they go on to the op as they were given.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local keywords = use "keywords"
local Module, Parameter, none = base.Module, base.Parameter, keywords.none

local classes = {}

local flags = {"inplace", "log_target", "log_input", "full"} -- what else is wrong the op says

-- The options of a constructor's call, by name; only those that were given.
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

-- What every class here does with its options: fields to read, one table to pass on (nil where there are none), tensors
-- as buffers.
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

-- The options as they are now: buffers move and change their dtype.
local function options_of(self)
  if not self._tensors then return self._given end
  local now = {}
  for name, value in pairs(self._given) do
    if type(value) == "userdata" then now[name] = self[name] else now[name] = value end
  end
  return now
end

local function make(name, op, names, forward)
  local class = Module:extend(name)
  class._options = names
  function class:init(...) take(self, names, ...) end
  class.forward = forward(op)
  class.extra_repr = repr
  classes[name] = class
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

-- {class, op, options in PyTorch's order}
local activations = {
  {"CELU", "celu", {"alpha", "inplace"}}, {"ELU", "elu", {"alpha", "inplace"}}, {"GELU", "gelu", {"approximate"}},
    {"GLU", "glu", {"dim"}},
  {"Hardshrink", "hardshrink", {"lambd"}}, {"Hardsigmoid", "hardsigmoid", {"inplace"}},
    {"Hardswish", "hardswish", {"inplace"}},
  {"Hardtanh", "hardtanh", {"min_val", "max_val", "inplace"}},
    {"LeakyReLU", "leaky_relu", {"negative_slope", "inplace"}},
  {"LogSigmoid", "logsigmoid", {}}, {"Mish", "mish", {"inplace"}}, {"ReLU", "relu", {"inplace"}},
    {"ReLU6", "relu6", {"inplace"}},
  {"SELU", "selu", {"inplace"}}, {"Sigmoid", "sigmoid", {}}, {"SiLU", "silu", {"inplace"}},
    {"Softplus", "softplus", {"beta", "threshold"}},
  {"Softshrink", "softshrink", {"lambd"}}, {"Softsign", "softsign", {}}, {"Tanh", "tanh", {}},
    {"Tanhshrink", "tanhshrink", {}},
  {"Threshold", "threshold", {"threshold", "value", "inplace"}},
}
for _, row in ipairs(activations) do make(row[1], assert(lt[row[2]], row[2]), row[3], of_one) end

local two = {
  {"BCELoss", "binary_cross_entropy", {"weight", "reduction"}},
  {"BCEWithLogitsLoss", "binary_cross_entropy_with_logits", {"weight", "reduction", "pos_weight"}},
  {"CosineSimilarity", "cosine_similarity", {"dim", "eps"}},
  {"CrossEntropyLoss", "cross_entropy", {"weight", "ignore_index", "reduction", "label_smoothing"}},
  {"HingeEmbeddingLoss", "hinge_embedding_loss", {"margin", "reduction"}},
    {"HuberLoss", "huber_loss", {"reduction", "delta"}},
  {"KLDivLoss", "kl_div", {"reduction", "log_target"}}, {"L1Loss", "l1_loss", {"reduction"}},
    {"MSELoss", "mse_loss", {"reduction"}},
  {"MultiLabelMarginLoss", "multilabel_margin_loss", {"reduction"}},
  {"MultiLabelSoftMarginLoss", "multilabel_soft_margin_loss", {"weight", "reduction"}},
  {"MultiMarginLoss", "multi_margin_loss", {"p", "margin", "weight", "reduction"}},
  {"NLLLoss", "nll_loss", {"weight", "ignore_index", "reduction"}},
    {"PairwiseDistance", "pairwise_distance", {"p", "eps", "keepdim"}},
  {"PoissonNLLLoss", "poisson_nll_loss", {"log_input", "full", "eps", "reduction"}},
    {"SmoothL1Loss", "smooth_l1_loss", {"reduction", "beta"}},
  {"SoftMarginLoss", "soft_margin_loss", {"reduction"}},
}
for _, row in ipairs(two) do make(row[1], assert(lt[row[2]], row[2]), row[3], of_two) end

local three = {
  {"CosineEmbeddingLoss", "cosine_embedding_loss", {"margin", "reduction"}},
    {"GaussianNLLLoss", "gaussian_nll_loss", {"full", "eps", "reduction"}},
  {"MarginRankingLoss", "margin_ranking_loss", {"margin", "reduction"}},
  {"TripletMarginLoss", "triplet_margin_loss", {"margin", "p", "eps", "swap", "reduction"}},
}
for _, row in ipairs(three) do make(row[1], assert(lt[row[2]], row[2]), row[3], of_three) end

-- One slope for all channels, or one a channel.
local prelu = lt.prelu
local PReLU = Module:extend("PReLU")
PReLU._options = {"num_parameters", "init"}
classes.PReLU = PReLU

function PReLU:init(...)
  local options = read_options("PReLU", {"num_parameters", "init", "dtype", "device"}, ...)
  self.num_parameters = options.num_parameters or 1
  self.weight = Parameter(lt.full({self.num_parameters}, options.init or 0.25,
    {dtype = options.dtype, device = options.device}))
end
function PReLU:forward(input) return prelu(input, self.weight) end
function PReLU:extra_repr() return "num_parameters=" .. self.num_parameters end

-- A slope drawn while training.
local rrelu = lt.rrelu
local RReLU = Module:extend("RReLU")
RReLU._options = {"lower", "upper", "inplace"}
classes.RReLU = RReLU

function RReLU:init(...)
  local o = keywords.read("RReLU", {{"lower", 1 / 8}, {"upper", 1 / 3}, {"inplace", false}}, ...)
  self.lower, self.upper, self.inplace = o.lower, o.upper, o.inplace
end
function RReLU:forward(input) return rrelu(input, self.lower, self.upper, self.training, self.inplace) end
function RReLU:extra_repr() return string.format("lower=%s, upper=%s%s", self.lower, self.upper, self.inplace
  and ", inplace=True" or "") end

return classes
