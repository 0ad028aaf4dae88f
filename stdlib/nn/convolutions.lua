-- nn.Conv1d, Conv2d, ConvTranspose1d and ConvTranspose2d.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"
local arguments = use "nn.arguments"
local read, none = keywords.read, keywords.none
local list_of, text_of = arguments.list_of, arguments.text_of

local Module, Parameter = base.Module, base.Parameter
local M = {}

local conv_schema = {{"in_channels"}, {"out_channels"}, {"kernel_size"}, {"stride", 1}, {"padding", 0}, {"dilation", 1},
  {"groups", 1},
                     {"bias", true}, {"padding_mode", "zeros"}, {"device", none}, {"dtype", "float32"}}
local transpose_schema = {{"in_channels"}, {"out_channels"}, {"kernel_size"}, {"stride", 1}, {"padding", 0},
  {"output_padding", 0},
                          {"groups", 1}, {"bias", true}, {"dilation", 1}, {"padding_mode", "zeros"}, {"device", none},
                            {"dtype", "float32"}}

local function reset_conv(self)
  init.kaiming_uniform_(self.weight, {a = math.sqrt(5)})
  if self.bias then
    local fan_in = init._calculate_fan_in_and_fan_out(self.weight)
    local bound = fan_in > 0 and 1 / math.sqrt(fan_in) or 0
    init.uniform_(self.bias, -bound, bound)
  end
end

local function conv_repr(self)
  local parts = {string.format("%d, %d, kernel_size=%s, stride=%s", self.in_channels, self.out_channels,
    text_of(self.kernel_size),
    text_of(self.stride))}
  local function add(name, value, usual)
    if text_of(value) ~= usual then parts[#parts + 1] = name .. "=" .. text_of(value) end
  end
  local dims = #self.kernel_size
  local zeros, ones = dims == 1 and "(0,)" or "(0, 0)", dims == 1 and "(1,)" or "(1, 1)"
  add("padding", self.padding, zeros)
  add("dilation", self.dilation, ones)
  if self.output_padding then add("output_padding", self.output_padding, zeros) end
  if self.groups ~= 1 then parts[#parts + 1] = "groups=" .. self.groups end
  if not self.bias then parts[#parts + 1] = "bias=False" end
  if self.padding_mode ~= "zeros" then parts[#parts + 1] = "padding_mode=" .. self.padding_mode end
  return table.concat(parts, ", ")
end

local padding_modes = {zeros = true, reflect = true, replicate = true, circular = true}

-- Returns lt.pad's argument: sizes from the last dimension on, before and after. For "same", an odd sum has more after.
local function pad_list(self, dims)
  local list = {}
  for d = dims, 1, -1 do
    local before, after = 0, 0
    if self.padding == "same" then
      local sum = self.dilation[d] * (self.kernel_size[d] - 1)
      before = math.floor(sum / 2)
      after = sum - before
    elseif self.padding ~= "valid" then
      before, after = self.padding[d], self.padding[d]
    end
    list[#list + 1], list[#list + 2] = before, after
  end
  return list
end

local function conv_of(name, dims, op, transposed)
  local class = Module:extend(name)
  class._schema = transposed and transpose_schema or conv_schema
  M[name] = class

  function class:init(...)
    local o = read(name, class._schema, ...)
    errors.count(name, "in_channels", o.in_channels, 1)
    errors.count(name, "out_channels", o.out_channels, 1)
    errors.count(name, "groups", o.groups, 1)
    if o.in_channels % o.groups ~= 0 then fail(name .. ": in_channels must be divisible by groups") end
    if o.out_channels % o.groups ~= 0 then fail(name .. ": out_channels must be divisible by groups") end
    if not padding_modes[o.padding_mode] or transposed and o.padding_mode ~= "zeros" then
      errors.wrong(name, "padding_mode", transposed and "'zeros'" or "'zeros', 'reflect', 'replicate' or 'circular'",
        o.padding_mode)
    end
    self.padding_mode = o.padding_mode
    self.in_channels, self.out_channels, self.groups = o.in_channels, o.out_channels, o.groups
    self.kernel_size = list_of(name, "kernel_size", o.kernel_size, dims)
    self.stride = list_of(name, "stride", o.stride, dims)
    self.dilation = list_of(name, "dilation", o.dilation, dims)
    local named = type(o.padding) == "string"
    if named and (transposed or o.padding ~= "same" and o.padding ~= "valid") then
      errors.wrong(name, "padding", transposed and "a number or a list of numbers"
        or "'same', 'valid', a number or a list of numbers", o.padding)
    end
    self.padding = named and o.padding or list_of(name, "padding", o.padding, dims)
    if o.padding == "same" and math.max(unpack(self.stride)) > 1 then
      fail(name .. ": padding 'same' goes with stride 1 only, got stride %s", text_of(self.stride))
    end
    if transposed then self.output_padding = list_of(name, "output_padding", o.output_padding, dims) end
    if self.padding_mode ~= "zeros" then rawset(self, "_pad", pad_list(self, dims)) end
    local shape = transposed and {o.in_channels, o.out_channels / o.groups}
      or {o.out_channels, o.in_channels / o.groups}
    for _, k in ipairs(self.kernel_size) do shape[#shape + 1] = k end
    local how = {dtype = o.dtype, device = o.device}
    self.weight = Parameter(lt.empty(shape, how))
    if o.bias then self.bias = Parameter(lt.empty({o.out_channels}, how)) end
    self:reset_parameters()
  end

  class.reset_parameters, class.extra_repr = reset_conv, conv_repr
  if transposed then
    function class:forward(input)
      return op(input, self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups,
        self.dilation)
    end
  else
    function class:forward(input)
      if self.padding_mode ~= "zeros" then
        input = lt.pad(input, self._pad, self.padding_mode)
        return op(input, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)
      end
      return op(input, self.weight, self.bias, self.stride, self.padding, self.dilation, self.groups)
    end
  end
end

conv_of("Conv1d", 1, functional.conv1d)
conv_of("Conv2d", 2, functional.conv2d)
conv_of("ConvTranspose1d", 1, functional.conv_transpose1d, true)
conv_of("ConvTranspose2d", 2, functional.conv_transpose2d, true)

return M
