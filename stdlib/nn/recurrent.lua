-- nn.RNN, LSTM, GRU and their cells, with PyTorch's names of parameters, defaults and results. A layer multiplies all
-- of its input at once. Each element of the sequence then needs the product with the hidden state and one elementwise
-- step.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local base = use "nn.module"
local functional = use "nn.functional"
local init = use "nn.initialisers"
local keywords = use "keywords"
local is_packed = use("nn.packed").is_packed

local Module, Parameter = base.Module, base.Parameter
local read, none = keywords.read, keywords.none
local linear = lt.linear
local M = {}

-- Steps ---------------------------------------------------------------------------------------------------------------

-- A step takes the gates' parts from the input and from the hidden state, and the states. It returns the next states.
local function tanh_step(from_input, from_hidden) return (from_input + from_hidden):tanh() end
local function relu_step(from_input, from_hidden) return (from_input + from_hidden):relu() end

-- Returns gate k, counted from 0, of n features.
local function gate(from, k, n) return from:narrow(-1, k * n, n) end
local function sum(from_input, from_hidden, k, n) return gate(from_input, k, n) + gate(from_hidden, k, n) end

local function gru_step(from_input, from_hidden, h)
  local n = h:size(-1)
  local reset = sum(from_input, from_hidden, 0, n):sigmoid()
  local update = sum(from_input, from_hidden, 1, n):sigmoid()
  local new = (gate(from_input, 2, n) + reset * gate(from_hidden, 2, n)):tanh()
  return (h - new) * update + new
end

local function lstm_step(from_input, from_hidden, _, c)
  local n = c:size(-1)
  local i = sum(from_input, from_hidden, 0, n):sigmoid()
  local f = sum(from_input, from_hidden, 1, n):sigmoid()
  local g = sum(from_input, from_hidden, 2, n):tanh()
  local o = sum(from_input, from_hidden, 3, n):sigmoid()
  c = (f * c):addcmul(i, g)
  return o * c:tanh(), c
end

-- By mode: the gates; the step; whether it only adds the part from the hidden state to that from the input.
local modes = {
  RNN_TANH = {1, tanh_step, true}, RNN_RELU = {1, relu_step, true}, GRU = {3, gru_step}, LSTM = {4, lstm_step, true},
}

-- Eager code runs the compiled step: one kernel in place of up to a dozen, and one or two for its gradient. It compiles
-- in the background.
for _, mode in pairs(modes) do mode[2] = lt._native.compile_for_library(mode[2]) end

-- Returns the input's bias and that of the hidden state. Where a step adds them, the first is their sum, which is added
-- to all elements of a sequence at once, and so is its gradient.
local function biases(self, names)
  local b_ih, b_hh = self[names.bias_ih], self[names.bias_hh]
  if b_ih ~= nil and modes[self.mode][3] then return b_ih + b_hh, nil end
  return b_ih, b_hh
end

local function rnn_mode(name, nonlinearity)
  if nonlinearity ~= "tanh" and nonlinearity ~= "relu" then
    errors.wrong(name, "nonlinearity", "'tanh' or 'relu'", nonlinearity)
  end
  return nonlinearity == "tanh" and "RNN_TANH" or "RNN_RELU"
end

local function shape_text(t)
  return "{" .. table.concat(t.shape, ", ") .. "}"
end

local function reset(self)
  local bound = 1 / math.sqrt(self.hidden_size)
  for _, p in ipairs(self:parameters()) do init.uniform_(p, -bound, bound) end
end

-- Layers --------------------------------------------------------------------------------------------------------------

local function check_options(name, o)
  errors.count(name, "input_size", o.input_size, 1)
  errors.count(name, "hidden_size", o.hidden_size, 1)
  errors.count(name, "num_layers", o.num_layers, 1)
  errors.count(name, "proj_size", o.proj_size, 0)
  if o.proj_size >= o.hidden_size then fail("%s: proj_size must be smaller than hidden_size", name) end
  if type(o.dropout) ~= "number" or not (o.dropout >= 0 and o.dropout <= 1) then
    errors.wrong(name, "dropout", "a number from 0 to 1", o.dropout)
  end
