-- Layers that resample images or take them apart, and LocalResponseNorm: one class for each, whose forward calls its
-- op.
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local functional = use "nn.functional"
local keywords = use "keywords"
local Module = base.Module

local classes = {}

local function shown(v)
  if type(v) ~= "table" then return tostring(v) end
  local parts = {}
  for i, each in ipairs(v) do parts[i] = shown(each) end
  return "(" .. table.concat(parts, ", ") .. ")"
end

-- Makes a layer whose arguments are its fields, in order. forward(input, self) runs it.
local function layer(name, schema, forward, check)
  local class = Module:extend(name)
  function class:init(...)
    local options = keywords.read(name, schema, ...)
    for _, row in ipairs(schema) do self[row[1]] = options[row[1]] end
    if check then check(self) end
  end
  function class:forward(input) return forward(input, self) end
  function class:extra_repr()
    local parts = {}
    for _, row in ipairs(schema) do
      if self[row[1]] ~= nil then parts[#parts + 1] = row[1] .. "=" .. shown(self[row[1]]) end
    end
    return table.concat(parts, ", ")
  end
  classes[name] = class
end

local none = keywords.none

layer("Upsample", {{"size", none}, {"scale_factor", none}, {"mode", "nearest"}, {"align_corners", none},
  {"recompute_scale_factor", none}}, function(input, o)
  return functional.interpolate(input, o.size, o.scale_factor, o.mode, o.align_corners, o.recompute_scale_factor)
end)
layer("UpsamplingNearest2d", {{"size", none}, {"scale_factor", none}}, function(input, o)
  return functional.interpolate(input, o.size, o.scale_factor, "nearest")
end)
layer("UpsamplingBilinear2d", {{"size", none}, {"scale_factor", none}}, function(input, o)
  return functional.interpolate(input, o.size, o.scale_factor, "bilinear", true)
end)

local windows = {{"kernel_size"}, {"dilation", 1}, {"padding", 0}, {"stride", 1}}
layer("Unfold", windows,
  function(input, o) return functional.unfold(input, o.kernel_size, o.dilation, o.padding, o.stride) end)
layer("Fold", {{"output_size"}, unpack(windows)}, function(input, o)
  return functional.fold(input, o.output_size, o.kernel_size, o.dilation, o.padding, o.stride)
end)

layer("LocalResponseNorm", {{"size"}, {"alpha", 1e-4}, {"beta", 0.75}, {"k", 1}}, function(input, o)
  return functional.local_response_norm(input, o.size, o.alpha, o.beta, o.k)
end, function(self) errors.count("LocalResponseNorm", "size", self.size, 1) end)

return classes
