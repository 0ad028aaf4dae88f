-- The convolutional nets of gpu.lua: resnet50 and mobilenet_v2 with torchvision's architectures.
--   local nets = dofile(folder .. "convnets.lua"); nets.resnet50(classes), nets.mobilenet_v2(classes)
local lt = require "lutra"
local nn, F = lt.nn, lt.nn.functional
local M = {}

local function conv(from, to, size, stride, groups)
  return nn.Conv2d(from, to, size, {stride = stride or 1, padding = math.floor(size / 2), groups = groups or 1,
    bias = false})
end

local Bottleneck = nn.Module:extend("Bottleneck")
function Bottleneck:init(from, width, stride)
  local to = width * 4
  self.conv1, self.bn1 = conv(from, width, 1), nn.BatchNorm2d(width)
  self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
  self.conv3, self.bn3 = conv(width, to, 1), nn.BatchNorm2d(to)
  if stride ~= 1 or from ~= to then self.down = nn.Sequential(conv(from, to, 1, stride), nn.BatchNorm2d(to)) end
end
function Bottleneck:forward(x)
  local y = self.bn1(self.conv1(x)):relu()
  y = self.bn2(self.conv2(y)):relu()
  y = self.bn3(self.conv3(y))
  return (y + (self.down and self.down(x) or x)):relu()
end

local ResNet = nn.Module:extend("ResNet")
function ResNet:init(layers, classes)
  self.conv1, self.bn1 = conv(3, 64, 7, 2), nn.BatchNorm2d(64)
  local blocks, from = {}, 64
  for stage, count in ipairs(layers) do
    local width = 64 * 2 ^ (stage - 1)
    for i = 1, count do
      blocks[#blocks + 1] = Bottleneck(from, width, i == 1 and stage > 1 and 2 or 1)
      from = width * 4
    end
  end
  self.blocks = nn.Sequential(unpack(blocks))
  self.fc = nn.Linear(from, classes)
end
function ResNet:forward(x)
  x = F.max_pool2d(self.bn1(self.conv1(x)):relu(), 3, {stride = 2, padding = 1})
  return self.fc(self.blocks(x):mean({2, 3}))
end
function M.resnet50(classes) return ResNet({3, 4, 6, 3}, classes) end

local Inverted = nn.Module:extend("Inverted")
function Inverted:init(from, to, stride, expand)
  local width, parts = from * expand, {}
  local function add(...)
    for _, part in ipairs {...} do parts[#parts + 1] = part end
  end
  if expand ~= 1 then add(conv(from, width, 1), nn.BatchNorm2d(width), nn.ReLU6()) end
  add(conv(width, width, 3, stride, width), nn.BatchNorm2d(width), nn.ReLU6())
  add(conv(width, to, 1), nn.BatchNorm2d(to))
  self.body, self.joins = nn.Sequential(unpack(parts)), stride == 1 and from == to
end
function Inverted:forward(x)
  local y = self.body(x)
  return self.joins and x + y or y
end

function M.mobilenet_v2(classes)
  local parts, from = {conv(3, 32, 3, 2), nn.BatchNorm2d(32), nn.ReLU6()}, 32
  for _, row in ipairs {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
    {6, 320, 1, 1}} do
    local expand, to, count, stride = unpack(row)
    for i = 1, count do
      parts[#parts + 1] = Inverted(from, to, i == 1 and stride or 1, expand)
      from = to
    end
  end
  for _, part in ipairs {conv(from, 1280, 1), nn.BatchNorm2d(1280), nn.ReLU6()} do parts[#parts + 1] = part end
  local net = nn.Module:extend("MobileNetV2")
  function net:init() self.features, self.classifier = nn.Sequential(unpack(parts)), nn.Linear(1280, classes) end
  function net:forward(x) return self.classifier(self.features(x):mean({2, 3})) end
  return net()
end

return M
