-- lt.nn: Module, Parameter, the layers, nn.functional and nn.init. A layer's forward calls the native op it names and
-- nothing else.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local nn = {Module = Module, Parameter = Parameter, functional = functional, init = init, is_module = base.is_module,
            is_parameter = base.is_parameter}

-- Linear -------------------------------------------------------------------------------------------------------------

local linear = lt.linear
local Linear = Module:extend("Linear")
nn.Linear = Linear

Linear._schema = {{"in_features"}, {"out_features"}, {"bias", true}, {"device", keywords.none}, {"dtype", "float32"}}

function Linear:init(...)
  local options = keywords.read("Linear", Linear._schema, ...)
  local in_features, out_features = options.in_features, options.out_features
  errors.count("Linear", "in_features", in_features, 0)
  errors.count("Linear", "out_features", out_features, 0)
  self.in_features, self.out_features = in_features, out_features
  local how = {dtype = options.dtype, device = options.device}
  self.weight = Parameter(lt.empty({out_features, in_features}, how))
  if options.bias then self.bias = Parameter(lt.empty({out_features}, how)) end
  self:reset_parameters()
end

function Linear:reset_parameters()
  init.kaiming_uniform_(self.weight, {a = math.sqrt(5)})
  if self.bias then
    local bound = self.in_features > 0 and 1 / math.sqrt(self.in_features) or 0
    init.uniform_(self.bias, -bound, bound)
  end
end

function Linear:forward(input) return linear(input, self.weight, self.bias) end

function Linear:extra_repr()
  return string.format("in_features=%d, out_features=%d, bias=%s", self.in_features, self.out_features,
    self.bias and "True" or "False")
end

nn.utils = use "nn.utils"
nn.utils.rnn = use("nn.packed").rnn
nn.utils.parametrize = use "nn.parametrize"
local by_norm = use "nn.norm_utils"
nn.utils.parametrizations = by_norm.parametrizations
for name, f in pairs(by_norm.utils) do nn.utils[name] = f end

-- In files of their own -----------------------------------------------------------------------------------------------

local norms = use "nn.norms"
nn.LayerNorm, nn.RMSNorm, nn.Embedding = norms.LayerNorm, norms.RMSNorm, norms.Embedding
use "nn.attention"(nn)
for name, class in pairs(use "nn.containers") do nn[name] = class end

-- Layers without parameters: one op each -----------------------------------------------------------------------------

for name, class in pairs(use "nn.elementwise") do nn[name] = class end

local losses = use "nn.losses"
for name, f in pairs(losses.functional) do functional[name] = f end
for name, class in pairs(losses.classes) do nn[name] = class end

local Identity = Module:extend("Identity")
nn.Identity = Identity
function Identity:init() end
function Identity:forward(input) return input end

local function layer_with_dim(name, op)
  local class = Module:extend(name)
  function class:init(...)
    self.dim = keywords.read(name, {{"dim", keywords.none}}, ...).dim
    errors.number(name, "dim", self.dim)
  end
  function class:forward(input) return op(input, self.dim) end
  function class:extra_repr() return "dim=" .. self.dim end
  nn[name] = class
end

layer_with_dim("Softmax", lt.softmax)
layer_with_dim("LogSoftmax", lt.log_softmax)
layer_with_dim("Softmin", lt.softmin)

local Flatten = Module:extend("Flatten")
nn.Flatten = Flatten

function Flatten:init(...)
  local options = keywords.read("Flatten", {{"start_dim", 1}, {"end_dim", -1}}, ...)
  self.start_dim, self.end_dim = options.start_dim, options.end_dim
  errors.number("Flatten", "start_dim", self.start_dim)
  errors.number("Flatten", "end_dim", self.end_dim)
end

function Flatten:forward(input) return input:flatten(self.start_dim, self.end_dim) end

function Flatten:extra_repr() return string.format("start_dim=%d, end_dim=%d", self.start_dim, self.end_dim) end

for name, class in pairs(use "nn.spatial") do nn[name] = class end
for name, class in pairs(use "nn.dropout") do nn[name] = class end
for name, class in pairs(use "nn.shapes") do nn[name] = class end
for name, class in pairs(use "nn.resampling") do nn[name] = class end
for name, class in pairs(use "nn.recurrent") do nn[name] = class end
use "nn.transformer"(nn)
use "nn.lazy"(nn)
local bags = use "nn.bags"
nn.EmbeddingBag, functional.embedding_bag = bags.EmbeddingBag, bags.embedding_bag
use "nn.hooks"

return nn
