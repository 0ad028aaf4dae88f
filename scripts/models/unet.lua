-- A U-Net on random images: group norms, transposed convolutions, a class for each pixel.
--   lutra scripts/models/unet.lua [--width 16] [--levels 3] [--batch 4] [--image 64] [--classes 10] [--steps 20]
--     [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function double_conv(c, k)
  return nn.Sequential(nn.Conv2d(c, k, 3, {padding = 1, bias = false}), nn.GroupNorm(4, k), nn.SiLU(),
    nn.Conv2d(k, k, 3, {padding = 1, bias = false}), nn.GroupNorm(4, k), nn.SiLU())
end

local UNet = nn.Module:extend("UNet")
function UNet:init(s)
  local c = s.width
  self.first, self.pool = double_conv(3, c), nn.MaxPool2d(2)
  self.downs, self.ups, self.joins = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
  for _ = 1, s.levels do
    self.downs:append(double_conv(c, 2 * c))
    c = 2 * c
  end
  for _ = 1, s.levels do
    self.ups:append(nn.ConvTranspose2d(c, c / 2, 2, {stride = 2}))
    self.joins:append(double_conv(c, c / 2))
    c = c / 2
  end
  self.head = nn.Conv2d(c, s.classes, 1)
end
function UNet:forward(x)
  local skips = {}
  x = self.first(x)
  for _, down in ipairs(self.downs) do
    skips[#skips + 1] = x
    x = down(self.pool(x))
  end
  for i, up in ipairs(self.ups) do
    x = self.joins[i](lt.cat({up(x), skips[#skips + 1 - i]}, 1))
  end
  return self.head(x)
end

return zoo.model {
  name = "unet",
  sizes = {width = 16, levels = 3, batch = 4, image = 64, classes = 10},
  tiny = {width = 4, levels = 2, batch = 2, image = 16, classes = 5},
  make = function(sizes) return UNet(sizes) end,
  draw = function(s, random)
    return random.floats {s.batch, 3, s.image, s.image}, random.below(s.classes, {s.batch, s.image, s.image})
  end,
}
