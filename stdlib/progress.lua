-- lt.progress(iterator, {desc =, total =}): passes on the values of a loader or an iterator function. On standard error
-- it draws a bar with rate and time left. It redraws the bar ten times a second on a terminal. Elsewhere it writes a
-- line every tenth of the way (at least a second apart).
--   local bar = lt.progress(loader, {desc = "epoch 1"})
--   for x, y in bar do ... bar:set("loss 0.31") end
local lt, use = ...
local errors = use "errors"
local keywords = use "keywords"
local clock = use "clock"
local ffi = require "ffi"

ffi.cdef [[int lutra_isatty(int) __asm__("isatty");]]
local terminal = ffi.C.lutra_isatty(2) == 1
local BAR_WIDTH = 24

local Progress = {}
Progress.__index = Progress

local function duration(seconds)
  if seconds >= 3600 then return string.format("%d:%02d:%02d", seconds / 3600, seconds / 60 % 60, seconds % 60) end
  return string.format("%02d:%02d", seconds / 60, seconds % 60)
end

local function text_of(self, now)
  local elapsed = now - self.started
  local rate = elapsed > 0 and self.count / elapsed or 0
  local parts = {}
  if self.desc then parts[1] = self.desc end
  if self.total and self.total > 0 then
    local done = math.min(self.count / self.total, 1)
    local left = rate > 0 and duration((self.total - self.count) / rate) or "?"
    local filled = math.floor(done * BAR_WIDTH)
    parts[#parts + 1] = string.format("%3d%%", done * 100)
    parts[#parts + 1] = "|" .. string.rep("#", filled) .. string.rep("-", BAR_WIDTH - filled) .. "|"
    parts[#parts + 1] = string.format("%d/%d [%s<%s, %.1f it/s]", self.count, self.total, duration(elapsed), left, rate)
  else
    parts[#parts + 1] = string.format("%d [%s, %.1f it/s]", self.count, duration(elapsed), rate)
  end
  if self.note then parts[#parts + 1] = self.note end
  return table.concat(parts, " ")
end

local function draw(self, now, last)
  if terminal then
    io.stderr:write("\r\27[K", text_of(self, now), last and "\n" or "")
  else
    io.stderr:write(text_of(self, now), "\n")
  end
  io.stderr:flush()
  self.drawn, self.drawn_count = now, self.count
end

local function due(self, now)
  if terminal then return now - self.drawn >= 0.1 end
  if now - self.drawn < 1 then return false end
  if not self.total then return now - self.drawn >= 5 end
  return self.count - self.drawn_count >= self.total / 10
end

-- Sets the text after the rate, from the next drawing on.
function Progress:set(note) self.note = note end

local function finish(self) draw(self, clock(), true) end

local function pass(self, first, ...)
  if first == nil then
    finish(self)
    return nil
  end
  self.pending = true
  return first, ...
end

-- Called by the for loop for each item. The previous item counts as done when the next one is requested.
function Progress:__call(state, last)
  if last == nil or not self.started then
    self.next = self.source.iter and self.source:iter() or self.source.next
    self.started, self.count, self.drawn_count, self.pending = clock(), 0, 0, false
    self.drawn = self.started
  end
  if self.pending then
    self.count = self.count + 1
    self.pending = false
    local now = clock()
    if due(self, now) then draw(self, now, false) end
  end
  return pass(self, self.next(state, last))
end

return function(iterator, options)
  options = keywords.check("progress", options, {desc = keywords.none, total = keywords.none})
  if options.desc ~= nil then errors.text("progress", "desc", options.desc) end
  if options.total ~= nil then errors.number("progress", "total", options.total) end
  local source
  if type(iterator) == "function" then
    source = {next = iterator}
  elseif type(iterator) == "table" and iterator.iter then
    source = iterator
    if not options.total and iterator.len then options.total = iterator:len() end
  else
    errors.wrong("progress", "iterator", "an iterator function or a loader", iterator)
  end
  options.source = source
  return setmetatable(options, Progress)
end
