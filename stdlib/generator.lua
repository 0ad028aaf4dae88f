-- lt.Generator(seed): a random state of its own, for ops with generator=. Numbers are a function of (seed, call), the
-- same on every device. As in PyTorch, lt.Generator("cuda") and lt.Generator{device = "cuda"} check that the device is
-- available and keep its name.
local lt, use = ...
local errors = use "errors"
local keywords = use "keywords"
local Generator = {}
Generator.__index = Generator

function Generator:manual_seed(seed)
  if type(self) ~= "table" then errors.object("Generator", "manual_seed", self) end
  if type(seed) ~= "number" or seed % 1 ~= 0 then errors.wrong("Generator", "seed", "an integer", seed) end
  self.seed, self.call = seed, 0
  return self
end

function Generator:initial_seed() return self.seed end
function Generator:__tostring() return string.format("Generator(device='%s', seed=%.0f)", self.device, self.seed) end

return function(given)
  local self = setmetatable({seed = 0, call = 0, device = "cpu"}, Generator)
  if type(given) == "table" then given = keywords.check("Generator", given, {device = "cpu"}).device end
  if type(given) == "string" then
    self.device = lt._native.device("Generator", given)
  elseif given ~= nil then
    self:manual_seed(given)
  end
  return self
end
