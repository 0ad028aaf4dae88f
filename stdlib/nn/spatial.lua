-- Layers over images and sequences: convolutions, pools, and normalisations by channel. PyTorch's arguments by position
-- or in a trailing table.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"
local read, none = keywords.read, keywords.none

local Module, Parameter = base.Module, base.Parameter
local M = {}

-- Arguments ----------------------------------------------------------------------------------------------------------

local function check_count(where, name, value) errors.count(where, name, value, 1) end

-- A list of `dims` numbers.
local function list_of(where, name, value, dims)
  if type(value) == "number" then value = {value, value} end
  if type(value) ~= "table" or #value < dims then
    errors.wrong(where, name, "a number or a list of " .. dims, value)
  end
  local list = {}
  for i = 1, dims do
    errors.count(where, name, value[i], 0)
    list[i] = value[i]
  end
  return list
end

local function text_of(value)
  if type(value) ~= "table" then return tostring(value) end
  return "(" .. table.concat(value, ", ") .. (#value == 1 and ",)" or ")")
end

local function python_bool(b) return b and "True" or "False" end

-- Convolutions -------------------------------------------------------------------------------------------------------

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

-- What lt.pad takes: from the last dimension on, before and after; where it is "same", more of an odd sum after.
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
    check_count(name, "in_channels", o.in_channels)
    check_count(name, "out_channels", o.out_channels)
    check_count(name, "groups", o.groups)
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

-- Pools --------------------------------------------------------------------------------------------------------------

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

local FractionalMaxPool2d = Module:extend("FractionalMaxPool2d")
M.FractionalMaxPool2d = FractionalMaxPool2d
function FractionalMaxPool2d:init(...)
  local where = "FractionalMaxPool2d"
  local o = read(where, {{"kernel_size"}, {"output_size", none}, {"output_ratio", none}, {"return_indices", false},
                         {"_random_samples", none}}, ...)
  if (o.output_size == nil) == (o.output_ratio == nil) then
    errors.fail("%s: give output_size or output_ratio, one of the two", where)
  end
  self.kernel_size, self.output_size, self.output_ratio = o.kernel_size, o.output_size, o.output_ratio
  self.return_indices = o.return_indices
  self:register_buffer("_random_samples", o._random_samples)
end
function FractionalMaxPool2d:forward(input)
  return functional.fractional_max_pool2d(input, self.kernel_size, self.output_size, self.output_ratio,
    self.return_indices, self._random_samples)
end

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

-- Normalisations -----------------------------------------------------------------------------------------------------

local function add_affine(self, o, channels)
  local how = {dtype = o.dtype, device = o.device}
  if o.affine then
    self.weight = Parameter(lt.ones({channels}, how))
    self.bias = Parameter(lt.zeros({channels}, how))
  end
  if o.track_running_stats then
    self:register_buffer("running_mean", lt.zeros({channels}, how))
    self:register_buffer("running_var", lt.ones({channels}, how))
    self:register_buffer("num_batches_tracked", lt.zeros({}, {dtype = "int64", device = o.device}))
  end
end

local function reset_running_stats(self)
  if not self.track_running_stats then return end
  init.zeros_(self.running_mean)
  init.ones_(self.running_var)
  lt.no_grad(self.num_batches_tracked.zero_, self.num_batches_tracked)
end

local function reset_norm(self)
  reset_running_stats(self)
  if self.affine then
    init.ones_(self.weight)
    init.zeros_(self.bias)
  end
end

local function norm_repr(self)
  return string.format("%d, eps=%s, momentum=%s, affine=%s, track_running_stats=%s", self.num_features,
    tostring(self.eps),
    self.momentum and tostring(self.momentum) or "None", python_bool(self.affine),
      python_bool(self.track_running_stats))
end

local function check_dims(name, input, least, most)
  local dims = input:dim()
  if dims < least or dims > most then
    local wanted = least == most and tostring(least) or least .. " or " .. most
    fail("%s: the input must have %s dimensions, got %d", name, wanted, dims)
  end
end

-- momentum = nil averages over all batches.
local function factor_of(self)
  if self.momentum ~= nil then return self.momentum end
  return 1 / self.num_batches_tracked:item()
end

local function norm_of(name, instance, least, most)
  local class = Module:extend(name)
  M[name] = class
  local schema = {{"num_features"}, {"eps", 1e-5}, {"momentum", 0.1}, {"affine", not instance},
    {"track_running_stats", not instance},
                  {"device", none}, {"dtype", "float32"}}
  class._schema = schema
  function class:init(...)
    local o = read(name, schema, ...)
    check_count(name, "num_features", o.num_features)
    self.num_features, self.eps, self.affine, self.track_running_stats = o.num_features, o.eps, o.affine,
      o.track_running_stats
    if o.momentum ~= false then self.momentum = o.momentum end -- false: a cumulative average
    add_affine(self, o, o.num_features)
  end
  class.reset_parameters, class.reset_running_stats, class.extra_repr = reset_norm, reset_running_stats, norm_repr
  local batch_norm, instance_norm = functional.batch_norm, functional.instance_norm
  if instance then
    function class:forward(input)
      check_dims(name, input, least, most)
      local alone = input:dim() == least
      if alone then input = input:unsqueeze(0) end
      local use_input = self.training or not self.track_running_stats
      local y = instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias, use_input,
        self.momentum or 0, self.eps)
      return alone and y:squeeze(0) or y
    end
  else
    function class:forward(input)
      check_dims(name, input, least, most)
      local factor = 0
      if self.training and self.track_running_stats then
        self.num_batches_tracked:add_(1)
        factor = factor_of(self)
      end
      local training = self.training or not self.track_running_stats
      return batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, training, factor, self.eps)
    end
  end
end
norm_of("BatchNorm1d", false, 2, 3)
norm_of("BatchNorm2d", false, 4, 4)
norm_of("BatchNorm3d", false, 5, 5)
norm_of("InstanceNorm1d", true, 2, 3)
norm_of("InstanceNorm2d", true, 3, 4)

-- Statistics over several processes, which Lutra does not have.
local SyncBatchNorm = Module:extend("SyncBatchNorm")
M.SyncBatchNorm = SyncBatchNorm
local function no_processes()
  fail("SyncBatchNorm: statistics over several processes do not exist yet; BatchNorm2d is the same for one process")
end
SyncBatchNorm.init, SyncBatchNorm.convert_sync_batchnorm = no_processes, no_processes

local GroupNorm = Module:extend("GroupNorm")
M.GroupNorm = GroupNorm
function GroupNorm:init(...)
  local o = read("GroupNorm",
    {{"num_groups"}, {"num_channels"}, {"eps", 1e-5}, {"affine", true}, {"device", none}, {"dtype", "float32"}}, ...)
  check_count("GroupNorm", "num_groups", o.num_groups)
  check_count("GroupNorm", "num_channels", o.num_channels)
  if o.num_channels % o.num_groups ~= 0 then fail("GroupNorm: num_channels must be divisible by num_groups") end
  self.num_groups, self.num_channels, self.eps, self.affine = o.num_groups, o.num_channels, o.eps, o.affine
  add_affine(self, o, o.num_channels)
end
GroupNorm.reset_parameters = reset_norm
function GroupNorm:forward(input) return functional.group_norm(input, self.num_groups, self.weight, self.bias,
  self.eps) end
function GroupNorm:extra_repr()
  return string.format("%d, %d, eps=%s, affine=%s", self.num_groups, self.num_channels, tostring(self.eps),
    python_bool(self.affine))
end

return M
