-- A graph attention net on a random graph: a softmax over the edges into each node, sums by index_add.
--   lutra scripts/models/gat.lua [--nodes 2048] [--edges 16384] [--features 128] [--d 128] [--heads 4] [--layers 3]
--     [--classes 40] [--steps 20] [--lr 1e-3] [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu]
--     [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local Layer = nn.Module:extend("Layer")
function Layer:init(c, d, heads)
  self.heads = heads
  self.linear, self.skip = nn.Linear(c, d, {bias = false}), nn.Linear(c, d)
  self.source = nn.Parameter(nn.init.xavier_uniform_(lt.empty(heads, d / heads)))
  self.target = nn.Parameter(nn.init.xavier_uniform_(lt.empty(heads, d / heads)))
end

-- Returns the weights of edges, (edges, heads). Those of the edges into a node sum to 1.
function Layer:attention(values, source, target)
  local nodes = values:size(0)
  local score = (values * self.source):sum(-1)[source] + (values * self.target):sum(-1)[target]
  score = F.leaky_relu(score, 0.2)
  local most = score:new_zeros(nodes, self.heads):scatter_reduce(0, target:unsqueeze(1):expand_as(score),
    score:detach(), "amax", {include_self = false})
  local weight = (score - most[target]):exp()
  local sum = score:new_zeros(nodes, self.heads):index_add(0, target, weight)
  return weight / (sum[target] + 1e-16)
end
function Layer:forward(x, source, target)
  local values = self.linear(x):view(x:size(0), self.heads, -1)
  local weight = self:attention(values, source, target)
  local out = values:new_zeros(values.shape):index_add(0, target, values[source] * weight:unsqueeze(-1))
  return out:flatten(1) + self.skip(x)
end

local GAT = nn.Module:extend("GAT")
function GAT:init(s)
  self.layers, self.dropout = nn.ModuleList(), nn.Dropout(s.dropout)
  for i = 1, s.layers do self.layers:append(Layer(i == 1 and s.features or s.d, s.d, s.heads)) end
  self.head = nn.Linear(s.d, s.classes)
end
function GAT:forward(x, edges)
  local source, target = unpack(edges:unbind(0))
  for _, layer in ipairs(self.layers) do x = self.dropout(F.elu(layer(x, source, target))) end
  return self.head(x)
end

return zoo.model {
  name = "gat",
  sizes = {nodes = 2048, edges = 16384, features = 128, d = 128, heads = 4, layers = 3, classes = 40, dropout = 0.1},
  tiny = {nodes = 20, edges = 60, features = 6, d = 8, heads = 2, layers = 2, classes = 5, dropout = 0},
  make = function(sizes) return GAT(sizes) end,
  draw = function(s, random)
    local loops = lt.arange(s.nodes):expand(2, -1) -- each node has an edge to itself
    local edges = lt.cat({random.below(s.nodes, {2, s.edges}), loops}, 1)
    return {random.floats {s.nodes, s.features}, edges}, random.below(s.classes, {s.nodes})
  end,
}
