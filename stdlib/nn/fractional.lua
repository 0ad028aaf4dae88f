-- functional.fractional_max_pool2d and nn.FractionalMaxPool2d: windows at random places, drawn anew at each call.
local lt, use = ...
local errors, keywords = use "errors", use "keywords"
local Module = use("nn.module").Module
local none = keywords.none

-- Windows at random places, drawn anew at each call. Their number is output_size, or output_ratio of the input's size.
local take = lt.fractional_max_pool2d_with_indices
local function fractional_max_pool2d(...)
  local where = "fractional_max_pool2d"
  local o = keywords.read(where,
    {{"input"}, {"kernel_size"}, {"output_size", none}, {"output_ratio", none},
    {"return_indices", false}, {"_random_samples", none}}, ...)
  local x, size, ratio, samples = o.input, o.output_size, o.output_ratio, o._random_samples
  errors.tensor(where, "input", x)
  local dims = x:dim()
  if dims ~= 3 and dims ~= 4 then errors.fail("%s: expects an input of 3 or 4 dimensions, got %d", where, dims) end
  if size == nil then
    if ratio == nil then errors.fail("%s: output_size or output_ratio is needed", where) end
    if type(ratio) == "number" then ratio = {ratio, ratio} end
    for i = 1, 2 do errors.number(where, "output_ratio", ratio[i]) end
    size = {math.floor(x:size(-2) * ratio[1]), math.floor(x:size(-1) * ratio[2])}
  end
  if samples == nil then
    samples = lt.rand({dims == 4 and x:size(0) or 1, x:size(-3), 2}, {dtype = x.dtype, device = x.device})
  end
  local y, indices = take(x, o.kernel_size, size, samples)
  if o.return_indices then return y, indices end
  return y
end

local FractionalMaxPool2d = Module:extend("FractionalMaxPool2d")
function FractionalMaxPool2d:init(...)
  local where = "FractionalMaxPool2d"
  local o = keywords.read(where, {{"kernel_size"}, {"output_size", none}, {"output_ratio", none},
    {"return_indices", false}, {"_random_samples", none}}, ...)
  if (o.output_size == nil) == (o.output_ratio == nil) then
    errors.fail("%s: give output_size or output_ratio, one of the two", where)
  end
  self.kernel_size, self.output_size, self.output_ratio = o.kernel_size, o.output_size, o.output_ratio
  self.return_indices = o.return_indices
  self:register_buffer("_random_samples", o._random_samples)
end
function FractionalMaxPool2d:forward(input)
  return fractional_max_pool2d(input, self.kernel_size, self.output_size, self.output_ratio,
    self.return_indices, self._random_samples)
end

return {fractional_max_pool2d = fractional_max_pool2d, FractionalMaxPool2d = FractionalMaxPool2d}
