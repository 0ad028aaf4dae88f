-- weight_norm and spectral_norm, twice as in PyTorch. In nn.utils a hook before forward computes the weight. In
-- nn.utils.parametrizations reading the weight does.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local hooks = use "nn.hooks"
local functional = use "nn.functional"
local keywords = use "keywords"
local parametrize = use "nn.parametrize"
local isinstance = use "isinstance"

local Module, Parameter = base.Module, base.Parameter
local read, none = keywords.read, keywords.none
local old, new = {}, {}

local function dim_of(where, weight, dim)
  local n = weight:dim()
  if type(dim) ~= "number" or dim < -n or dim >= n then
    errors.wrong(where, "dim", string.format("from %d to %d", -n, n - 1), dim)
  end
  return dim < 0 and dim + n or dim
end

local function parameter_of(where, module, name)
  base.check_module(where, module)
  local weight = module[name]
  if not base.is_parameter(weight) then fail("%s: %s has no parameter '%s'", where, module._name, tostring(name)) end
  return weight
end

-- Weight norm ---------------------------------------------------------------------------------------------------------

-- Returns the norm over all dimensions but dim, which is kept; over all if dim is nil.
local function norm_except(v, dim)
  if dim == nil then return v:norm() end
  local dims = {}
  for d = 0, v:dim() - 1 do
    if d ~= dim then dims[#dims + 1] = d end
  end
  if #dims == 0 then return v:abs() end
  return v:norm(2, dims, true)
end

local function normed(g, v, dim) return v * (g / norm_except(v, dim)) end

local weight_schema = {{"module"}, {"name", "weight"}, {"dim", 0}}

-- dim = false stands for PyTorch's None: one norm of the whole weight.
local function read_weight(...)
  local o = read("weight_norm", weight_schema, ...)
  local weight = parameter_of("weight_norm", o.module, o.name)
  if o.dim == false or o.dim == -1 then return o.module, o.name, weight, nil end
  return o.module, o.name, weight, dim_of("weight_norm", weight, o.dim)
end

-- Removes a parameter, whose place a plain tensor takes that is computed before each forward.
local function take_parameter(module, name)
  rawset(module, name, nil)
  base.forget(module, name)
end

local function forget_parts(module, name, ...)
  for _, suffix in ipairs {...} do
    rawset(module, name .. suffix, nil)
    base.forget(module, name .. suffix)
    module._buffers[name .. suffix] = nil
  end
end

-- module._normed[name] = {kind, set, value}: the value that a hook of this file computes. It is a field of the module,
-- so a deep copy has it too.
local function add_hook(where, module, name, value)
  module = base.real(module)
  local normed_here = rawget(module, "_normed") or {}
  if normed_here[name] then fail("%s: '%s' has such a hook already", where, name) end
  local function set(self) rawset(self, name, value(self)) end
  module:register_forward_pre_hook(set)
  normed_here[name] = {kind = where, set = set, value = value}
  rawset(module, "_normed", normed_here)
end

local function remove_hook(where, module, name, ...)
  base.check_module("remove_" .. where, module)
  name = name or "weight"
  local all = rawget(base.real(module), "_normed") or {}
  local entry = all[name]
  if not entry or entry.kind ~= where then
    fail("remove_%s: %s of '%s' not found in %s", where, where, name, module._name)
  end
  local value = lt.no_grad(entry.value, module, true)
  hooks.remove(module, "pre", entry.set)
  all[name] = nil
  forget_parts(module, name, ...)
  take_parameter(module, name)
  module[name] = Parameter(value)
  return module
end

function old.weight_norm(...)
  local module, name, weight, dim = read_weight(...)
  local g, v = name .. "_g", name .. "_v"
  local function value(self) return normed(self[g], self[v], dim) end
  add_hook("weight_norm", module, name, value)
  take_parameter(module, name)
  module[g] = Parameter(lt.no_grad(norm_except, weight:detach(), dim))
  module[v] = Parameter(weight:detach())
  rawset(module, name, value(module))
  return module
end
function old.remove_weight_norm(module, name) return remove_hook("weight_norm", module, name, "_g", "_v") end

local WeightNorm = Module:extend("_WeightNorm")
function WeightNorm:init(dim) self.dim = dim end
function WeightNorm:forward(g, v) return normed(g, v, self.dim) end
function WeightNorm:right_inverse(weight) return norm_except(weight, self.dim), weight end

function new.weight_norm(...)
  local module, name, _, dim = read_weight(...)
  return parametrize.register_parametrization(module, name, WeightNorm(dim), {unsafe = true})
end

-- Spectral norm -------------------------------------------------------------------------------------------------------

local spectral_schema = {{"module"}, {"name", "weight"}, {"n_power_iterations", 1}, {"eps", 1e-12}, {"dim", none}}

-- The filters of these layers are the second dimension.
local convolutions = use "nn.convolutions"
local transposed = {convolutions.ConvTranspose1d, convolutions.ConvTranspose2d}

local function read_spectral(...)
  local o = read("spectral_norm", spectral_schema, ...)
  local weight = parameter_of("spectral_norm", o.module, o.name)
  errors.count("spectral_norm", "n_power_iterations", o.n_power_iterations, 1)
  errors.number("spectral_norm", "eps", o.eps)
  local dim = o.dim or isinstance(o.module, transposed) and 1 or 0
  o.dim = dim_of("spectral_norm", weight, dim)
  return o, weight
end

local function matrix_of(weight, dim)
  if dim ~= 0 then weight = weight:movedim(dim, 0) end
  return weight:reshape(weight:size(0), -1)
end

local function random_unit(n, like, eps)
  return functional.normalize(lt.randn(n, {dtype = like.dtype, device = like.device}), 2, 0, eps)
end

local function half_step(matrix, from, to, eps) to:copy_(functional.normalize(matrix:mv(from), 2, 0, eps)) end

local function iterate(matrix, u, v, eps, n, v_first)
  local turned = matrix:t()
  for _ = 1, n do
    if v_first then half_step(turned, u, v, eps) end
    half_step(matrix, v, u, eps)
    if not v_first then half_step(turned, u, v, eps) end
  end
end

-- Copies u and v: the next iteration writes them, and a backward may come later.
local function over_sigma(weight, matrix, u, v)
  u, v = u:clone(), v:clone()
  return weight / u:dot(matrix:mv(v))
end

function old.spectral_norm(...)
  local o, weight = read_spectral(...)
  local module, name, dim, eps = o.module, o.name, o.dim, o.eps
  local original, u, v = name .. "_orig", name .. "_u", name .. "_v"
  local function value(self, still)
    local w = self[original]
    local matrix = matrix_of(w, dim)
    if self.training and not still then
      lt.no_grad(iterate, matrix:detach(), self[u], self[v], eps, o.n_power_iterations, true)
    end
    return over_sigma(w, matrix, self[u], self[v])
  end
  add_hook("spectral_norm", module, name, value)
  local matrix = matrix_of(weight:detach(), dim)
  take_parameter(module, name)
  module[original] = weight
  rawset(module, name, weight:detach())
  module:register_buffer(u, random_unit(matrix:size(0), weight, eps))
  module:register_buffer(v, random_unit(matrix:size(1), weight, eps))
  return module
end
function old.remove_spectral_norm(module, name) return remove_hook("spectral_norm", module, name, "_orig", "_u",
  "_v") end

local SpectralNorm = Module:extend("_SpectralNorm")

function SpectralNorm:init(weight, n_power_iterations, dim, eps)
  self.dim, self.eps, self.n_power_iterations = dim, eps, n_power_iterations
  self.is_vector = weight:dim() <= 1
  if self.is_vector then return end
  local matrix = matrix_of(weight:detach(), dim)
  self:register_buffer("_u", random_unit(matrix:size(0), weight, eps))
  self:register_buffer("_v", random_unit(matrix:size(1), weight, eps))
  lt.no_grad(iterate, matrix, self._u, self._v, eps, 15, false)
end

function SpectralNorm:forward(weight)
  if self.is_vector then return functional.normalize(weight, 2, 0, self.eps) end
  local matrix = matrix_of(weight, self.dim)
  if self.training then
    lt.no_grad(iterate, matrix:detach(), self._u, self._v, self.eps, self.n_power_iterations, false)
  end
  return over_sigma(weight, matrix, self._u, self._v)
end

function SpectralNorm:right_inverse(weight) return weight end

function new.spectral_norm(...)
  local o, weight = read_spectral(...)
  return parametrize.register_parametrization(o.module, o.name,
    SpectralNorm(weight, o.n_power_iterations, o.dim, o.eps))
end

old.parametrizations = new
return old
