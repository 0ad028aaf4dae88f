-- MNASNet-1.0 on random images: inverted residuals with depthwise convolutions of 3x3 and 5x5.
--   lutra scripts/models/mnasnet.lua [--batch 8] [--image 64] [--classes 1000] [--width 1] [--steps 20] [--lr 1e-3]
--     [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function norm(c) return nn.BatchNorm2d(c, {momentum = 3e-4}) end
local function depthwise(c, kernel, stride)
  return nn.Conv2d(c, c, kernel, {stride = stride, padding = (kernel - 1) / 2, groups = c, bias = false})
end
local function pointwise(c, k) return nn.Conv2d(c, k, 1, {bias = false}) end
local function relu() return nn.ReLU {inplace = true} end

local Inverted = nn.Module:extend("Inverted")
function Inverted:init(c, k, kernel, stride, expand)
  local hidden = c * expand
  self.residual = c == k and stride == 1
  self.layers = nn.Sequential(pointwise(c, hidden), norm(hidden), relu(), depthwise(hidden, kernel, stride),
    norm(hidden), relu(), pointwise(hidden, k), norm(k))
end
function Inverted:forward(x)
  if self.residual then return self.layers(x) + x end
  return self.layers(x)
end

local function stack(c, k, kernel, stride, expand, count)
  local blocks = nn.Sequential(Inverted(c, k, kernel, stride, expand))
  for _ = 2, count do blocks:append(Inverted(k, k, kernel, 1, expand)) end
  return blocks
end

-- Channels, kernel, stride, expansion, blocks.
local stages = {{24, 3, 2, 3, 3}, {40, 5, 2, 3, 3}, {80, 5, 2, 6, 3}, {96, 3, 1, 6, 2}, {192, 5, 2, 6, 4},
  {320, 3, 1, 6, 1}}

local MNASNet = nn.Module:extend("MNASNet")
function MNASNet:init(s)
  local c0, c = zoo.channels(32 * s.width), zoo.channels(16 * s.width)
  self.layers = nn.Sequential(nn.Conv2d(3, c0, 3, {padding = 1, stride = 2, bias = false}), norm(c0), relu(),
    depthwise(c0, 3, 1), norm(c0), relu(), pointwise(c0, c), norm(c))
  for _, stage in ipairs(stages) do
    local channels, kernel, stride, expand, count = unpack(stage)
    local k = zoo.channels(channels * s.width)
    self.layers:append(stack(c, k, kernel, stride, expand, count))
    c = k
  end
  self.layers:extend {pointwise(c, 1280), norm(1280), relu()}
  self.classifier = nn.Sequential(nn.Dropout(s.dropout), nn.Linear(1280, s.classes))
  zoo.init_convolutions(self)
end
function MNASNet:forward(x) return self.classifier(self.layers(x):mean {2, 3}) end

return zoo.model {
  name = "mnasnet",
  sizes = {batch = 8, image = 64, classes = 1000, width = 1, dropout = 0.2},
  tiny = {batch = 4, image = 64, classes = 10, rate = 2e-4, width = 0.25, dropout = 0},
  make = function(sizes) return MNASNet(sizes) end,
  batch = zoo.images,
}
