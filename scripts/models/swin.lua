-- A Swin transformer on random images: attention in windows, every second block's shifted by half of one.
--   lutra scripts/models/swin.lua [--d 96] [--window 4] [--batch 8] [--image 64] [--classes 1000] [--steps 20]
--     [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

-- Converts (batch, height, width, d) to (windows, window^2, d), and back.
local function to_windows(x, w)
  local b, height, width, d = x:size()
  return x:view(b, height / w, w, width / w, w, d):permute(0, 1, 3, 2, 4, 5):reshape(-1, w * w, d)
end
local function from_windows(windows, w, height, width)
  local d = windows:size(-1)
  return windows:view(-1, height / w, width / w, w, w, d):permute(0, 1, 3, 2, 4, 5):reshape(-1, height, width, d)
end

-- Returns a mask, (windows, window^2, window^2): -100 between positions of a shifted window that are not neighbours in
-- the image.
local function shift_mask(side, w, shift)
  local region = lt.zeros(1, side, side, 1)
  local cuts, n = {{0, side - w}, {side - w, side - shift}, {side - shift, side}}, 0
  for _, rows in ipairs(cuts) do
    for _, columns in ipairs(cuts) do
      region[{{}, rows, columns}] = n
      n = n + 1
    end
  end
  region = to_windows(region, w):squeeze(-1)
  return region:unsqueeze(1):ne(region:unsqueeze(2)):float() * -100
end

-- Returns, for each pair of positions of a window, its row in the table of biases.
local function relative_index(w)
  local at = lt.stack(lt.meshgrid(lt.arange(w), lt.arange(w), {indexing = "ij"})):flatten(1)
  local far = (at:unsqueeze(2) - at:unsqueeze(1)) + (w - 1)
  return far[0] * (2 * w - 1) + far[1]
end

local Attention = nn.Module:extend("Attention")
function Attention:init(d, heads, w)
  self.heads, self.scale = heads, (d / heads) ^ -0.5
  self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
  self.table = nn.Parameter(lt.randn((2 * w - 1) ^ 2, heads) * 0.02)
  self:register_buffer("index", relative_index(w), {persistent = false})
end
function Attention:forward(x, mask)
  local n = x:size(1)
  local q, k, v = unpack(self.qkv(x):view(-1, n, 3, self.heads, x:size(2) / self.heads):permute(2, 0, 3, 1, 4)
    :unbind(0))
  local scores = (q * self.scale):matmul(k:transpose(-2, -1))
  scores = scores + self.table[self.index:view(-1)]:view(n, n, -1):permute(2, 0, 1):unsqueeze(0)
  if mask then
    local windows = mask:size(0)
    scores = scores:view(-1, windows, self.heads, n, n) + mask:unsqueeze(1):unsqueeze(0)
    scores = scores:view(-1, self.heads, n, n)
  end
  return self.proj(scores:softmax(-1):matmul(v):transpose(1, 2):reshape(x.shape))
end

local Block = nn.Module:extend("Block")
function Block:init(d, heads, side, w, shift)
  self.window, self.shift = w, side > w and shift or 0
  self.norm1, self.attention, self.norm2 = nn.LayerNorm(d), Attention(d, heads, w), nn.LayerNorm(d)
  self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
  if self.shift > 0 then self:register_buffer("mask", shift_mask(side, w, shift), {persistent = false}) end
end
function Block:forward(x)
  local _, height, width = x:size()
  local y = self.norm1(x)
  if self.shift > 0 then y = y:roll({-self.shift, -self.shift}, {1, 2}) end
  y = from_windows(self.attention(to_windows(y, self.window), self.mask), self.window, height, width)
  if self.shift > 0 then y = y:roll({self.shift, self.shift}, {1, 2}) end
  x = x + y
  return x + self.mlp(self.norm2(x))
end

local Merge = nn.Module:extend("Merge")
function Merge:init(d) self.norm, self.reduce = nn.LayerNorm(4 * d), nn.Linear(4 * d, 2 * d, {bias = false}) end
function Merge:forward(x)
  return self.reduce(self.norm(lt.cat({x[":, 0::2, 0::2"], x[":, 1::2, 0::2"], x[":, 0::2, 1::2"],
    x[":, 1::2, 1::2"]}, -1)))
end

local Swin = nn.Module:extend("Swin")
function Swin:init(s)
  local d, side = s.d, s.image / 4
  self.patches, self.norm0 = nn.Conv2d(3, d, 4, {stride = 4}), nn.LayerNorm(d)
  self.blocks = nn.Sequential()
  for stage = 1, 2 do
    for i = 0, 1 do self.blocks:append(Block(d, d / s.head, side, s.window, i * s.window / 2)) end
    if stage == 1 then
      self.blocks:append(Merge(d))
      d, side = 2 * d, side / 2
    end
  end
  self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, s.classes)
end
function Swin:forward(images)
  local x = self.norm0(self.patches(images):permute(0, 2, 3, 1))
  return self.head(self.norm(self.blocks(x)):mean {1, 2})
end

return zoo.model {
  name = "swin",
  sizes = {d = 96, head = 32, window = 4, batch = 8, image = 64, classes = 1000},
  tiny = {d = 8, head = 4, window = 2, batch = 4, image = 32, classes = 10},
  make = function(sizes) return Swin(sizes) end,
  batch = zoo.images,
}
