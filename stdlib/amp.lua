-- lt.amp: autocast, and GradScaler, which scales losses so that small gradients in float16 do not vanish, and skips
-- steps whose gradients overflowed. The scale is a Lua number, so compiled code takes it as an input.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local keywords = use "keywords"

local GradScaler = {_name = "GradScaler"}
GradScaler.__index = GradScaler

local schema = {{"device", "cuda"}, {"init_scale", 2 ^ 16}, {"growth_factor", 2}, {"backoff_factor", 0.5},
  {"growth_interval", 2000}, {"enabled", true}}

local function construct(class, ...)
  local o = keywords.read("GradScaler", schema, ...)
  for _, name in ipairs {"init_scale", "growth_factor", "backoff_factor"} do
    errors.number("GradScaler", name, o[name])
  end
  errors.count("GradScaler", "growth_interval", o.growth_interval, 1)
  errors.text("GradScaler", "device", o.device)
  if o.growth_factor <= 1 then fail("GradScaler: growth_factor must be > 1, got %g", o.growth_factor) end
  if o.backoff_factor >= 1 then fail("GradScaler: backoff_factor must be < 1, got %g", o.backoff_factor) end
  local enabled = o.enabled
  if enabled and o.device:find "^cuda" and not lt.cuda.is_available() then
    io.stderr:write("GradScaler is enabled, but there is no GPU: it does nothing\n")
    enabled = false
  end
  return setmetatable({_enabled = enabled, _scale = o.init_scale, _growth_factor = o.growth_factor,
    _backoff_factor = o.backoff_factor,
    _growth_interval = o.growth_interval, _growth_tracker = 0, _used = false, _checks = {}}, class)
end

-- Multiplies a loss, or a list of tensors and lists, by the scale.
function GradScaler:scale(outputs)
  if not self._enabled then return outputs end
  self._used = true
  if lt.is_tensor(outputs) then
    -- As in PyTorch, the scale is a float32 number: a loss of a half type would overflow.
    local half = outputs.dtype == "float16" or outputs.dtype == "bfloat16"
    if half and outputs:dim() == 0 then outputs = outputs:float() end
    return outputs * self._scale
  end
  if type(outputs) ~= "table" then
    errors.wrong("GradScaler.scale", "outputs", "a Tensor or a list of Tensors", outputs)
  end
  local out = {}
  for i = 1, #outputs do out[i] = self:scale(outputs[i]) end
  return out
end

local function unscale(optimizer, inverse)
  local bad = {}
  local groups = optimizer.param_groups
  for g = 1, #groups do
    local params = groups[g].params
    for i = 1, #params do
      local grad = params[i].grad
      if grad ~= nil then
        if grad.dtype == "float16" then
          fail("GradScaler.unscale_: a gradient is float16, which cannot be unscaled: keep the parameters in float32")
        end
        bad[#bad + 1] = grad:isfinite():all():logical_not()
        grad:mul_(inverse)
      end
    end
  end
  if #bad == 0 then return nil end
  return #bad == 1 and bad[1] or lt.stack(bad):any()
end

local function check_used(self, method)
  if not self._used then fail("GradScaler.%s: scale() has not been called in this iteration", method) end
end

-- Returns the state of an optimiser since the last update: {optimizer, stage, found}. found says whether a gradient is
-- not finite.
local function check_of(self, optimizer)
  local checks = self._checks
  for i = 1, #checks do
    if checks[i].optimizer == optimizer then return checks[i] end
  end
  local new = {optimizer = optimizer, stage = "ready"}
  checks[#checks + 1] = new
  return new
end

-- Divides the optimiser's gradients by the scale, once before each update. Records whether all are finite.
function GradScaler:unscale_(optimizer)
  if not self._enabled then return end
  check_used(self, "unscale_")
  local check = check_of(self, optimizer)
  if check.stage == "unscaled" then
    fail("GradScaler.unscale_: it was called on this optimiser already since the last update()")
  end
  if check.stage == "stepped" then fail("GradScaler.unscale_: it is called after step()") end
  check.found = lt.no_grad(unscale, optimizer, 1 / self._scale)
  check.stage = "unscaled"
end

-- Returns whether a gradient was not finite. The tensor is read once.
local function overflowed(check)
  if lt.is_tensor(check.found) then check.found = check.found:item() end
  return check.found
end

-- Calls optimizer:step() and returns its results, unless a gradient is not finite.
function GradScaler:step(optimizer, closure)
  if not self._enabled then return optimizer:step(closure) end
  if closure ~= nil then fail("GradScaler.step: a closure is not supported while the scaler is enabled") end
  check_used(self, "step")
  local check = check_of(self, optimizer)
  if check.stage == "stepped" then fail("GradScaler.step: it was called already since the last update()") end
  if check.stage == "ready" then self:unscale_(optimizer) end
  if check.found == nil then fail("GradScaler.step: the optimiser has no gradients") end
  check.stage = "stepped"
  if not overflowed(check) then return optimizer:step() end
end

local function next_scale(self)
  local checks, any, bad = self._checks, false, false
  for i = 1, #checks do
    if checks[i].found ~= nil then any = true end
    if overflowed(checks[i]) then bad = true end
  end
  if not any then fail("GradScaler.update: no gradients were checked before it") end
  if bad then
    self._scale, self._growth_tracker = self._scale * self._backoff_factor, 0
    return
  end
  self._growth_tracker = self._growth_tracker + 1
  if self._growth_tracker < self._growth_interval then return end
  local grown = self._scale * self._growth_factor
  if grown <= lt.finfo("float32").max then self._scale = grown end
  self._growth_tracker = 0
end

-- Called at the end of an iteration. Reduces the scale after an overflow, raises it after growth_interval steps without
-- one, or sets it to new_scale.
function GradScaler:update(new_scale)
  if not self._enabled then return end
  check_used(self, "update")
  if new_scale ~= nil then
    if lt.is_tensor(new_scale) then new_scale = new_scale:item() end
    errors.number("GradScaler.update", "new_scale", new_scale)
    self._scale = new_scale
  else
    next_scale(self)
  end
  self._checks = {}
end

function GradScaler:get_scale() return self._enabled and self._scale or 1 end
function GradScaler:is_enabled() return self._enabled end
for _, name in ipairs {"growth_factor", "backoff_factor", "growth_interval"} do
  GradScaler["get_" .. name] = function(self) return self["_" .. name] end
  GradScaler["set_" .. name] = function(self, value)
    errors.number("GradScaler", name, value)
    self["_" .. name] = value
  end
end

local kept = {scale = "_scale", growth_factor = "_growth_factor", backoff_factor = "_backoff_factor",
  growth_interval = "_growth_interval",
              _growth_tracker = "_growth_tracker"}

function GradScaler:state_dict()
  local out = {}
  for name, field in pairs(self._enabled and kept or {}) do out[name] = self[field] end
  return out
end

function GradScaler:load_state_dict(state)
  if not self._enabled then return end
  if type(state) ~= "table" or next(state) == nil then
    fail("GradScaler.load_state_dict: the state is empty: was it saved by a scaler that is off?")
  end
  for name, field in pairs(kept) do
    errors.number("GradScaler.load_state_dict", name, state[name])
    self[field] = state[name]
  end
end

return {autocast = lt.autocast, GradScaler = setmetatable(GradScaler, {__call = construct})}
