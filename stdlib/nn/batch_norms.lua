-- Normalisations by channel: BatchNorm, InstanceNorm, GroupNorm.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"
local python_bool = use("nn.arguments").python_bool
local read, none = keywords.read, keywords.none

local Module, Parameter = base.Module, base.Parameter
local M = {}

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

-- momentum = nil: averages over all batches.
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
    errors.count(name, "num_features", o.num_features, 1)
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

-- Normalises with statistics over several processes, which Lutra does not have.
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
  errors.count("GroupNorm", "num_groups", o.num_groups, 1)
  errors.count("GroupNorm", "num_channels", o.num_channels, 1)
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
