-- lt.cuda: the GPUs of this machine. A device is an index or "cuda:1". The default is the current one.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local native = lt._native.cuda

local cuda = {manual_seed = lt.manual_seed, manual_seed_all = lt.manual_seed}
for name, f in pairs(native) do
  if not name:find("^event") then cuda[name] = f end
end

local Properties = {}
function Properties:__tostring()
  return string.format(
    "_CudaDeviceProperties(name='%s', major=%d, minor=%d, total_memory=%dMB, multi_processor_count=%d)", self.name,
    self.major,
    self.minor, self.total_memory / 2 ^ 20, self.multi_processor_count)
end

function cuda.get_device_properties(device) return setmetatable(native.get_device_properties(device), Properties) end

-- As in PyTorch, true for devices that compute in bfloat16 natively.
function cuda.is_bf16_supported()
  return cuda.is_available() and cuda.get_device_capability() >= 8
end

local function restore(device, ok, ...)
  cuda.set_device(device)
  if not ok then error((...), 0) end
  return ...
end

-- cuda.device(i, f, ...) runs f with i as the current device. It restores the previous one when f returns or raises.
function cuda.device(device, f, ...)
  errors.callable("cuda.device", "f", f)
  lt._native.device("cuda.device", device)
  local before = cuda.current_device()
  cuda.set_device(device)
  return restore(before, pcall(f, ...))
end

-- cuda.Event{enable_timing = true}: a point in the GPU's work. start:elapsed_time(stop) returns milliseconds.
local Event = {}
Event.__index = Event
function Event:__tostring() return string.format("<lutra.cuda.Event %s>", tostring(self.handle):match("0x%x+")
  or "") end

-- Returns the native event of the object that a method is called on.
local function handle(self, method)
  if getmetatable(self) ~= Event then errors.object("cuda.Event", method, nil) end
  return self.handle
end

function Event:record() native.event_record(handle(self, "record")) end
function Event:synchronize() native.event_synchronize(handle(self, "synchronize")) end
function Event:query() return native.event_query(handle(self, "query")) end
function Event:elapsed_time(stop)
  handle(self, "elapsed_time")
  if getmetatable(stop) ~= Event then errors.wrong("cuda.Event.elapsed_time", "end_event", "a cuda.Event", stop) end
  return native.event_elapsed(self.handle, stop.handle)
end

local keywords = {enable_timing = true, device = true, blocking = true}
function cuda.Event(options)
  options = options or {}
  if type(options) ~= "table" then errors.wrong("cuda.Event", "options", "a table", options) end
  for key in pairs(options) do
    if not keywords[key] then
      fail("cuda.Event: unknown keyword '%s'%s", tostring(key), errors.known(key, keywords))
    end
  end
  if options.enable_timing ~= nil then errors.boolean("cuda.Event", "enable_timing", options.enable_timing) end
  return setmetatable({handle = native.Event(options.device, options.enable_timing or false)}, Event)
end

return cuda
