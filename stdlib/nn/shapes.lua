-- Layers that only move elements: padding, shuffling, unflattening; and Bilinear. A class each, whose forward calls its
-- op.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local init = use "nn.initialisers"
local keywords = use "keywords"
local Module, Parameter = base.Module, base.Parameter

local classes = {}

-- Padding: one number for all sides, or a list that begins with the last dimension.
local function pad_of(name, dims, padding)
  if type(padding) == "number" then
    local list = {}
    for i = 1, 2 * dims do list[i] = padding end
    return list
  end
  if type(padding) ~= "table" or #padding ~= 2 * dims then
    errors.wrong(name, "padding", "a number or a list of " .. 2 * dims .. " numbers", padding)
  end
  return padding
end

local function padding(name, dims, mode, fixed)
  local class = Module:extend(name)
  local schema = {{"padding"}, mode == "constant" and not fixed and {"value"} or nil}
  function class:init(...)
    local options = keywords.read(name, schema, ...)
    self.padding = pad_of(name, dims, options.padding)
    self.value = fixed or options.value
    if mode == "constant" then errors.number(name, "value", self.value) end
  end
  function class:forward(input) return lt.pad(input, self.padding, mode, self.value) end
  function class:extra_repr() return "padding=(" .. table.concat(self.padding, ", ") .. ")" end
  classes[name] = class
end

for dims = 1, 3 do
  padding("ZeroPad" .. dims .. "d", dims, "constant", 0)
  padding("ConstantPad" .. dims .. "d", dims, "constant")
  padding("ReflectionPad" .. dims .. "d", dims, "reflect")
  padding("ReplicationPad" .. dims .. "d", dims, "replicate")
  padding("CircularPad" .. dims .. "d", dims, "circular")
end

local function by_factor(name, field, op)
  local class = Module:extend(name)
  function class:init(...)
    self[field] = keywords.read(name, {{field}}, ...)[field]
    errors.count(name, field, self[field], 1)
  end
  function class:forward(input) return op(input, self[field]) end
  function class:extra_repr() return field .. "=" .. self[field] end
  classes[name] = class
end

by_factor("PixelShuffle", "upscale_factor", lt.pixel_shuffle)
by_factor("PixelUnshuffle", "downscale_factor", lt.pixel_unshuffle)
by_factor("ChannelShuffle", "groups", lt.channel_shuffle)

local Unflatten = Module:extend("Unflatten")
classes.Unflatten = Unflatten

function Unflatten:init(...)
  local options = keywords.read("Unflatten", {{"dim"}, {"unflattened_size"}}, ...)
  local dim, sizes = options.dim, options.unflattened_size
  errors.number("Unflatten", "dim", dim)
  if type(sizes) ~= "table" then errors.wrong("Unflatten", "unflattened_size", "a list of sizes", sizes) end
  self.dim, self.unflattened_size = dim, sizes
end

function Unflatten:forward(input) return input:unflatten(self.dim, self.unflattened_size) end

function Unflatten:extra_repr()
  return string.format("dim=%d, unflattened_size=(%s)", self.dim, table.concat(self.unflattened_size, ", "))
end

local Bilinear = Module:extend("Bilinear")
classes.Bilinear = Bilinear

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

return classes
