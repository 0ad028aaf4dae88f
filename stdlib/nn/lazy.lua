-- Layers that learn the number of input features or channels at their first forward. They then get their parameters,
-- and become the layer that they stand for. A parameter stays the same object; until then it has no elements.
local lt, use = ...
local errors, keywords = use "errors", use "keywords"
local set_data = lt._native.set_data

-- Returns the dimension of the input whose size counts, by the input's number of dimensions.
local function place(self, input)
  local places = self._places
  local at = places == "last" and -1 or places[input:dim()]
  if at == nil then errors.fail("%s: does not take an input of %d dimensions", self._name, input:dim()) end
  return at
end

-- Returns the parameters and buffers that depend on the count, by name.
local function parts(module)
  local found = {}
  for name, p in module:named_parameters() do found[name] = p end
  for name, b in module:named_buffers() do
    if b:dim() > 0 then found[name] = b end
  end
  return found
end

-- Returns a layer for this count, with module's options.
local function layer_for(module, count)
  local options = module._lazy
  for _, t in pairs(parts(module)) do options.dtype, options.device = t.dtype, t.device end
  options[module._count] = count
  return module._layer(options)
end

-- Moves layer's parameters and buffers into module, which becomes such a layer.
local function become(module, layer)
  local mine, fresh = parts(module), {}
  for name, t in pairs(parts(layer)) do
    set_data(mine[name], t:detach())
    fresh[mine[name]] = true
  end
  module[module._count] = layer[module._count]
  rawset(module, "_lazy", nil)
  setmetatable(module, module._layer)
  if lt._native.renew_states then lt._native.renew_states(fresh) end
end

local materialise_outside = lt.disable(function(module, count) become(module, layer_for(module, count)) end,
  {reason = "the first call of a lazy layer makes its parameters: call the model once before it is compiled"})

local function make(name, layer, count_name, places, of_weight)
  local class = layer:extend(name)
  class._layer, class._count, class._places = layer, count_name, places
  local schema = {unpack(layer._schema, 2)}

  function class:init(...)
    local options = keywords.read(name, schema, ...)
    local groups = options.groups
    options[count_name] = type(groups) == "number" and groups > 0 and groups or 1
    layer.init(self, options)
    for _, t in pairs(parts(self)) do set_data(t, lt.empty({0}, {dtype = t.dtype, device = t.device})) end
    self[count_name] = 0
    rawset(self, "_lazy", options)
  end
  -- Draws nothing: there are no elements yet.
  function class:reset_parameters() end

  function class:forward(input, ...)
    errors.tensor(name, "input", input)
    materialise_outside(self, input:size(place(self, input)))
    return self:forward(input, ...)
  end
  -- A state to be loaded, with names that begin with prefix, also determines the count. Returns, by parameter and
  -- buffer, a tensor like the one it will be, and a function that makes it so; nil if the state does not determine it.
  function class:_expect(state, prefix)
    local weight = state[prefix .. "weight"] or state[prefix .. "running_mean"]
    local count = lt.is_tensor(weight) and weight:numel() > 0 and of_weight(self, weight)
    if not count then return nil end
    local layer, like, mine = layer_for(self, count), {}, parts(self)
    for name, t in pairs(parts(layer)) do like[mine[name]] = t end
    return like, function() become(self, layer) end
  end
  return class
end

local function of_linear(_, weight) return weight:dim() > 0 and weight:size(-1) end
local function of_conv(self, weight) return weight:dim() > 1 and weight:size(1) * self.groups end
local function of_first(_, weight) return weight:dim() > 0 and weight:size(0) end

local classes, convolutions, norms = {}, use "nn.convolutions", use "nn.batch_norms"
local function add(name, layer, ...) classes[name] = make(name, layer, ...) end
add("LazyLinear", use "nn.linear", "in_features", "last", of_linear)
for dims = 1, 2 do
  local channels = {[dims + 1] = 0, [dims + 2] = 1}
  add("LazyConv" .. dims .. "d", convolutions["Conv" .. dims .. "d"], "in_channels", channels, of_conv)
  add("LazyConvTranspose" .. dims .. "d", convolutions["ConvTranspose" .. dims .. "d"], "in_channels", channels,
    of_first)
  add("LazyInstanceNorm" .. dims .. "d", norms["InstanceNorm" .. dims .. "d"], "num_features", channels, of_first)
end
for dims = 1, 3 do
  local least = dims == 1 and 2 or dims + 2
  add("LazyBatchNorm" .. dims .. "d", norms["BatchNorm" .. dims .. "d"], "num_features", {[least] = 1, [dims + 2] = 1},
    of_first)
end

return classes
