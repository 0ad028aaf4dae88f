-- nn.init: each function fills a tensor in place and returns it, without recording. Names, arguments and bounds are
-- PyTorch's.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"

local M = {}

local function fill(t, values)
  lt.no_grad(t.copy_, t, values)
  return t
end

-- Fills by an in-place op. Its intermediate values are freed at once; those of Lua expressions wait for the collector.
local function fill_by(op, t, ...)
  lt.no_grad(op, t, ...)
  return t
end

-- Reads a tensor, then numbers by position or by name in a trailing table, with their defaults: names = {{"mean", 0},
-- {"std", 1}}.
local function read(where, t, names, first, second)
  errors.tensor(where, "tensor", t)
  local given = {first, second}
  local at = type(first) == "table" and 1 or type(second) == "table" and 2
  if at then
    local known = {}
    for i, row in ipairs(names) do known[row[1]] = i end
    local options = given[at]
    given[at] = nil
    for name, value in pairs(options) do
      if not known[name] then
        fail("%s: unknown option '%s'%s", where, tostring(name), errors.known(name, known))
      end
      if given[known[name]] ~= nil then fail("%s: argument '%s' is given twice", where, name) end
      given[known[name]] = value
    end
  end
  for i, row in ipairs(names) do
    if given[i] == nil then given[i] = row[2] end
    errors.number(where, row[1], given[i])
  end
  return given[1], given[2]
end

function M.constant_(t, value)
  value = read("constant_", t, {{"val"}}, value)
  return fill_by(t.fill_, t, value)
end

local function filled(where, value)
  return function(t)
    errors.tensor(where, "tensor", t)
    return M.constant_(t, value)
  end
end
M.zeros_, M.ones_ = filled("zeros_", 0), filled("ones_", 1)

function M.uniform_(t, a, b)
  a, b = read("uniform_", t, {{"a", 0}, {"b", 1}}, a, b)
  return fill_by(t.uniform_, t, a, b)
end

function M.normal_(t, mean, std)
  mean, std = read("normal_", t, {{"mean", 0}, {"std", 1}}, mean, std)
  return fill_by(t.normal_, t, mean, std)
end

-- Fills with a normal distribution cut off at a and b: applies the inverse of its distribution function to uniform
-- draws.
function M.trunc_normal_(t, options)
  errors.tensor("trunc_normal_", "tensor", t)
  options = keywords.check("trunc_normal_", options, {mean = 0, std = 1, a = -2, b = 2})
  for _, name in ipairs {"mean", "std", "a", "b"} do errors.number("trunc_normal_", name, options[name]) end
  local mean, std, a, b = options.mean, options.std, options.a, options.b
  if not (std > 0 and a < b) then fail("trunc_normal_: std must be positive and a smaller than b") end
  local edges = lt.erf(lt.tensor({(a - mean) / std, (b - mean) / std}, {dtype = "float64"}) / math.sqrt(2))
  local low, high = edges[0]:item(), edges[1]:item()
  local draws = lt.rand(t.shape, {dtype = "float64", device = t.device}) * (high - low) + low
  return fill(t, (lt.erfinv(draws) * (std * math.sqrt(2)) + mean):clamp(a, b))
end

function M.eye_(t)
  errors.tensor("eye_", "tensor", t)
  if t:dim() ~= 2 then fail("eye_: a tensor of 2 dimensions is needed, not %d", t:dim()) end
  return fill(t, lt.eye(t.shape[1], t.shape[2], {dtype = t.dtype, device = t.device}))
end

-- Fills a convolution so that it returns its input: each group's filter i passes channel i at its centre.
function M.dirac_(t, groups)
  errors.tensor("dirac_", "tensor", t)
  if type(groups) == "table" then groups = keywords.check("dirac_", groups, {groups = 1}).groups end
  groups = groups or 1
  errors.count("dirac_", "groups", groups, 1)
  local shape = t.shape
  if #shape < 3 or #shape > 5 then fail("dirac_: a tensor of 3 to 5 dimensions is needed, not %d", #shape) end
  if shape[1] % groups ~= 0 then fail("dirac_: %d filters cannot be split into %d groups", shape[1], groups) end
  M.zeros_(t)
  local filters = shape[1] / groups
  lt.no_grad(function()
    for g = 0, groups - 1 do
      for d = 0, math.min(filters, shape[2]) - 1 do
        local at = t:select(0, g * filters + d):select(0, d)
        for i = 3, #shape do at = at:select(0, math.floor(shape[i] / 2)) end
        at:fill_(1)
      end
    end
  end)
  return t
