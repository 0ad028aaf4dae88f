-- MobileNetV3-Large on random images: inverted residuals with squeeze-excite and hard swish.
--   lutra scripts/models/mobilenet_v3.lua [--batch 8] [--image 64] [--classes 1000] [--width 1] [--steps 20]
--     [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function conv_norm_of(activation)
  return function(c, k, kernel, stride, groups, ends)
    return zoo.conv_norm(c, k, kernel, stride, groups, {eps = 0.001, momentum = 0.01}, not ends and activation or nil)
  end
end

local SqueezeExcite = nn.Module:extend("SqueezeExcite")
function SqueezeExcite:init(c)
  local squeezed = zoo.channels(c / 4)
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  self.fc1, self.fc2 = nn.Conv2d(c, squeezed, 1), nn.Conv2d(squeezed, c, 1)
  self.activation, self.scale = nn.ReLU(), nn.Hardsigmoid()
end
function SqueezeExcite:forward(x)
  return x * self.scale(self.fc2(self.activation(self.fc1(self.avgpool(x)))))
end

local R, H = nn.ReLU, nn.Hardswish
-- Kernel, expanded channels, channels, squeeze-excite, activation, stride.
local blocks = {
  {3, 16, 16, false, R, 1}, {3, 64, 24, false, R, 2}, {3, 72, 24, false, R, 1}, {5, 72, 40, true, R, 2},
  {5, 120, 40, true, R, 1}, {5, 120, 40, true, R, 1}, {3, 240, 80, false, H, 2}, {3, 200, 80, false, H, 1},
  {3, 184, 80, false, H, 1}, {3, 184, 80, false, H, 1}, {3, 480, 112, true, H, 1}, {3, 672, 112, true, H, 1},
  {5, 672, 160, true, H, 2}, {5, 960, 160, true, H, 1}, {5, 960, 160, true, H, 1}}

local MobileNetV3 = nn.Module:extend("MobileNetV3")
function MobileNetV3:init(s)
  local c = zoo.channels(16 * s.width)
  self.features = nn.Sequential(conv_norm_of(H)(3, c, 3, 2, 1))
  for _, b in ipairs(blocks) do
    local kernel, hidden, channels, squeeze, activation, stride = unpack(b)
    local k = zoo.channels(channels * s.width)
    self.features:append(zoo.Inverted(c, zoo.channels(hidden * s.width), k, kernel, stride, conv_norm_of(activation),
      squeeze and SqueezeExcite))
    c = k
  end
  self.features:append(conv_norm_of(H)(c, 6 * c, 1, 1, 1))
  self.avgpool = nn.AdaptiveAvgPool2d(1)
  local last = zoo.channels(1280 * s.width)
  self.classifier = nn.Sequential(nn.Linear(6 * c, last), nn.Hardswish {inplace = true}, nn.Dropout(s.dropout),
    nn.Linear(last, s.classes))
  zoo.init_convolutions(self)
end
function MobileNetV3:forward(x) return self.classifier(self.avgpool(self.features(x)):flatten(1)) end

return zoo.model {
  name = "mobilenet_v3",
  sizes = {batch = 8, image = 64, classes = 1000, width = 1, dropout = 0.2},
  tiny = {batch = 4, image = 64, classes = 10, rate = 2e-4, width = 0.25, dropout = 0},
  make = function(sizes) return MobileNetV3(sizes) end,
  batch = zoo.images,
}
