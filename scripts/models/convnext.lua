-- A ConvNeXt on random images: 7x7 depthwise convolutions, layer norms over channels, layer scale. By default it has
-- the sizes of ConvNeXt's "femto", and small images.
--   lutra scripts/models/convnext.lua [--d 48] [--batch 8] [--image 64] [--classes 1000] [--steps 20] [--lr 1e-3]
--     [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

-- A layer norm over the channels of (batch, channels, height, width), by its formula.
local ChannelNorm = nn.Module:extend("ChannelNorm")
function ChannelNorm:init(d)
  self.weight, self.bias = nn.Parameter(lt.ones(d)), nn.Parameter(lt.zeros(d))
end
function ChannelNorm:forward(x)
  local far = x - x:mean(1, true)
  local unit = far / (far:pow(2):mean(1, true) + 1e-6):sqrt()
  return self.weight:view(-1, 1, 1) * unit + self.bias:view(-1, 1, 1)
end

local Block = nn.Module:extend("Block")
function Block:init(d, scale)
  self.depthwise = nn.Conv2d(d, d, 7, {padding = 3, groups = d})
  self.norm, self.act = nn.LayerNorm(d, {eps = 1e-6}), nn.GELU()
  self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
  self.gamma = nn.Parameter(scale * lt.ones(d))
end
function Block:forward(x)
  local y = self.depthwise(x):permute(0, 2, 3, 1)
  y = self.gamma * self.down(self.act(self.up(self.norm(y))))
  return x + y:permute(0, 3, 1, 2)
end

local ConvNeXt = nn.Module:extend("ConvNeXt")
function ConvNeXt:init(s)
  local d = s.d
  self.stages = nn.Sequential(nn.Conv2d(3, d, 4, {stride = 4}), ChannelNorm(d))
  for i, count in ipairs {2, 2, 6, 2} do
    if i > 1 then
      self.stages:append(nn.Sequential(ChannelNorm(d), nn.Conv2d(d, 2 * d, 2, {stride = 2})))
      d = 2 * d
    end
    for _ = 1, count do self.stages:append(Block(d, s.scale)) end
  end
  self.norm, self.head = nn.LayerNorm(d, {eps = 1e-6}), nn.Linear(d, s.classes)
end
function ConvNeXt:forward(x) return self.head(self.norm(self.stages(x):mean {-2, -1})) end

return zoo.model {
  name = "convnext",
  sizes = {d = 48, scale = 1e-6, batch = 8, image = 64, classes = 1000},
  tiny = {d = 8, scale = 1e-6, batch = 4, image = 32, classes = 10},
  make = function(sizes) return ConvNeXt(sizes) end,
  batch = zoo.images,
}
