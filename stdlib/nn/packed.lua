-- nn.utils.rnn: sequences of different lengths as one padded tensor, or packed. A packed sequence has all first
-- elements, then all second ones, and so on. Each step has as many rows as there are sequences of that length. The rows
-- of a batch are sorted by length, the longest first.
local lt, use = ...
local errors = use "errors"
local keywords = use "keywords"
local fail = errors.fail
local read, none = keywords.read, keywords.none
local pad_sequence = lt.pad_sequence

local rnn = {}

-- PackedSequence ------------------------------------------------------------------------------------------------------

-- data, and sizes: a list of the number of rows of each step. If the rows were sorted, sorted_indices (int64) has the
-- former place of each row, and unsorted_indices its new place. batch_sizes is a tensor of sizes, made when it is read.
local PackedSequence = {_name = "PackedSequence"}
rnn.PackedSequence = PackedSequence

function PackedSequence.__index(self, key)
  if key == "batch_sizes" then return lt.tensor(rawget(self, "sizes"), {dtype = "int64"}) end
  return PackedSequence[key]
end

local function packed(data, sizes, sorted, unsorted)
  return setmetatable({data = data, sizes = sizes, sorted_indices = sorted, unsorted_indices = unsorted},
    PackedSequence)
end

local function is_packed(v) return type(v) == "table" and getmetatable(v) == PackedSequence end

-- Returns the same sequence with other data of as many rows.
function PackedSequence:with(data) return packed(data, self.sizes, self.sorted_indices, self.unsorted_indices) end
function PackedSequence:to(...)
  local data, sorted, unsorted = self.data:to(...), self.sorted_indices, self.unsorted_indices
  if sorted ~= nil then sorted, unsorted = sorted:to(data.device), unsorted:to(data.device) end
  return packed(data, self.sizes, sorted, unsorted)
end

-- Sort and unsort a batch's rows, at dimension dim, by the order of the packed sequence.
function PackedSequence:sort(t, dim)
  return self.sorted_indices == nil and t or t:index_select(dim, self.sorted_indices)
end
function PackedSequence:unsort(t, dim)
  return self.unsorted_indices == nil and t or t:index_select(dim, self.unsorted_indices)
end

-- Splits t along its first dimension into parts of sizes[first] to sizes[last] rows. It splits halves of halves,
-- because the gradient of a part is as large as the tensor it was taken from.
local function parts_of(t, sizes, first, last, out)
  if first == last then
    out[first] = t
    return out
  end
  local middle, rows = math.floor((first + last) / 2), 0
  for i = first, middle do rows = rows + sizes[i] end
  parts_of(t:narrow(0, 0, rows), sizes, first, middle, out)
  parts_of(t:narrow(0, rows, t:size(0) - rows), sizes, middle + 1, last, out)
  return out
end

