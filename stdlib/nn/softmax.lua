-- nn.Softmax, LogSoftmax, Softmin, and Softmax2d over channels.
local lt, use = ...
local errors = use "errors"
local Module = use("nn.module").Module
local keywords = use "keywords"

local classes = {}

local function layer_with_dim(name, op)
  local class = Module:extend(name)
  function class:init(...)
    self.dim = keywords.read(name, {{"dim", keywords.none}}, ...).dim
    errors.number(name, "dim", self.dim)
  end
  function class:forward(input) return op(input, self.dim) end
  function class:extra_repr() return "dim=" .. self.dim end
  classes[name] = class
end

layer_with_dim("Softmax", lt.softmax)
layer_with_dim("LogSoftmax", lt.log_softmax)
layer_with_dim("Softmin", lt.softmin)

local Softmax2d = Module:extend("Softmax2d")
classes.Softmax2d = Softmax2d

function Softmax2d:init(...) keywords.read("Softmax2d", {}, ...) end

function Softmax2d:forward(input)
  if input:dim() ~= 3 and input:dim() ~= 4 then
    errors.fail("Softmax2d: expected an input of 3 or 4 dimensions, got %d", input:dim())
  end
  return lt.softmax(input, -3)
end

return classes
