-- ResNet-18 and ResNet-50 on random images: residual blocks of 3x3 convolutions, or bottlenecks.
--   lutra scripts/models/resnet.lua [--depth 18|50] [--batch 8] [--image 64] [--classes 1000] [--width 64] [--steps 20]
--     [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function conv(c, k, kernel, stride)
  return nn.Conv2d(c, k, kernel, {stride = stride, padding = math.floor(kernel / 2), bias = false})
end

local function shortcut(c, k, stride)
  if c == k and stride == 1 then return nil end
  return nn.Sequential(conv(c, k, 1, stride), nn.BatchNorm2d(k))
end

local Basic = nn.Module:extend("Basic")
Basic.grows = 1
function Basic:init(c, width, stride)
  self.conv1, self.bn1 = conv(c, width, 3, stride), nn.BatchNorm2d(width)
  self.relu = nn.ReLU {inplace = true}
  self.conv2, self.bn2 = conv(width, width, 3, 1), nn.BatchNorm2d(width)
  self.downsample = shortcut(c, width, stride)
end
function Basic:forward(x)
  local y = self.relu(self.bn1(self.conv1(x)))
  y = self.bn2(self.conv2(y))
  return self.relu(y + (self.downsample and self.downsample(x) or x))
end

local Bottleneck = nn.Module:extend("Bottleneck")
Bottleneck.grows = 4
function Bottleneck:init(c, width, stride)
  self.conv1, self.bn1 = conv(c, width, 1, 1), nn.BatchNorm2d(width)
  self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
  self.conv3, self.bn3 = conv(width, 4 * width, 1, 1), nn.BatchNorm2d(4 * width)
  self.relu = nn.ReLU {inplace = true}
  self.downsample = shortcut(c, 4 * width, stride)
end
function Bottleneck:forward(x)
  local y = self.relu(self.bn1(self.conv1(x)))
  y = self.relu(self.bn2(self.conv2(y)))
  y = self.bn3(self.conv3(y))
  return self.relu(y + (self.downsample and self.downsample(x) or x))
end

local kinds = {[18] = {Basic, {2, 2, 2, 2}}, [50] = {Bottleneck, {3, 4, 6, 3}}}

local ResNet = nn.Module:extend("ResNet")
function ResNet:init(s)
  local Block, counts = unpack(kinds[s.depth])
  self.conv1 = nn.Conv2d(3, s.width, 7, {stride = 2, padding = 3, bias = false})
  self.bn1 = nn.BatchNorm2d(s.width)
  self.relu = nn.ReLU {inplace = true}
  self.maxpool = nn.MaxPool2d(3, {stride = 2, padding = 1})
  local c = s.width
  for i, count in ipairs(counts) do
    local width, layer = s.width * 2 ^ (i - 1), nn.Sequential()
    for block = 1, count do
      layer:append(Block(c, width, block == 1 and i > 1 and 2 or 1))
      c = width * Block.grows
    end
    self["layer" .. i] = layer
  end
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.fc = nn.Linear(c, s.classes)
  zoo.init_convolutions(self)
end
function ResNet:forward(x)
  x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
  x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
  return self.fc(self.avgpool(x):flatten(1))
end

return zoo.model {
  name = "resnet",
  sizes = {depth = 18, batch = 8, image = 64, classes = 1000, width = 64},
  tiny = {depth = 18, batch = 4, image = 64, classes = 10, rate = 2e-5, width = 8},
  check = function(options, refuse)
    if not kinds[options.depth] then refuse("--depth is 18 or 50") end
    options.name = "resnet" .. options.depth
  end,
  make = function(sizes) return ResNet(sizes) end,
  batch = zoo.images,
}