function PackedSequence:parts(data) return parts_of(data, self.sizes, 1, #self.sizes, {}) end

-- Packing -------------------------------------------------------------------------------------------------------------

local function list_of_lengths(where, lengths)
  if lt.is_tensor(lengths) then
    if lengths:dim() ~= 1 then fail("%s: lengths have 1 dimension, got %d", where, lengths:dim()) end
    return lengths:totable()
  end
  if type(lengths) ~= "table" then errors.wrong(where, "lengths", "a Tensor or a list of numbers", lengths) end
  return lengths
end

local function check_lengths(lengths, batch, longest, sorted)
  if #lengths ~= batch then
    fail("pack_padded_sequence: %d lengths for a batch of %d", #lengths, batch)
  end
  for i = 1, batch do
    errors.count("pack_padded_sequence", "lengths[" .. i .. "]", lengths[i], 1)
    if lengths[i] > longest then
      fail("pack_padded_sequence: lengths[%d] is %d, the sequences have %d elements", i, lengths[i], longest)
    end
    if sorted and i > 1 and lengths[i] > lengths[i - 1] then
      fail("pack_padded_sequence: lengths must not increase where enforce_sorted is true; give {enforce_sorted = false}")
    end
  end
end

-- Sorts the longest first; equal ones keep their order. Returns the places (from 1) of the sorted rows, and their
-- lengths.
local function sort_lengths(lengths, longest)
  local count, next_place, places, sorted = {}, {}, {}, {}
  for length = 1, longest do count[length] = 0 end
  for i = 1, #lengths do count[lengths[i]] = count[lengths[i]] + 1 end
  local place = 1
  for length = longest, 1, -1 do
    next_place[length] = place
    place = place + count[length]
  end
  for i = 1, #lengths do sorted[i], places[i] = 0, 0 end
  for i = 1, #lengths do
    local at = next_place[lengths[i]]
    next_place[lengths[i]] = at + 1
    places[at], sorted[at] = i, lengths[i]
  end
  return places, sorted
end

local function sizes_of(lengths)
  local sizes = {}
  for row = 1, #lengths do
    for i = 1, lengths[row] do sizes[i] = row end
  end
  return sizes
end

function rnn.pack_padded_sequence(...)
  local o = read("pack_padded_sequence", {{"input"}, {"lengths"}, {"batch_first", false}, {"enforce_sorted", true}},
    ...)
  local x = o.input
  errors.tensor("pack_padded_sequence", "input", x)
  if x:dim() < 2 then fail("pack_padded_sequence: input has 2 dimensions or more, got %d", x:dim()) end
  if o.batch_first then x = x:transpose(0, 1) end
  local lengths = list_of_lengths("pack_padded_sequence", o.lengths)
  check_lengths(lengths, x:size(1), x:size(0), o.enforce_sorted)
  if #lengths == 0 then fail("pack_padded_sequence: the batch has no sequences") end
  local sorted, unsorted = nil, nil
  if not o.enforce_sorted then
    local places, in_order = sort_lengths(lengths, x:size(0))
    local from, to = {}, {}
    for i = 1, #places do from[i], to[i] = places[i] - 1, 0 end
    for i = 1, #places do to[places[i]] = i - 1 end
    local how = {dtype = "int64", device = x.device}
    sorted, unsorted, lengths = lt.tensor(from, how), lt.tensor(to, how), in_order
    x = x:index_select(1, sorted)
  end
  local sizes, ones, steps = sizes_of(lengths), {}, {}
  for i = 1, #sizes do ones[i] = 1 end
  parts_of(x:narrow(0, 0, #sizes), ones, 1, #sizes, steps)
  for i = 1, #sizes do steps[i] = steps[i]:squeeze(0):narrow(0, 0, sizes[i]) end
  return packed(lt.cat(steps, 0), sizes, sorted, unsorted)
end

function rnn.pad_packed_sequence(...)
  local o = read("pad_packed_sequence",
    {{"sequence"}, {"batch_first", false}, {"padding_value", 0}, {"total_length", none}}, ...)
  local sequence = o.sequence
  if not is_packed(sequence) then errors.wrong("pad_packed_sequence", "sequence", "a PackedSequence", sequence) end
  local sizes, steps, rows = sequence.sizes, sequence:parts(sequence.data), sequence.sizes[1]
  local total = o.total_length or #sizes
  if total < #sizes then
    fail("pad_packed_sequence: total_length is %d, the longest sequence has %d elements", total, #sizes)
  end
  local filler = steps[1]:new_full(steps[1].shape, o.padding_value)
  for i = 1, #sizes do
    if sizes[i] < rows then steps[i] = lt.cat({steps[i], filler:narrow(0, sizes[i], rows - sizes[i])}, 0) end
  end
  for i = #sizes + 1, total do steps[i] = filler end
  local lengths = {}
  for row = 1, rows do lengths[row] = 0 end
  for i = 1, #sizes do
    for row = 1, sizes[i] do lengths[row] = i end
  end
  local out, counts = sequence:unsort(lt.stack(steps, 0), 1), lt.tensor(lengths, {dtype = "int64", device = "cpu"})
  if sequence.unsorted_indices ~= nil then counts = counts:index_select(0, sequence.unsorted_indices:cpu()) end
  return o.batch_first and out:transpose(0, 1) or out, counts
end

-- Padding -------------------------------------------------------------------------------------------------------------

function rnn.pad_sequence(sequences, ...)
  if lt.is_tensor(sequences) then return pad_sequence(sequences:unbind(0), ...) end
  if type(sequences) == "table" and lt.is_tensor(sequences.sequences) then -- by names
    local o = {}
    for name, value in pairs(sequences) do o[name] = value end
    o.sequences = o.sequences:unbind(0)
    return pad_sequence(o, ...)
  end
  return pad_sequence(sequences, ...)
end

function rnn.unpad_sequence(...)
  local o = read("unpad_sequence", {{"padded_sequences"}, {"lengths"}, {"batch_first", false}}, ...)
  local x, out = o.padded_sequences, {}
  errors.tensor("unpad_sequence", "padded_sequences", x)
  if not o.batch_first then x = x:transpose(0, 1) end
  local lengths = list_of_lengths("unpad_sequence", o.lengths)
  if #lengths ~= x:size(0) then fail("unpad_sequence: %d lengths for a batch of %d", #lengths, x:size(0)) end
  for i = 1, #lengths do out[i] = x:select(0, i - 1):narrow(0, 0, lengths[i]):clone() end
  return out
end

function rnn.pack_sequence(...)
  local o = read("pack_sequence", {{"sequences"}, {"enforce_sorted", true}}, ...)
  local lengths = {}
  for i, t in ipairs(o.sequences) do lengths[i] = t:size(0) end
  return rnn.pack_padded_sequence(rnn.pad_sequence(o.sequences), lengths, {enforce_sorted = o.enforce_sorted})
end

function rnn.unpack_sequence(sequence)
  local padded, lengths = rnn.pad_packed_sequence(sequence, true)
  return rnn.unpad_sequence(padded, lengths, true)
end

return {rnn = rnn, is_packed = is_packed}
