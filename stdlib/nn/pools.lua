-- Pools: MaxPool1d to AdaptiveMaxPool2d.
local _, use = ...
local Module = use("nn.module").Module
local functional = use "nn.functional"
local keywords = use "keywords"
local arguments = use "nn.arguments"
local read, none = keywords.read, keywords.none
local list_of, text_of, python_bool = arguments.list_of, arguments.text_of, arguments.python_bool

local M = {}

local function max_pool_of(name, op)
  local class = Module:extend(name)
  M[name] = class
  function class:init(...)
    local o = read(name, {{"kernel_size"}, {"stride", none}, {"padding", 0}, {"dilation", 1}, {"return_indices", false},
                          {"ceil_mode", false}}, ...)
    self.kernel_size, self.stride, self.padding = o.kernel_size, o.stride or o.kernel_size, o.padding
    self.dilation, self.return_indices, self.ceil_mode = o.dilation, o.return_indices, o.ceil_mode
  end
  function class:forward(input)
    return op(input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices)
  end
  function class:extra_repr()
    return string.format("kernel_size=%s, stride=%s, padding=%s, dilation=%s, ceil_mode=%s", text_of(self.kernel_size),
      text_of(self.stride),
      text_of(self.padding), text_of(self.dilation), python_bool(self.ceil_mode))
  end
end
max_pool_of("MaxPool1d", functional.max_pool1d)
max_pool_of("MaxPool2d", functional.max_pool2d)

local function lp_pool_of(name, op)
  local class = Module:extend(name)
  M[name] = class
  function class:init(...)
    local o = read(name, {{"norm_type"}, {"kernel_size"}, {"stride", none}, {"ceil_mode", false}}, ...)
    self.norm_type, self.kernel_size, self.stride, self.ceil_mode = o.norm_type, o.kernel_size, o.stride, o.ceil_mode
  end
  function class:forward(input) return op(input, self.norm_type, self.kernel_size, self.stride, self.ceil_mode) end
  function class:extra_repr()
    return string.format("norm_type=%s, kernel_size=%s, stride=%s, ceil_mode=%s", self.norm_type,
      text_of(self.kernel_size), self.stride and text_of(self.stride) or "None", python_bool(self.ceil_mode))
  end
end
lp_pool_of("LPPool1d", functional.lp_pool1d)
lp_pool_of("LPPool2d", functional.lp_pool2d)

local function window_repr(self)
  return string.format("kernel_size=%s, stride=%s, padding=%s", text_of(self.kernel_size), text_of(self.stride),
    text_of(self.padding))
end

local function max_unpool_of(name, op, dims)
  local class = Module:extend(name)
  M[name] = class
  function class:init(...)
    local o = read(name, {{"kernel_size"}, {"stride", none}, {"padding", 0}}, ...)
    self.kernel_size = list_of(name, "kernel_size", o.kernel_size, dims)
    self.stride = list_of(name, "stride", o.stride or o.kernel_size, dims)
    self.padding = list_of(name, "padding", o.padding, dims)
  end
  function class:forward(input, indices, output_size)
    return op(input, indices, self.kernel_size, self.stride, self.padding, output_size)
  end
  class.extra_repr = window_repr
end
max_unpool_of("MaxUnpool1d", functional.max_unpool1d, 1)
max_unpool_of("MaxUnpool2d", functional.max_unpool2d, 2)

local function avg_pool_of(name, op, divides)
  local class = Module:extend(name)
  M[name] = class
  local schema = {{"kernel_size"}, {"stride", none}, {"padding", 0}, {"ceil_mode", false}, {"count_include_pad", true}}
  if divides then schema[6] = {"divisor_override", none} end
  function class:init(...)
    local o = read(name, schema, ...)
    self.kernel_size, self.stride, self.padding = o.kernel_size, o.stride or o.kernel_size, o.padding
    self.ceil_mode, self.count_include_pad, self.divisor_override = o.ceil_mode, o.count_include_pad, o.divisor_override
  end
  if divides then
    function class:forward(input)
      return op(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
        self.divisor_override)
    end
  else
    function class:forward(input)
      return op(input, self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad)
    end
  end
  class.extra_repr = window_repr
end
avg_pool_of("AvgPool1d", functional.avg_pool1d)
avg_pool_of("AvgPool2d", functional.avg_pool2d, true)

local function adaptive_of(name, op, takes_indices)
  local class = Module:extend(name)
  M[name] = class
  function class:init(...)
    local o = read(name, {{"output_size"}, takes_indices and {"return_indices", false} or nil}, ...)
    self.output_size, self.return_indices = o.output_size, o.return_indices
  end
  if takes_indices then
    function class:forward(input) return op(input, self.output_size, self.return_indices) end
  else
    function class:forward(input) return op(input, self.output_size) end
  end
  function class:extra_repr() return "output_size=" .. text_of(self.output_size) end
end
adaptive_of("AdaptiveAvgPool1d", functional.adaptive_avg_pool1d)
adaptive_of("AdaptiveAvgPool2d", functional.adaptive_avg_pool2d)
adaptive_of("AdaptiveMaxPool1d", functional.adaptive_max_pool1d, true)
adaptive_of("AdaptiveMaxPool2d", functional.adaptive_max_pool2d, true)

return M
