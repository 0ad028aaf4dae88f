-- lt.data: datasets and DataLoader. A dataset has len() and batch(indices), where indices is an int64 tensor. The loop
-- gets what batch returns. Tensors are gathered natively, by one indexing op a tensor.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"
local fashion_mnist = use "data.fashion_mnist"

local subset = use "data.subset"

local data = {read_idx = lt._native.read_idx, Subset = subset.Subset, random_split = subset.random_split}

-- Returns the __index of a class whose objects are no lists: object[3] would be nil, so it is an error.
local function no_list(class, name, instead)
  return function(_, key)
    if type(key) == "number" then fail("%s: is no list, got index %.14g; %s", name, key, instead) end
    return class[key]
  end
end

local TensorDataset = {_name = "TensorDataset"}
TensorDataset.__index = no_list(TensorDataset, "TensorDataset",
  "set:get(i) gives element i, set:batch(indices) several, set:len() how many there are")
data.TensorDataset = setmetatable(TensorDataset, {
  __call = function(class, ...)
    local tensors = {...}
    local count = select("#", ...)
    if count == 0 then fail("TensorDataset: at least one tensor is needed") end
    for i = 1, count do
      local t = tensors[i]
      if not lt.is_tensor(t) then fail("TensorDataset: argument %d must be a Tensor, got %s", i, errors.show(t)) end
      if t:dim() == 0 then fail("TensorDataset: tensor %d has no dimensions, so no rows", i) end
    end
    local n = tensors[1]:size(0)
    for i, t in ipairs(tensors) do
      if t:size(0) ~= n then
        fail("TensorDataset: tensor %d has %d rows, tensor 1 has %d", i, t:size(0), n)
      end
    end
    return setmetatable({tensors = tensors}, class)
  end,
})

function TensorDataset:len() return self.tensors[1]:size(0) end

-- Calls f(tensor, argument) for each tensor and returns all results.
local function each_tensor(tensors, f, argument, i)
  i = i or 1
  if i == #tensors then return f(tensors[i], argument) end
  return f(tensors[i], argument), each_tensor(tensors, f, argument, i + 1)
end

local function rows(tensor, indices) return tensor:index_select(0, indices:to(tensor.device)) end
local function row(tensor, i) return tensor[i] end

-- Returns the device of the tensors. A loader keeps its order of rows there.
function TensorDataset:device() return self.tensors[1].device end

function TensorDataset:batch(indices)
  if type(indices) == "table" then indices = lt.tensor(indices, {dtype = "int64", device = "cpu"}) end
  errors.tensor("TensorDataset.batch", "indices", indices)
  return each_tensor(self.tensors, rows, indices)
end

-- Returns element i, counting from 0.
function TensorDataset:get(i)
  errors.number("TensorDataset.get", "i", i)
  return each_tensor(self.tensors, row, i)
end

local DataLoader = {_name = "DataLoader"}
DataLoader.__index = no_list(DataLoader, "DataLoader",
  "for x, y in loader do gives its batches, loader:len() how many there are")
data.DataLoader = setmetatable(DataLoader, {
  __call = function(class, dataset, options)
    options = keywords.check("DataLoader", options,
      {batch_size = 1, shuffle = false, drop_last = false, generator = keywords.none})
    errors.count("DataLoader", "batch_size", options.batch_size, 1)
    if type(dataset) ~= "table" or not dataset.len or not dataset.batch then
      errors.wrong("DataLoader", "dataset", "a dataset, which has len() and batch(indices)", dataset)
    end
    local generator = options.generator
    if generator ~= nil and (type(generator) ~= "table" or type(generator.seed) ~= "number") then
      errors.wrong("DataLoader", "generator", "made by lt.Generator", generator)
    end
    options.dataset = dataset
    return setmetatable(options, class)
  end,
})

-- Returns the number of batches of one epoch.
function DataLoader:len()
  local batches = self.dataset:len() / self.batch_size
  return self.drop_last and math.floor(batches) or math.ceil(batches)
end

-- Starts one epoch: for x, y in loader:iter() do.
function DataLoader:iter()
  local n, size, position, batches = self.dataset:len(), self.batch_size, 0, self:len()
  local order = nil
  if self.shuffle then
    order = lt.randperm(n, {generator = self.generator, device = "cpu"})
  else
    order = lt.arange(n, {device = "cpu"})
  end
  if self.dataset.device then order = order:to(self.dataset:device()) end
  return function()
    if position >= batches then return nil end
    local first = position * size
    position = position + 1
    return self.dataset:batch(order[{{first, math.min(first + size, n)}}])
  end
end

-- for x, y in loader do: a for loop first calls the loader with nil, which begins an epoch, then with the previous
-- batch. Only one such loop may run at a time. Nested loops over the same loader must use iter().
function DataLoader:__call(_, last)
  if last == nil then self.current = self:iter() end
  return self.current()
end

function data.FashionMNIST(options) return fashion_mnist.load(TensorDataset, options) end
data.fashion_mnist_classes = fashion_mnist.classes

function TensorDataset:__tostring()
  local shapes = {}
  for i, t in ipairs(self.tensors) do shapes[i] = string.format("%s {%s}", t.dtype, table.concat(t.shape, ", ")) end
  return string.format("TensorDataset(%d rows: %s)", self:len(), table.concat(shapes, ", "))
end

function DataLoader:__tostring()
  return string.format("DataLoader(%d batches of %d of %d rows%s%s)", self:len(), self.batch_size, self.dataset:len(),
    self.shuffle and ", shuffled" or "", self.drop_last and ", the last one dropped where it is shorter" or "")
end

return data
