-- Parts of a dataset: Subset(dataset, indices) and random_split(dataset, lengths), which divides all rows at random.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"

local Subset = {_name = "Subset"}
Subset.__index = Subset

local function check_dataset(where, dataset)
  if type(dataset) == "table" and dataset.len and dataset.batch then return end
  errors.wrong(where, "dataset", "a dataset, which has len() and batch(indices)", dataset)
end

-- indices: a list or an int64 tensor of row numbers that count from 0.
local function make(class, dataset, indices)
  check_dataset("Subset", dataset)
  if type(indices) == "table" then indices = lt.tensor(indices, {dtype = "int64", device = "cpu"}) end
  errors.tensor("Subset", "indices", indices)
  if indices:dim() ~= 1 or indices.dtype ~= "int64" then fail("Subset: indices must be a list of whole numbers") end
  local n = dataset:len()
  if indices:numel() > 0 and (indices:min():item() < 0 or indices:max():item() >= n) then
    fail("Subset: an index is out of bounds for a dataset of %d rows", n)
  end
  return setmetatable({dataset = dataset, indices = indices}, class)
end
setmetatable(Subset, {__call = make})

function Subset:len() return self.indices:size(0) end

function Subset:batch(indices)
  if type(indices) == "table" then indices = lt.tensor(indices, {dtype = "int64", device = "cpu"}) end
  errors.tensor("Subset.batch", "indices", indices)
  return self.dataset:batch(self.indices:index_select(0, indices:to(self.indices.device)))
end

-- Returns element i, counting from 0.
function Subset:get(i)
  errors.number("Subset.get", "i", i)
  if not self.dataset.get then fail("Subset.get: the dataset has no get(i)") end
  return self.dataset:get(self.indices[i]:item())
end

function Subset:__tostring() return string.format("Subset(%d of %d rows)", self:len(), self.dataset:len()) end

-- Returns the number of rows of each part. lengths are whole numbers whose sum is n, or shares whose sum is 1. With
-- shares, the remaining rows go to the first parts, one each.
local function counts_of(lengths, n)
  local sum, counts, total = 0, {}, 0
  for i, length in ipairs(lengths) do
    errors.number("random_split", "lengths[" .. i .. "]", length)
    if length < 0 then fail("random_split: lengths must not be negative, got %.14g", length) end
    sum = sum + length
  end
  if math.abs(sum - 1) > 1e-9 or n == 1 then
    if sum ~= n then fail("random_split: the lengths add up to %.14g, the dataset has %d rows", sum, n) end
    return lengths
  end
  for i, share in ipairs(lengths) do
    counts[i] = math.floor(n * share)
    total = total + counts[i]
  end
  for i = 0, n - total - 1 do counts[i % #counts + 1] = counts[i % #counts + 1] + 1 end
  return counts
end

local function random_split(dataset, lengths, options)
  check_dataset("random_split", dataset)
  local generator = keywords.check("random_split", options, {generator = keywords.none}).generator
  if type(lengths) ~= "table" or #lengths == 0 then
    errors.wrong("random_split", "lengths", "a list of numbers", lengths)
  end
  local n = dataset:len()
  local counts = counts_of(lengths, n)
  for _, count in ipairs(counts) do errors.count("random_split", "lengths", count, 0) end
  local order = lt.randperm(n, {generator = generator, device = "cpu"})
  local parts, first = {}, 0
  for i, count in ipairs(counts) do
    parts[i] = Subset(dataset, order:narrow(0, first, count))
    first = first + count
  end
  return parts
end

return {Subset = Subset, random_split = random_split}
