-- FashionMNIST {root = DIR, train = true}: reads the four IDX files of Debian's dataset-fashion-mnist. Returns a
-- TensorDataset of uint8 images {n, 28, 28} and int64 labels {n}.
local lt, use = ...
local fail = use("errors").fail
local keywords = use "keywords"

local M = {
  package = "dataset-fashion-mnist",
  root = "/usr/share/datasets/fashion-mnist",
  classes = {"T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"},
}

local function exists(path)
  local file = io.open(path, "rb")
  if file then file:close() end
  return file ~= nil
end

-- Finds a file, compressed or not.
local function find(root, name)
  local plain = root .. "/" .. name
  for _, path in ipairs {plain .. ".gz", plain} do
    if exists(path) then return path end
  end
  fail("FashionMNIST: no file %s.gz: install Debian's package %s, or name the folder that holds it", plain, M.package)
end

function M.load(TensorDataset, options)
  options = keywords.check("FashionMNIST", options, {root = M.root, train = true, device = lt.get_default_device()})
  lt._native.device("FashionMNIST", options.device)
  local prefix = options.train and "train" or "t10k"
  local image_path = find(options.root, prefix .. "-images-idx3-ubyte")
  local label_path = find(options.root, prefix .. "-labels-idx1-ubyte")
  local images, labels = lt._native.read_idx(image_path), lt._native.read_idx(label_path)
  if images:dim() ~= 3 or labels:dim() ~= 1 or images:size(0) ~= labels:size(0) then
    fail("FashionMNIST: %s and %s do not belong together", image_path, label_path)
  end
  return TensorDataset(images:to(options.device), labels:to("int64"):to(options.device))
end

return M
