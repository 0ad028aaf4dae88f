-- Layers that drop elements or whole channels while training: one class for each, whose forward calls its op.
local lt, use = ...
local errors = use "errors"
local Module = use("nn.module").Module
local keywords = use "keywords"

local classes = {}

local function layer(name, op)
  local class = Module:extend(name)
  function class:init(...)
    local options = keywords.read(name, {{"p", 0.5}, {"inplace", false}}, ...)
    local p = options.p
    if type(p) ~= "number" or not (p >= 0 and p <= 1) then
      errors.wrong(name, "p", "a number between 0 and 1", p)
    end
    self.p, self.inplace = p, options.inplace
  end
  function class:forward(input) return op(input, self.p, self.training, self.inplace) end
  function class:extra_repr() return string.format("p=%g, inplace=%s", self.p, self.inplace and "True" or "False") end
  classes[name] = class
end

layer("Dropout", lt.dropout)
layer("Dropout1d", lt.dropout1d)
layer("Dropout2d", lt.dropout2d)
layer("Dropout3d", lt.dropout3d)
layer("AlphaDropout", lt.alpha_dropout)
layer("FeatureAlphaDropout", lt.feature_alpha_dropout)

return classes
