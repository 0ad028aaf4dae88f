-- A language model with a GRU that is unrolled over time: each step of the sequence is plain code in a Lua loop.
--   lutra scripts/models/gru.lua [--d 256] [--vocabulary 1000] [--length 32] [--batch 16] [--steps 20] [--lr 1e-3]
--     [--seed 0] [--eager] [--bench | --profile] [--seconds 1] [--cpu] [--threads N] [--device cpu|cuda]
local lt = require "lutra"
local nn = lt.nn
local F = nn.functional
local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "./"
local zoo = dofile(here .. "zoo.lua")

local GRU = nn.Module:extend("GRU")
function GRU:init(s)
  self.d, self.words = s.d, nn.Embedding(s.vocabulary, s.d)
  self.input, self.hidden = nn.Linear(s.d, 3 * s.d), nn.Linear(s.d, 3 * s.d)
  self.head = nn.Linear(s.d, s.vocabulary)
end
function GRU:cell(gates, h)
  local xr, xz, xn = unpack(gates:chunk(3, -1))
  local hr, hz, hn = unpack(self.hidden(h):chunk(3, -1))
  local r, z = (xr + hr):sigmoid(), (xz + hz):sigmoid()
  local n = (xn + r * hn):tanh()
  return (1 - z) * n + z * h
end
function GRU:forward(ids)
  local gates = self.input(self.words(ids))
  local h, states = gates:new_zeros(ids:size(0), self.d), {}
  for t = 0, ids:size(1) - 1 do
    h = self:cell(gates:select(1, t), h)
    states[#states + 1] = h
  end
  return self.head(lt.stack(states, 1))
end

return zoo.model {
  name = "gru",
  sizes = {d = 256, vocabulary = 1000, length = 32, batch = 16},
  tiny = {d = 16, vocabulary = 40, length = 8, batch = 4},
  make = function(sizes) return GRU(sizes) end,
  batch = zoo.sequences,
  loss = function(net, x, y) return F.cross_entropy(net(x):flatten(0, 1), y:flatten()) end,
}
