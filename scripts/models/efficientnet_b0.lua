-- EfficientNet-B0 on random images: inverted residuals with squeeze-excite and SiLU; branches are dropped at random.
--   lutra scripts/models/efficientnet_b0.lua [--batch 8] [--image 64] [--classes 1000] [--width 1] [--dropout 0.2]
--     [--drop-path 0.2] [--steps 20] [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu]
--     [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function conv_norm(c, k, kernel, stride, groups, ends)
  return zoo.conv_norm(c, k, kernel, stride, groups, nil, not ends and nn.SiLU or nil)
end

local SqueezeExcite = nn.Module:extend("SqueezeExcite")
function SqueezeExcite:init(c, squeezed)
  self.fc1, self.fc2 = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)
  self.activation = nn.SiLU {inplace = true}
end
function SqueezeExcite:forward(x)
  return x * self.fc2(self.activation(self.fc1(x:mean({2, 3}, true)))):sigmoid()
end

local MBConv = zoo.Inverted:extend("MBConv")
function MBConv:init(c, k, kernel, stride, expand, drop)
  local function squeeze(hidden) return SqueezeExcite(hidden, math.max(1, math.floor(c / 4))) end
  zoo.Inverted.init(self, c, c * expand, k, kernel, stride, conv_norm, squeeze)
  self.drop = drop
end
function MBConv:forward(x)
  local y = self.block(x)
  if not self.residual then return y end
  if self.training and self.drop > 0 then -- whole branches, a draw an image
    local keep = 1 - self.drop
    y = y * (lt.rand(x:size(0), 1, 1, 1, {device = x.device}) + keep):floor() / keep
  end
  return y + x
end

-- Expansion, kernel, stride, channels, blocks.
local stages = {{1, 3, 1, 16, 1}, {6, 3, 2, 24, 2}, {6, 5, 2, 40, 2}, {6, 3, 2, 80, 3}, {6, 5, 1, 112, 3},
  {6, 5, 2, 192, 4}, {6, 3, 1, 320, 1}}

local EfficientNet = nn.Module:extend("EfficientNet")
function EfficientNet:init(s)
  local c = zoo.channels(32 * s.width)
  self.features = nn.Sequential(conv_norm(3, c, 3, 2, 1))
  local at = 0
  for _, stage in ipairs(stages) do
    local expand, kernel, stride, channels, count = unpack(stage)
    local k = zoo.channels(channels * s.width)
    for i = 1, count do
      self.features:append(MBConv(c, k, kernel, i == 1 and stride or 1, expand, s["drop-path"] * at / 16))
      c, at = k, at + 1
    end
  end
  self.features:append(conv_norm(c, 4 * c, 1, 1, 1))
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.classifier = nn.Sequential(nn.Dropout(s.dropout), nn.Linear(4 * c, s.classes))
  zoo.init_convolutions(self)
end
function EfficientNet:forward(x) return self.classifier(self.avgpool(self.features(x)):flatten(1)) end

return zoo.model {
  name = "efficientnet_b0",
  sizes = {batch = 8, image = 64, classes = 1000, width = 1, dropout = 0.2, ["drop-path"] = 0.2},
  tiny = {batch = 4, image = 64, classes = 10, rate = 2e-4, width = 0.25, dropout = 0, ["drop-path"] = 0},
  make = function(sizes) return EfficientNet(sizes) end,
  batch = zoo.images,
}
