-- nn.PReLU, whose slope is learnt, and RReLU, whose slope is random.
local lt, use = ...
local base = use "nn.module"
local keywords = use "keywords"
local Module, Parameter, none = base.Module, base.Parameter, keywords.none

-- One slope for all channels, or one for each.
local prelu = lt.prelu
local PReLU = Module:extend("PReLU")
PReLU._options = {"num_parameters", "init"}

function PReLU:init(...)
  local options = keywords.read("PReLU",
    {{"num_parameters", 1}, {"init", 0.25}, {"dtype", none}, {"device", none}}, ...)
  self.num_parameters = options.num_parameters
  self.weight = Parameter(lt.full({self.num_parameters}, options.init,
    {dtype = options.dtype, device = options.device}))
end
function PReLU:forward(input) return prelu(input, self.weight) end
function PReLU:extra_repr() return "num_parameters=" .. self.num_parameters end

-- The slope is drawn while training.
local rrelu = use("nn.functional").rrelu
local RReLU = Module:extend("RReLU")
RReLU._options = {"lower", "upper", "inplace"}

function RReLU:init(...)
  local o = keywords.read("RReLU", {{"lower", 1 / 8}, {"upper", 1 / 3}, {"inplace", false}}, ...)
  self.lower, self.upper, self.inplace = o.lower, o.upper, o.inplace
end
function RReLU:forward(input) return rrelu(input, self.lower, self.upper, self.training, self.inplace) end
function RReLU:extra_repr() return string.format("lower=%s, upper=%s%s", self.lower, self.upper, self.inplace
  and ", inplace=True" or "") end

return {PReLU = PReLU, RReLU = RReLU}