end

-- Returns random orthonormal rows by the Gram-Schmidt process in float64; each row is projected twice. They are the Q
-- of a QR decomposition whose R has a positive diagonal, as in PyTorch.
local function orthonormal_rows(rows, columns, device)
  local made = {}
  for i = 1, rows do
    local row = lt.randn(columns, {dtype = "float64", device = device})
    for _ = 1, i > 1 and 2 or 0 do
      local before = lt.stack(made)
      row = row - before:t():mv(before:mv(row))
    end
    made[i] = row / row:norm()
  end
  return lt.stack(made)
end

-- Fills with a matrix whose rows or columns, whichever are fewer, are orthonormal, times gain. Dimensions behind the
-- first count as one.
function M.orthogonal_(t, gain)
  gain = read("orthogonal_", t, {{"gain", 1}}, gain)
  local shape = t.shape
  if #shape < 2 then fail("orthogonal_: a tensor of at least 2 dimensions is needed, not %d", #shape) end
  if t:numel() == 0 then return t end
  local rows, columns = shape[1], t:numel() / shape[1]
  local q = lt.no_grad(orthonormal_rows, math.min(rows, columns), math.max(rows, columns), t.device)
  if rows > columns then q = q:t() end
  return fill(t, (q * gain):reshape(shape))
end

-- Fills a matrix with normal numbers, with the share `sparsity` of each column zeros.
function M.sparse_(t, sparsity, std)
  sparsity, std = read("sparse_", t, {{"sparsity"}, {"std", 0.01}}, sparsity, std)
  if t:dim() ~= 2 then fail("sparse_: a tensor of 2 dimensions is needed, not %d", t:dim()) end
  local rows, columns = t.shape[1], t.shape[2]
  local zeros = math.ceil(sparsity * rows)
  M.normal_(t, 0, std)
  lt.no_grad(function()
    for column = 0, columns - 1 do
      if zeros > 0 then
        t:select(1, column):index_fill_(0, lt.randperm(rows, {device = t.device}):narrow(0, 0, zeros), 0)
      end
    end
  end)
  return t
end

-- Returns the number of inputs of one output (fan in) and of outputs of one input (fan out).
local function fans(t, where)
  errors.tensor(where, "tensor", t)
  local shape = t.shape
  if #shape < 2 then fail(where .. ": a tensor of at least 2 dimensions is needed, not " .. #shape) end
  local field = 1
  for i = 3, #shape do field = field * shape[i] end
  return shape[2] * field, shape[1] * field
end
M._calculate_fan_in_and_fan_out = function(t) return fans(t, "calculate_fan") end

local gains = {linear = 1, conv1d = 1, conv2d = 1, conv3d = 1, sigmoid = 1, tanh = 5 / 3, relu = math.sqrt(2),
  selu = 3 / 4,
  leaky_relu = false} -- depends on its slope

function M.calculate_gain(nonlinearity, param)
  if nonlinearity == "leaky_relu" then return math.sqrt(2 / (1 + (param or 0.01) ^ 2)) end
  local gain = gains[nonlinearity]
  if not gain then
    fail("calculate_gain: nonlinearity %s is unknown%s", errors.show(nonlinearity), errors.known(nonlinearity, gains))
  end
  return gain
end

local kaiming_options = {a = 0, mode = "fan_in", nonlinearity = "leaky_relu"}

local function kaiming_std(t, options, where)
  local fan_in, fan_out = fans(t, where)
  if options.mode ~= "fan_in" and options.mode ~= "fan_out" then
    local meant = errors.question(options.mode, {"fan_in", "fan_out"})
    fail("%s: mode is 'fan_in' or 'fan_out', got %s%s", where, errors.show(options.mode), meant)
  end
  local fan = options.mode == "fan_out" and fan_out or fan_in
  return M.calculate_gain(options.nonlinearity, options.a) / math.sqrt(math.max(fan, 1)) -- 0: without elements
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
  gain = read("xavier_uniform_", t, {{"gain", 1}}, gain)
  local fan_in, fan_out = fans(t, "xavier_uniform_")
  local bound = gain * math.sqrt(6 / (fan_in + fan_out))
  return M.uniform_(t, -bound, bound)
end

function M.xavier_normal_(t, gain)
  gain = read("xavier_normal_", t, {{"gain", 1}}, gain)
  local fan_in, fan_out = fans(t, "xavier_normal_")
  return M.normal_(t, 0, gain * math.sqrt(2 / (fan_in + fan_out)))
end

return M
