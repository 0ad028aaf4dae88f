-- lt.Generator(seed): random numbers of its own for what takes generator=. Numbers are a function of (seed, call).
local _, use = ...
local errors = use "errors"
local Generator = {}
Generator.__index = Generator

function Generator:manual_seed(seed)
  if type(seed) ~= "number" or seed % 1 ~= 0 then errors.wrong("Generator", "seed", "an integer", seed) end
  self.seed, self.call = seed, 0
  return self
end

function Generator:initial_seed() return self.seed end

return function(seed)
  local self = setmetatable({seed = 0, call = 0}, Generator)
  if seed ~= nil then self:manual_seed(seed) end
  return self
end
