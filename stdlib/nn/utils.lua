-- nn.utils: clips gradients, and converts parameters to one vector. Nothing here reads a number out of a tensor, so
-- that a train step with clipping is one graph.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"

local M = {}

local function list_of(fn, parameters, name)
  if type(parameters) == "userdata" then return {parameters} end
  name = name or "parameters"
  if type(parameters) ~= "table" or getmetatable(parameters) ~= nil then -- a module is no list
    errors.wrong(fn, name, "a Tensor or a list of Tensors", parameters)
  end
  for i = 1, #parameters do
    if type(parameters[i]) ~= "userdata" then
      fail("%s: %s[%d] is %s, not a Tensor", fn, name, i, errors.show(parameters[i]))
    end
  end
  return parameters
end

local function gradients_of(fn, parameters)
  local list, grads = list_of(fn, parameters), {}
  for i = 1, #list do
    local grad = list[i].grad
    if grad ~= nil then grads[#grads + 1] = grad end
  end
  return grads
end

local norm_of = lt.norm

local function total_of(tensors, norm_type)
  if #tensors == 0 then return lt.tensor(0) end
  local norms = {}
  for i = 1, #tensors do norms[i] = norm_of(tensors[i], norm_type) end
  if #norms == 1 then return norms[1] end
  return norm_of(lt.stack(norms), norm_type)
end

-- foreach chooses how PyTorch launches. Here it has no effect.
local norm_rows = {{"norm_type", 2}, {"error_if_nonfinite", false}, {"foreach", keywords.none}}

local function norm_options(fn, ...)
  local options = keywords.read(fn, norm_rows, ...)
  local p = options.norm_type
  if type(p) ~= "number" or p <= 0 then errors.wrong(fn, "norm_type", "a number > 0", p) end
  return options
end

local function check_finite(fn, options, total)
  if not options.error_if_nonfinite then return end
  local value = total:item()
  if value ~= value or value == math.huge then
    fail("%s: the norm is not finite; leave out error_if_nonfinite to go on all the same", fn)
  end
end

-- Returns the norm of the tensors' norms, a tensor.
function M.get_total_norm(tensors, ...)
  local options = norm_options("get_total_norm", ...)
  local total = total_of(list_of("get_total_norm", tensors, "tensors"), options.norm_type)
  check_finite("get_total_norm", options, total)
  return total
end

local function scale(grads, total_norm, max_norm)
  local factor = (max_norm / (total_norm + 1e-6)):clamp{max = 1}
  for i = 1, #grads do grads[i]:mul_(factor) end
end

-- Scales the gradients in place so that their norm is at most max_norm. Returns the norm before, a tensor.
function M.clip_grad_norm_(parameters, max_norm, ...)
  if type(max_norm) ~= "number" then errors.number("clip_grad_norm_", "max_norm", max_norm) end
  local options = norm_options("clip_grad_norm_", ...)
  local grads = gradients_of("clip_grad_norm_", parameters)
  if #grads == 0 then return lt.tensor(0) end
  local total = lt.no_grad(total_of, grads, options.norm_type)
  check_finite("clip_grad_norm_", options, total)
  lt.no_grad(scale, grads, total, max_norm)
  return total
end

local function clamp(grads, value)
  for i = 1, #grads do grads[i]:clamp_(-value, value) end
end

-- Clamps each element of the gradients, in place, to [-clip_value, clip_value].
function M.clip_grad_value_(parameters, clip_value, ...)
  if ... ~= nil then keywords.read("clip_grad_value_", {{"foreach", keywords.none}}, ...) end
  if type(clip_value) ~= "number" then errors.number("clip_grad_value_", "clip_value", clip_value) end
  lt.no_grad(clamp, gradients_of("clip_grad_value_", parameters), clip_value)
end

function M.parameters_to_vector(parameters)
  local list, parts = list_of("parameters_to_vector", parameters), {}
  for i = 1, #list do parts[i] = list[i]:reshape(-1) end
  return lt.cat(parts)
end

local function write(list, vector)
  local at = 0
  for i = 1, #list do
    local p = list[i]
    local n = p:numel()
    p:copy_(vector:narrow(0, at, n):view(p.shape))
    at = at + n
  end
end

-- Writes the elements of a vector into the parameters, in order.
function M.vector_to_parameters(vector, parameters)
  if type(vector) ~= "userdata" or vector:dim() ~= 1 then
    fail("vector_to_parameters: a tensor of one dimension is needed")
  end
  local list, n = list_of("vector_to_parameters", parameters), 0
  for i = 1, #list do n = n + list[i]:numel() end
  if n ~= vector:size(0) then
    fail("vector_to_parameters: %d elements for parameters of %d", vector:size(0), n)
  end
  lt.no_grad(write, list, vector:detach())
end

return use("lazy").fill(M, {parametrize = "nn.parametrize"}, {["nn.packed"] = "rnn",
  ["nn.quantized"] = "quantize_",
  ["nn.norm_utils"] = "weight_norm remove_weight_norm spectral_norm remove_spectral_norm parametrizations"})
