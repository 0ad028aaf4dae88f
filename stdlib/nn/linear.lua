-- nn.Linear.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local init = use "nn.initialisers"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local linear = lt.linear
local Linear = Module:extend("Linear")

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

return Linear
