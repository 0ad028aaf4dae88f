-- MobileNetV2 on random images: inverted residuals around depthwise convolutions.
--   lutra scripts/models/mobilenet_v2.lua [--batch 8] [--image 64] [--classes 1000] [--width 1] [--steps 20]
--     [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function conv_norm(c, k, kernel, stride, groups)
  return zoo.conv_norm(c, k, kernel, stride, groups, nil, nn.ReLU6)
end

local Inverted = nn.Module:extend("Inverted")
function Inverted:init(c, k, stride, expand)
  local hidden = c * expand
  self.residual = stride == 1 and c == k
  self.conv = nn.Sequential()
  if expand ~= 1 then self.conv:append(conv_norm(c, hidden, 1, 1, 1)) end
  self.conv:append(conv_norm(hidden, hidden, 3, stride, hidden))
  self.conv:append(nn.Conv2d(hidden, k, 1, {bias = false}))
  self.conv:append(nn.BatchNorm2d(k))
end
function Inverted:forward(x)
  if self.residual then return x + self.conv(x) end
  return self.conv(x)
end

-- Expansion, channels, blocks, stride of the first.
local stages = {{1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2},
  {6, 320, 1, 1}}

local MobileNetV2 = nn.Module:extend("MobileNetV2")
function MobileNetV2:init(s)
  local c, last = zoo.channels(32 * s.width), zoo.channels(1280 * math.max(1, s.width))
  self.features = nn.Sequential(conv_norm(3, c, 3, 2, 1))
  for _, stage in ipairs(stages) do
    local expand, channels, count, stride = unpack(stage)
    local k = zoo.channels(channels * s.width)
    for i = 1, count do
      self.features:append(Inverted(c, k, i == 1 and stride or 1, expand))
      c = k
    end
  end
  self.features:append(conv_norm(c, last, 1, 1, 1))
  self.classifier = nn.Sequential(nn.Dropout(s.dropout), nn.Linear(last, s.classes))
  zoo.init_convolutions(self)
end
function MobileNetV2:forward(x) return self.classifier(self.features(x):mean {2, 3}) end

return zoo.model {
  name = "mobilenet_v2",
  sizes = {batch = 8, image = 64, classes = 1000, width = 1, dropout = 0.2},
  tiny = {batch = 4, image = 64, classes = 10, rate = 2e-4, width = 0.25, dropout = 0},
  make = function(sizes) return MobileNetV2(sizes) end,
  batch = zoo.images,
}
