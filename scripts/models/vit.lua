-- A vision transformer on random images: patches as tokens, pre-norm blocks. By default it is ViT-S/16 with images of
-- 128 x 128.
--   lutra scripts/models/vit.lua [--d 384] [--heads 6] [--layers 12] [--patch 16] [--image 128] [--classes 1000]
--     [--batch 4] [--steps 20] [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu]
--     [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local Block = nn.Module:extend("Block")
function Block:init(d, heads)
  self.heads = heads
  self.norm1, self.norm2 = nn.LayerNorm(d, {eps = 1e-6}), nn.LayerNorm(d, {eps = 1e-6})
  self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
  self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
end
function Block:forward(x)
  local qkv = self.qkv(self.norm1(x)):unflatten(-1, {3, self.heads, -1}):permute(2, 0, 3, 1, 4)
  local mixed = F.scaled_dot_product_attention(qkv[0], qkv[1], qkv[2])
  x = x + self.proj(mixed:transpose(1, 2):flatten(2))
  return x + self.mlp(self.norm2(x))
end

local ViT = nn.Module:extend("ViT")
function ViT:init(s)
  local tokens = (s.image / s.patch) ^ 2
  self.patches = nn.Conv2d(3, s.d, s.patch, {stride = s.patch})
  self.class_token = nn.Parameter(lt.randn(1, 1, s.d) * 0.02)
  self.positions = nn.Parameter(lt.randn(1, tokens + 1, s.d) * 0.02)
  self.blocks = nn.Sequential()
  for _ = 1, s.layers do self.blocks:append(Block(s.d, s.heads)) end
  self.norm, self.head = nn.LayerNorm(s.d, {eps = 1e-6}), nn.Linear(s.d, s.classes)
end
function ViT:forward(images)
  local x = self.patches(images):flatten(2):transpose(1, 2)
  x = lt.cat({self.class_token:expand(x:size(0), -1, -1), x}, 1) + self.positions
  return self.head(self.norm(self.blocks(x))[{{}, 0}])
end

return zoo.model {
  name = "vit",
  sizes = {d = 384, heads = 6, layers = 12, patch = 16, image = 128, classes = 1000, batch = 4},
  tiny = {d = 16, heads = 2, layers = 2, patch = 8, image = 32, classes = 10, batch = 4},
  make = function(sizes) return ViT(sizes) end,
  batch = zoo.images,
}
