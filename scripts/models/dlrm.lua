-- A recommender like DLRM: sums of the embeddings in bags of ids, dot products of each pair, clicks as targets.
--   lutra scripts/models/dlrm.lua [--tables 8] [--rows 10000] [--d 32] [--bag 4] [--dense 13] [--batch 512]
--     [--steps 20] [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N]
--     [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local function mlp(...)
  local widths, layers = {...}, nn.Sequential()
  for i = 2, #widths do
    layers:append(nn.Linear(widths[i - 1], widths[i]))
    if i < #widths then layers:append(nn.ReLU()) end
  end
  return layers
end

local DLRM = nn.Module:extend("DLRM")
function DLRM:init(s)
  self.bags = nn.ModuleList()
  for _ = 1, s.tables do self.bags:append(nn.EmbeddingBag(s.rows, s.d, {mode = "sum"})) end
  self.bottom = mlp(s.dense, 16 * s.d, 4 * s.d, s.d)
  local pairs_below = lt.tril_indices(s.tables + 1, s.tables + 1, -1)
  self:register_buffer("pairs", pairs_below)
  self.top = mlp(s.d + pairs_below:size(1), 16 * s.d, 8 * s.d, 1)
end

-- dense: (batch, features); ids: (tables, batch, ids of a bag). Returns the logit of a click.
function DLRM:forward(dense, ids)
  local x = self.bottom(dense):relu()
  local vectors = {x}
  for i, bag in ipairs(self.bags) do vectors[i + 1] = bag(ids[i - 1]) end
  local all = lt.stack(vectors, 1)
  local dots = lt.bmm(all, all:transpose(1, 2))
  local rows, columns = unpack(self.pairs:unbind(0))
  return self.top(lt.cat({x, dots[{{}, rows, columns}]}, 1)):squeeze(1)
end

return zoo.model {
  name = "dlrm",
  sizes = {tables = 8, rows = 10000, d = 32, bag = 4, dense = 13, batch = 512},
  tiny = {tables = 3, rows = 20, d = 4, bag = 2, dense = 5, batch = 8},
  make = function(sizes) return DLRM(sizes) end,
  draw = function(s, random)
    return {random.floats {s.batch, s.dense}, random.below(s.rows, {s.tables, s.batch, s.bag})},
      random.below(2, {s.batch})
  end,
  loss = function(net, x, y)
    local logits = net(unpack(x))
    return F.binary_cross_entropy_with_logits(logits, y:to(logits.dtype))
  end,
}