end

-- Adds the parameters of one direction of a layer: weight_ih_l0, ..., weight_hr_l1_reverse.
local function add_direction(self, suffix, inputs, gates, how)
  local out = self.proj_size > 0 and self.proj_size or self.hidden_size
  self["weight_ih_" .. suffix] = Parameter(lt.empty({gates, inputs}, how))
  self["weight_hh_" .. suffix] = Parameter(lt.empty({gates, out}, how))
  if self.bias then
    self["bias_ih_" .. suffix] = Parameter(lt.empty({gates}, how))
    self["bias_hh_" .. suffix] = Parameter(lt.empty({gates}, how))
  end
  if self.proj_size > 0 then
    self["weight_hr_" .. suffix] = Parameter(lt.empty({self.proj_size, self.hidden_size}, how))
  end
end

local function init_layers(self, mode, o)
  check_options(self._name, o)
  self.mode, self.input_size, self.hidden_size, self.num_layers, self.bias = mode, o.input_size, o.hidden_size,
    o.num_layers, o.bias
  self.batch_first, self.dropout, self.bidirectional, self.proj_size = o.batch_first, o.dropout, o.bidirectional,
    o.proj_size
  local how, out = {dtype = o.dtype, device = o.device}, o.proj_size > 0 and o.proj_size or o.hidden_size
  local suffixes = {} -- of all directions of all layers, in PyTorch's order
  for layer = 0, o.num_layers - 1 do
    for direction = 1, o.bidirectional and 2 or 1 do
      local suffix = "l" .. layer .. (direction == 2 and "_reverse" or "")
      local inputs = layer == 0 and o.input_size or out * (o.bidirectional and 2 or 1)
      add_direction(self, suffix, inputs, modes[mode][1] * o.hidden_size, how)
      local names = {}
      for _, name in ipairs {"weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr"} do
        names[name] = name .. "_" .. suffix
      end
      suffixes[#suffixes + 1] = names
    end
  end
  rawset(self, "_names", suffixes)
  self:reset_parameters()
end

-- Runs one direction of a layer over a sequence (length, batch, features). Returns the outputs in the order of the
-- sequence, and the last states.
local function run_direction(self, names, x, h, c, backwards)
  local w_hh, w_hr, bias, b_hh = self[names.weight_hh], self[names.weight_hr], biases(self, names)
  local step = modes[self.mode][2]
  local function body(state, from_input)
    local h, c = step(from_input, linear(state.h, w_hh, b_hh), state.h, state.c)
    if w_hr ~= nil then h = linear(h, w_hr) end
    return {h = h, c = c}, h
  end
  local inputs = linear(x, self[names.weight_ih], bias)
  local last, outputs = lt.scan(body, {h = h, c = c}, inputs, {reverse = backwards})
  return outputs, last.h, last.c
end

-- Does the same over the data of a packed sequence, whose step i has the first sizes[i] rows. Forwards, rows that end
-- leave the state. Backwards, they join it.
local function run_packed(self, names, packed, x, h0, c0, backwards)
  local w_hh, w_hr, bias, b_hh = self[names.weight_hh], self[names.weight_hr], biases(self, names)
  local step, sizes = modes[self.mode][2], packed.sizes
  local inputs, outputs, ended_h, ended_c = packed:parts(linear(x, self[names.weight_ih], bias)), {}, {}, {}
  local rows, h, c = sizes[backwards and #sizes or 1], nil, nil
  h = h0:narrow(0, 0, rows)
  if c0 ~= nil then c = c0:narrow(0, 0, rows) end
  for i = 1, #sizes do
    local at = backwards and #sizes + 1 - i or i
    local more = sizes[at] - rows
    if more > 0 then
      h = lt.cat({h, h0:narrow(0, rows, more)}, 0)
      if c ~= nil then c = lt.cat({c, c0:narrow(0, rows, more)}, 0) end
    elseif more < 0 then
      ended_h[#ended_h + 1], h = h:narrow(0, rows + more, -more), h:narrow(0, 0, rows + more)
      if c ~= nil then ended_c[#ended_c + 1], c = c:narrow(0, rows + more, -more), c:narrow(0, 0, rows + more) end
    end
    rows = sizes[at]
    h, c = step(inputs[at], linear(h, w_hh, b_hh), h, c)
    if w_hr ~= nil then h = linear(h, w_hr) end
    outputs[at] = h
  end
  for i = #ended_h, 1, -1 do
    h = lt.cat({h, ended_h[i]}, 0)
    if c ~= nil then c = lt.cat({c, ended_c[i]}, 0) end
  end
  return lt.cat(outputs, 0), h, c
end

-- x is a sequence, or the data of a packed one.
local function run_layers(self, x, h0, c0, packed)
  local directions, last_h, last_c = self.bidirectional and 2 or 1, {}, {}
  local hs, cs = h0:unbind(0), c0 ~= nil and c0:unbind(0) or {}
  for layer = 1, self.num_layers do
    local parts = {}
    for direction = 1, directions do
      local at = (layer - 1) * directions + direction
      local names, backwards = self._names[at], direction == 2
      if packed == nil then
        parts[direction], last_h[at], last_c[at] = run_direction(self, names, x, hs[at], cs[at], backwards)
      else
        parts[direction], last_h[at], last_c[at] = run_packed(self, names, packed, x, hs[at], cs[at], backwards)
      end
    end
    x = directions == 2 and lt.cat(parts, -1) or parts[1]
    if self.training and self.dropout > 0 and layer < self.num_layers then x = functional.dropout(x, self.dropout) end
  end
  return x, lt.stack(last_h, 0), c0 ~= nil and lt.stack(last_c, 0) or nil
end

local function check_state(self, what, state, batch, size, batched)
  errors.tensor(self._name, what, state)
  local layers = self.num_layers * (self.bidirectional and 2 or 1)
  if state:dim() ~= (batched and 3 or 2) then
    fail("%s: for an input of %d dimensions %s must have as many, got %d", self._name, batched and 3 or 2, what,
      state:dim())
  end
  if not batched then state = state:unsqueeze(1) end
  if state:size(0) ~= layers or state:size(1) ~= batch or state:size(2) ~= size then
    fail("%s: expected %s of size {%d, %d, %d}, got %s", self._name, what, layers, batch, size, shape_text(state))
  end
  return state
end

local function zeros(self, x, batch, size)
  local layers = self.num_layers * (self.bidirectional and 2 or 1)
  return lt.zeros({layers, batch, size}, {dtype = x.dtype, device = x.device})
end

-- Returns the given state, or zeros. For a packed sequence it is in the order of its rows.
local function state_of(self, what, state, x, batch, size, batched, packed)
  if state == nil then return zeros(self, x, batch, size) end
  state = check_state(self, what, state, batch, size, batched)
  if packed ~= nil then state = packed:sort(state, 1) end
  return state
end

-- Returns the input as (length, batch, features).
local function sequence_of(self, input)
  errors.tensor(self._name, "input", input)
  local dims = input:dim()
  if dims ~= 2 and dims ~= 3 then fail("%s: expected an input of 2 or 3 dimensions, got %d", self._name, dims) end
  if input:size(-1) ~= self.input_size then
    fail("%s: input has %d features, input_size is %d", self._name, input:size(-1), self.input_size)
  end
  local batched = dims == 3
  if not batched then input = input:unsqueeze(1) elseif self.batch_first then input = input:transpose(0, 1) end
  if input:size(0) == 0 then fail("%s: expected a sequence of at least one element", self._name) end
  return input, batched
end

local function restore(self, y, batched)
  if not batched then return y:squeeze(1) end
  return self.batch_first and y:transpose(0, 1) or y
end

-- Returns a layer's input: the tensor, the number of sequences, whether they are a batch, and the packed sequence, if
-- it is one.
local function input_of(self, input)
  if not is_packed(input) then
    local x, batched = sequence_of(self, input)
    return x, x:size(1), batched, nil
  end
  local x = input.data
  if x:dim() ~= 2 or x:size(1) ~= self.input_size then
    fail("%s: packed data of size %s, input_size is %d", self._name, shape_text(x), self.input_size)
  end
  return x, input.sizes[1], true, input
end

local function output_of(self, y, batched, packed)
  if packed ~= nil then return packed:with(y) end
  return restore(self, y, batched)
end

local function last_of(last, batched, packed)
  if packed ~= nil then return packed:unsort(last, 1) end
  return batched and last or last:squeeze(1)
end

local function forward_of_one(self, input, hx)
  local x, batch, batched, packed = input_of(self, input)
  local h = state_of(self, "hx", hx, x, batch, self.hidden_size, batched, packed)
  local y, last = run_layers(self, x, h, nil, packed)
  return output_of(self, y, batched, packed), last_of(last, batched, packed)
end

local function forward_of_two(self, input, hx)
  local x, batch, batched, packed = input_of(self, input)
  local out, h, c = self.proj_size > 0 and self.proj_size or self.hidden_size, nil, nil
  if hx ~= nil then
    if type(hx) ~= "table" then errors.wrong(self._name, "hx", "a list {h_0, c_0}", hx) end
    h, c = hx[1], hx[2]
    errors.tensor(self._name, "hx[1]", h)
    errors.tensor(self._name, "hx[2]", c)
  end
  h = state_of(self, "hx[1]", h, x, batch, out, batched, packed)
  c = state_of(self, "hx[2]", c, x, batch, self.hidden_size, batched, packed)
  local y, last_h, last_c = run_layers(self, x, h, c, packed)
  return output_of(self, y, batched, packed), {last_of(last_h, batched, packed), last_of(last_c, batched, packed)}
end

local function layers_repr(self)
  local parts = {self.input_size .. ", " .. self.hidden_size}
  if self.proj_size ~= 0 then parts[#parts + 1] = "proj_size=" .. self.proj_size end
  if self.num_layers ~= 1 then parts[#parts + 1] = "num_layers=" .. self.num_layers end
  if not self.bias then parts[#parts + 1] = "bias=False" end
  if self.batch_first then parts[#parts + 1] = "batch_first=True" end
  if self.dropout ~= 0 then parts[#parts + 1] = "dropout=" .. self.dropout end
  if self.bidirectional then parts[#parts + 1] = "bidirectional=True" end
  return table.concat(parts, ", ")
end

local function layers_class(name, schema, mode_of, forward)
  local class = Module:extend(name)
  M[name] = class
  function class:init(...)
    local options = read(name, schema, ...)
    options.proj_size = options.proj_size or 0
    init_layers(self, mode_of(options), options)
  end
  class.forward, class.reset_parameters, class.extra_repr = forward, reset, layers_repr
  function class:flatten_parameters() end -- does nothing: no code reads the weights as one block
end

local sizes = {{"input_size"}, {"hidden_size"}, {"num_layers", 1}}
local others = {{"bias", true}, {"batch_first", false}, {"dropout", 0}, {"bidirectional", false}}
local factory = {{"device", none}, {"dtype", "float32"}}

local function schema_of(...)
  local out = {}
  for _, rows in ipairs {...} do
    for _, row in ipairs(rows) do out[#out + 1] = row end
  end
  return out
end

layers_class("RNN", schema_of(sizes, {{"nonlinearity", "tanh"}}, others, factory),
  function(o) return rnn_mode("RNN", o.nonlinearity) end, forward_of_one)
layers_class("GRU", schema_of(sizes, others, factory), function() return "GRU" end, forward_of_one)
layers_class("LSTM", schema_of(sizes, others, {{"proj_size", 0}}, factory), function() return "LSTM" end,
  forward_of_two)

-- Cells ---------------------------------------------------------------------------------------------------------------

local function cell_class(name, more, mode_of, forward)
  local class = Module:extend(name)
  M[name] = class
  local schema = schema_of({{"input_size"}, {"hidden_size"}, {"bias", true}}, more, factory)
  function class:init(...)
    local o = read(name, schema, ...)
    errors.count(name, "input_size", o.input_size, 1)
    errors.count(name, "hidden_size", o.hidden_size, 1)
    self.input_size, self.hidden_size, self.bias, self.mode = o.input_size, o.hidden_size, o.bias, mode_of(o)
    local how, gates = {dtype = o.dtype, device = o.device}, modes[self.mode][1] * o.hidden_size
    self.weight_ih = Parameter(lt.empty({gates, o.input_size}, how))
    self.weight_hh = Parameter(lt.empty({gates, o.hidden_size}, how))
    if o.bias then
      self.bias_ih = Parameter(lt.empty({gates}, how))
      self.bias_hh = Parameter(lt.empty({gates}, how))
    end
    self:reset_parameters()
  end
  class.forward, class.reset_parameters = forward, reset
  function class:extra_repr()
    local text = self.input_size .. ", " .. self.hidden_size
    if not self.bias then text = text .. ", bias=False" end
    return self.mode == "RNN_RELU" and text .. ", nonlinearity=relu" or text
  end
end

local function check_cell(self, what, t, size)
  errors.tensor(self._name, what, t)
  if t:dim() ~= 1 and t:dim() ~= 2 then
    fail("%s: expected %s of 1 or 2 dimensions, got %d", self._name, what, t:dim())
  end
  if t:size(-1) ~= size then fail("%s: %s has %d features, expected %d", self._name, what, t:size(-1), size) end
end

local function cell_state(self, what, given, input)
  if given ~= nil then
    check_cell(self, what, given, self.hidden_size)
    if given:dim() ~= input:dim() or given:dim() == 2 and given:size(0) ~= input:size(0) then
      fail("%s: input of size %s does not go with %s of size %s", self._name, shape_text(input), what,
        shape_text(given))
    end
    return given
  end
  local shape = input.shape
  shape[#shape] = self.hidden_size
  return lt.zeros(shape, {dtype = input.dtype, device = input.device})
end

local function gates_of(self, input, h)
  return linear(input, self.weight_ih, self.bias_ih), linear(h, self.weight_hh, self.bias_hh)
end

local function cell_of_one(self, input, hx)
  check_cell(self, "input", input, self.input_size)
  local h = cell_state(self, "hx", hx, input)
  local from_input, from_hidden = gates_of(self, input, h)
  return (modes[self.mode][2](from_input, from_hidden, h))
end

local function cell_of_two(self, input, hx)
  check_cell(self, "input", input, self.input_size)
  if hx ~= nil and type(hx) ~= "table" then errors.wrong(self._name, "hx", "a list {h_0, c_0}", hx) end
  local h = cell_state(self, "hx[1]", hx and hx[1], input)
  local c = cell_state(self, "hx[2]", hx and hx[2], input)
  local from_input, from_hidden = gates_of(self, input, h)
  return modes.LSTM[2](from_input, from_hidden, h, c)
end

cell_class("RNNCell", {{"nonlinearity", "tanh"}}, function(o) return rnn_mode("RNNCell", o.nonlinearity) end,
  cell_of_one)
cell_class("GRUCell", {}, function() return "GRU" end, cell_of_one)
cell_class("LSTMCell", {}, function() return "LSTM" end, cell_of_two)

return M
