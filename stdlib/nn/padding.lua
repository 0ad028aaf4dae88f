-- Layers that pad: ZeroPad1d to CircularPad3d. Returns a table of classes; each is made when its name is first read.
local lt, use = ...
local errors = use "errors"
local Module = use("nn.module").Module
local keywords = use "keywords"

-- Returns the padding as a list that begins with the last dimension. It may be one number for all sides.
local function pad_of(name, dims, padding)
  if type(padding) == "number" then
    local list = {}
    for i = 1, 2 * dims do list[i] = padding end
    return list
  end
  if type(padding) ~= "table" or #padding ~= 2 * dims then
    errors.wrong(name, "padding", "a number or a list of " .. 2 * dims .. " numbers", padding)
  end
  return padding
end

local function make(name, dims, mode, fixed)
  local class = Module:extend(name)
  local schema = {{"padding"}, mode == "constant" and not fixed and {"value"} or nil}
  function class:init(...)
    local options = keywords.read(name, schema, ...)
    self.padding = pad_of(name, dims, options.padding)
    self.value = fixed or options.value
    if mode == "constant" then errors.number(name, "value", self.value) end
  end
  function class:forward(input) return lt.pad(input, self.padding, mode, self.value) end
  function class:extra_repr() return "padding=(" .. table.concat(self.padding, ", ") .. ")" end
  return class
end

local modes = {Zero = {"constant", 0}, Constant = {"constant"}, Reflection = {"reflect"}, Replication = {"replicate"},
  Circular = {"circular"}}

return setmetatable({}, {__index = function(classes, name)
  local kind, dims = name:match "^(%a+)Pad([123])d$"
  local mode = modes[kind]
  if mode == nil then return nil end
  local class = make(name, tonumber(dims), unpack(mode))
  classes[name] = class
  return class
end})
