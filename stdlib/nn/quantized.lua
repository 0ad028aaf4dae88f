-- nn.QuantizedLinear: a Linear whose weight has 8 or 4 bits, widened as the product reads it. nn.utils.quantize_
-- replaces a module's Linear layers by it. The formats are those of PyTorch's _weight_int8pack_mm (a scale for each
-- row) and _weight_int4pack_mm (a scale and a zero for each group of a row).
local lt, use = ...
local errors = use "errors"
local base = use "nn.module"
local keywords = use "keywords"

local Module, Parameter = base.Module, base.Parameter
local QuantizedLinear = Module:extend("QuantizedLinear")

local M = {QuantizedLinear = QuantizedLinear}

-- Quantizes to int8: a row's largest magnitude becomes 127.
local function to_int8(weight)
  local scales = (weight:float():abs():amax(1) / 127):clamp({min = 1e-12}):to(weight.dtype)
  local whole = (weight:float() / scales:float():unsqueeze(1)):round():clamp(-128, 127)
  return whole:to("int8"), scales
end

-- Quantizes to int4: a group's least element becomes -8, its largest 7. A byte has two elements, the first in the lower
-- half.
local function to_int4(weight, group)
  local n, k = weight:size(0), weight:size(1)
  local groups = weight:float():view(n, k / group, group)
  local least, most = groups:amin(2), groups:amax(2)
  local scales = ((most - least) / 15):clamp({min = 1e-12}):to(weight.dtype)
  local zeros = (least + scales:float() * 8):to(weight.dtype)
  local whole = ((groups - zeros:float():unsqueeze(2)) / scales:float():unsqueeze(2)):round():clamp(-8, 7)
  local halves = whole:to("int8"):view(n, k / 2, 2)
  local bytes = halves:select(2, 0):bitwise_and(15):bitwise_or(halves:select(2, 1):bitwise_left_shift(4))
  return bytes:to("uint8"), lt.stack({scales:t(), zeros:t()}, -1):contiguous()
end

local schema = {{"linear"}, {"bits", 8}, {"group_size", 128}}
local GROUPS = {[32] = true, [64] = true, [128] = true, [256] = true}

-- nn.QuantizedLinear(linear, {bits = 8 | 4, group_size = 128})
function QuantizedLinear:init(...)
  local options = keywords.read("QuantizedLinear", schema, ...)
  local linear, bits, group = options.linear, options.bits, options.group_size
  if not base.is_module(linear) or not base.is_parameter(linear.weight) then
    errors.wrong("QuantizedLinear", "linear", "a Linear", linear)
  end
  if bits ~= 8 and bits ~= 4 then errors.fail("QuantizedLinear: bits must be 8 or 4, got %s", tostring(bits)) end
  if bits == 4 and not GROUPS[group] then
    errors.fail("QuantizedLinear: group_size must be 32, 64, 128 or 256, got %s", tostring(group))
  end
  self.in_features, self.out_features = linear.weight:size(1), linear.weight:size(0)
  self.bits, self.group_size = bits, bits == 4 and group or nil
  if bits == 4 and self.in_features % group ~= 0 then
    errors.fail("QuantizedLinear: %d features are no whole groups of %d", self.in_features, group)
  end
  lt.no_grad(function()
    local weight, scales
    if bits == 8 then weight, scales = to_int8(linear.weight) else weight, scales = to_int4(linear.weight, group) end
    self:register_buffer("weight", weight)
    self:register_buffer("scales", scales)
    if linear.bias then self.bias = Parameter(linear.bias:detach(), false) end
  end)
end

function QuantizedLinear:forward(input)
  local rows, sizes = input, nil
  if input:dim() ~= 2 then
    sizes = {}
    for d = 0, input:dim() - 2 do sizes[d + 1] = input:size(d) end
    sizes[#sizes + 1] = self.out_features
    rows = input:reshape(-1, self.in_features)
  end
  local y
  if self.bits == 8 then
    y = lt.weight_int8pack_mm(rows, self.weight, self.scales)
  else
    y = lt.weight_int4pack_mm(rows, self.weight, self.group_size, self.scales)
  end
  if self.bias then y = y + self.bias end
  return sizes and y:view(sizes) or y
end

-- Returns the weight with which the product computes, in the scales' dtype.
function QuantizedLinear:dequantize()
  if self.bits == 8 then return (self.weight:float() * self.scales:float():unsqueeze(1)):to(self.scales.dtype) end
  local n, k, group = self.out_features, self.in_features, self.group_size
  local high = self.weight:to("int8")
  local low = high:bitwise_left_shift(4):bitwise_right_shift(4)
  local whole = lt.stack({low, high:bitwise_right_shift(4)}, -1):view(n, k / group, group):float()
  local scales = self.scales:float():transpose(0, 1):unsqueeze(2)
  return (whole * scales:select(3, 0) + scales:select(3, 1)):view(n, k):to(self.scales.dtype)
end

function QuantizedLinear:extra_repr()
  return string.format("in_features=%d, out_features=%d, bias=%s, bits=%d%s", self.in_features, self.out_features,
    self.bias and "True" or "False", self.bits, self.group_size and ", group_size=" .. self.group_size or "")
end

-- Replaces the Linear layers below `module`. If filter is given, only those for which filter(layer, name) is true.
-- Returns module. A layer that is in several places stays one layer.
function M.quantize_(module, options)
  if not base.is_module(module) then errors.wrong("quantize_", "module", "a module", module) end
  options = keywords.check("quantize_", options or {}, {bits = 8, group_size = 128, filter = keywords.none})
  local Linear, made = use "nn.linear", {}
  local function replace(parent, prefix)
    for _, key in ipairs(base.part_keys(parent, "module")) do
      local child, name = parent[key], prefix .. (type(key) == "number" and key - 1 or key)
      if getmetatable(child) ~= Linear then
        replace(child, name .. ".")
      elseif not options.filter or options.filter(child, name) then
        made[child] = made[child] or QuantizedLinear(child, {bits = options.bits, group_size = options.group_size})
        parent[key] = made[child]
      end
    end
  end
  replace(module, "")
  return module
end

return M
