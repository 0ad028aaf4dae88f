-- Tests data and progress: batches, epochs, shuffling, intact and damaged IDX files, progress bars.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy, deep, raises = h.test, h.equal, h.truthy, h.deep, h.raises
local data = lt.data

local function dataset(n) return data.TensorDataset(lt.arange(n):view(n, 1) * 10, lt.arange(n)) end

local function sizes(loader)
  local list = {}
  for x, y in loader do
    equal(x:size(0), y:size(0))
    list[#list + 1] = x:size(0)
  end
  return list
end

test("batches in order, the rest at the end", function()
  local loader = data.DataLoader(dataset(10), {batch_size = 4})
  equal(loader:len(), 3)
  deep(sizes(loader), {4, 4, 2})
  local seen = {}
  for x, y in loader:iter() do
    truthy((x:view(-1)):equal(y * 10))
    for _, v in ipairs(y:totable()) do seen[#seen + 1] = v end
  end
  deep(seen, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
  local short = data.DataLoader(dataset(10), {batch_size = 4, drop_last = true})
  equal(short:len(), 2)
  deep(sizes(short), {4, 4})
  deep(sizes(data.DataLoader(dataset(3))), {1, 1, 1})
end)

test("each loop is a new epoch, also after a break", function()
  local loader = data.DataLoader(dataset(6), {batch_size = 2})
  for _ in loader do break end
  deep(sizes(loader), {2, 2, 2})
  deep(sizes(loader), {2, 2, 2})
end)

test("shuffling keeps pairs and follows the seed", function()
  local loader = data.DataLoader(dataset(100), {batch_size = 100, shuffle = true})
  local function order(seed)
    lt.manual_seed(seed)
    for x, y in loader do
      truthy((x:view(-1)):equal(y * 10))
      return y:totable()
    end
  end
  local a, b, c = order(1), order(1), order(2)
  deep(a, b)
  local same = true
  for i = 1, 100 do same = same and a[i] == c[i] end
  truthy(not same)
  table.sort(a)
  for i = 1, 100 do equal(a[i], i - 1) end
end)

test("a batch is a copy", function()
  local x = lt.zeros(4)
  for batch in data.DataLoader(data.TensorDataset(x), {batch_size = 2}) do batch:add_(1) end
  truthy(x:equal(lt.zeros(4)))
end)

test("bad options are errors", function()
  raises("argument 'batch_size' must be a whole number", data.DataLoader, dataset(3), {batch_size = 0})
  raises("unknown option 'workers'", data.DataLoader, dataset(3), {workers = 2})
  raises("must be a dataset, which has len() and batch(indices)", data.DataLoader, lt.zeros(3))
  raises("tensor 2 has 4 rows, tensor 1 has 3", data.TensorDataset, lt.zeros(3), lt.zeros(4))
  deep({data.DataLoader(dataset(0)):iter()()}, {})
end)

local function write(bytes) return h.write(os.tmpname(), bytes) end

test("IDX files", function()
  local path = write("\0\0\8\2\0\0\0\2\0\0\0\3abcdef")
  local t = data.read_idx(path)
  equal(t.dtype, "uint8")
  deep(t:totable(), {{97, 98, 99}, {100, 101, 102}})
  os.remove(path)
  for _, damaged in ipairs {"", "\0\0\8", "\1\0\8\1\0\0\0\1a", "\0\0\8\2\0\0\0\2\0\0\0\3abc", "\0\0\8\1\0\0\0\1ab",
                            "\0\0\8\3\255\255\255\255\255\255\255\255\255\255\255\255a", "\31\139\8\0garbage"} do
    path = write(damaged)
    raises(path, data.read_idx, path)
    os.remove(path)
  end
  raises("/nowhere/file", data.read_idx, "/nowhere/file")
end)

test("a subset, and a dataset shared out at random", function()
  local set = data.TensorDataset(lt.arange(10), lt.arange(10) * 2)
  local part = data.Subset(set, {7, 3, 5})
  equal(part:len(), 3)
  local x, y = part:batch({2, 0})
  deep({x:totable(), y:totable()}, {{5, 7}, {10, 14}})
  equal(part:get(1):item(), 3)
  raises("an index is out of bounds for a dataset of 10 rows", data.Subset, set, {10})
  for _, lengths in ipairs {{6, 3, 1}, {0.6, 0.3, 0.1}} do
    local parts = data.random_split(set, lengths, {generator = lt.Generator():manual_seed(1)})
    local seen = {}
    for _, p in ipairs(parts) do
      for a, b in data.DataLoader(p, {batch_size = 4}) do
        truthy(b:equal(a * 2))
        for _, v in ipairs(a:totable()) do seen[#seen + 1] = v end
      end
    end
    deep({parts[1]:len(), parts[2]:len(), parts[3]:len()}, {6, 3, 1})
    table.sort(seen)
    deep(seen, lt.arange(10):totable())
  end
  deep({data.random_split(set, {0.35, 0.65})[1]:len()}, {4})
  raises("the lengths add up to 9, the dataset has 10 rows", data.random_split, set, {6, 3})
end)

test("Fashion-MNIST names its package when it is not there", function()
  raises("dataset-fashion-mnist", data.FashionMNIST, {root = "/nowhere"})
  raises("unknown option", data.FashionMNIST, {rot = "/nowhere"})
end)

test("progress passes values on", function()
  local loader = data.DataLoader(dataset(5), {batch_size = 2})
  local bar, count = lt.progress(loader, {desc = "test"}), 0
  for x, y in bar do
    truthy(x and y)
    count = count + 1
    bar:set("n " .. count)
  end
  equal(count, 3)
  equal(bar.total, 3)
  local n = 0
  for a, b in lt.progress(function() if n < 4 then n = n + 1 return n, -n end end) do equal(a, -b) end
  equal(n, 4)
  raises("an iterator function or a loader", lt.progress, 3)
end)

h.finish()
