-- nn.init: fills a tensor in place and returns it, without recording. PyTorch's names, arguments and bounds.
local lt, use = ...
local fail = use("errors").fail
local keywords = use "keywords"

local M = {}

local function fill(t, values)
  lt.no_grad(t.copy_, t, values)
  return t
end

function M.constant_(t, value) return fill(t, lt.full(t.shape, value, {dtype = t.dtype, device = t.device})) end
function M.zeros_(t) return M.constant_(t, 0) end
function M.ones_(t) return M.constant_(t, 1) end

function M.uniform_(t, a, b)
  a, b = a or 0, b or 1
  return fill(t, lt.rand(t.shape, {dtype = t.dtype, device = t.device}) * (b - a) + a)
end

function M.normal_(t, mean, std)
  return fill(t, lt.randn(t.shape, {dtype = t.dtype, device = t.device}) * (std or 1) + (mean or 0))
end

-- The sizes that one output sees (fan in) and that one input feeds (fan out).
local function fans(t, where)
  local shape = t.shape
  if #shape < 2 then fail(where .. ": a tensor of at least 2 dimensions is needed, not " .. #shape) end
  local field = 1
  for i = 3, #shape do field = field * shape[i] end
  return shape[2] * field, shape[1] * field
end
M._calculate_fan_in_and_fan_out = function(t) return fans(t, "calculate_fan") end

local gains = {linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2), selu = 3 / 4}

function M.calculate_gain(nonlinearity, param)
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (param or 0.01) ^ 2)) end
  local gain = gains[nonlinearity]
  if not gain then fail("calculate_gain: unknown nonlinearity " .. tostring(nonlinearity)) end
  return gain
end

local kaiming_options = {a = 0, mode = "fan_in", nonlinearity = "leaky_relu"}

local function kaiming_std(t, options, where)
  local fan_in, fan_out = fans(t, where)
  if options.mode ~= "fan_in" and options.mode ~= "fan_out" then
    fail(where .. ": mode is 'fan_in' or 'fan_out', not " .. tostring(options.mode))
  end
  local fan = options.mode == "fan_out" and fan_out or fan_in
  return M.calculate_gain(options.nonlinearity, options.a) / math.sqrt(fan)
end

function M.kaiming_uniform_(t, options)
  options = keywords.check("kaiming_uniform_", options, kaiming_options)
  local bound = math.sqrt(3) * kaiming_std(t, options, "kaiming_uniform_")
  return M.uniform_(t, -bound, bound)
end

function M.kaiming_normal_(t, options)
  options = keywords.check("kaiming_normal_", options, kaiming_options)
  return M.normal_(t, 0, kaiming_std(t, options, "kaiming_normal_"))
end

function M.xavier_uniform_(t, gain)
  local fan_in, fan_out = fans(t, "xavier_uniform_")
  local bound = (gain or 1) * math.sqrt(6 / (fan_in + fan_out))
  return M.uniform_(t, -bound, bound)
end

function M.xavier_normal_(t, gain)
  local fan_in, fan_out = fans(t, "xavier_normal_")
  return M.normal_(t, 0, (gain or 1) * math.sqrt(2 / (fan_in + fan_out)))
end

return M
