-- run(chunk) calls a chunk of repl.read, shows its results and keeps its locals. on_error(e) returns the message and
-- traceback of an error.
local _, use = ...
local view, advice = use "repl.show", use "advice"

-- Formats error objects like values, unless they have a text of their own.
local function message_of(e)
  if type(e) == "string" then return e end
  local meta = debug.getmetatable(e)
  if type(meta) ~= "table" or not rawget(meta, "__tostring") then return "error: " .. view.pretty(e) end
  local ok, text = pcall(tostring, e)
  if ok and type(text) == "string" then return text end
  return "an object whose __tostring fails: " .. view.pretty(text)
end

local function on_error(e)
  local message = message_of(e)
  local ok, more = pcall(advice, message, 5)
  local trace = debug.traceback(ok and more or message, 3) -- the host's handler calls this one
  return trace:match("^(.*)\n\tlutra/repl/run%.lua:") or trace -- without the frames beneath the chunk
end

-- Lua's own names are not overwritten: much other code reads them, and a local would not have changed that.
local getlocal, own = debug.getlocal, {}
for name in pairs(_G) do own[name] = name ~= "lt" end

-- Turns the locals of the calling chunk into globals.
local function keep()
  for i = 1, 200 do
    local name, value = getlocal(2, i)
    if not name then return end
    if name == "_show" or name == "_keep" or name:sub(1, 1) == "(" then
      -- no local of the program's
    elseif own[name] then
      print("(" .. name .. " stays Lua's own: the local ends with its input)")
    else
      rawset(_G, name, value)
    end
  end
end

return {
  on_error = on_error,
  -- called without a name, a chunk is the main chunk in tracebacks
  run = function(...) view.show((...)(view.show, keep)) end,
}
