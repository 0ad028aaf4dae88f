-- Layers that only move elements: shuffling, flattening, unflattening, Identity. There is one class for each, whose
-- forward calls its op.
local lt, use = ...
local errors = use "errors"
local Module = use("nn.module").Module
local keywords = use "keywords"

local classes = {}

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

local Flatten = Module:extend("Flatten")
classes.Flatten = Flatten

function Flatten:init(...)
  local options = keywords.read("Flatten", {{"start_dim", 1}, {"end_dim", -1}}, ...)
  self.start_dim, self.end_dim = options.start_dim, options.end_dim
  errors.number("Flatten", "start_dim", self.start_dim)
  errors.number("Flatten", "end_dim", self.end_dim)
end

function Flatten:forward(input) return input:flatten(self.start_dim, self.end_dim) end

function Flatten:extra_repr() return string.format("start_dim=%d, end_dim=%d", self.start_dim, self.end_dim) end

local Identity = Module:extend("Identity")
classes.Identity = Identity
function Identity:init() end
function Identity:forward(input) return input end

return classes
