-- nn.Bilinear.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local init = use "nn.initialisers"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local Bilinear = Module:extend("Bilinear")

function Bilinear:init(...)
  local options = keywords.read("Bilinear", {{"in1_features"}, {"in2_features"}, {"out_features"}, {"bias", true},
    {"device", keywords.none}, {"dtype", "float32"}}, ...)
  local in1_features, in2_features, out_features = options.in1_features, options.in2_features, options.out_features
  errors.count("Bilinear", "in1_features", in1_features, 1)
  errors.count("Bilinear", "in2_features", in2_features, 0)
  errors.count("Bilinear", "out_features", out_features, 0)
  self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
  local how = {dtype = options.dtype, device = options.device}
  self.weight = Parameter(lt.empty({out_features, in1_features, in2_features}, how))
  if options.bias then self.bias = Parameter(lt.empty({out_features}, how)) end
  self:reset_parameters()
end

function Bilinear:reset_parameters()
  local bound = 1 / math.sqrt(self.in1_features)
  init.uniform_(self.weight, -bound, bound)
  if self.bias then init.uniform_(self.bias, -bound, bound) end
end

function Bilinear:forward(input1, input2) return lt.bilinear(input1, input2, self.weight, self.bias) end

function Bilinear:extra_repr()
  return string.format("in1_features=%d, in2_features=%d, out_features=%d, bias=%s", self.in1_features,
    self.in2_features,
    self.out_features, self.bias and "True" or "False")
end

return Bilinear
