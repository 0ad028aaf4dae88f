-- run(chunk) calls a chunk of repl.read and shows what it returns; on_error(e) makes the message and traceback of what it raises.
local _, use = ...
local view = use "repl.show"

-- Error objects are shown as values are, unless they say themselves what they mean.
local function message_of(e)
  if type(e) == "string" then return e end
  local meta = debug.getmetatable(e)
  if type(meta) ~= "table" or not rawget(meta, "__tostring") then return "error: " .. view.pretty(e) end
  local ok, text = pcall(tostring, e)
  if ok and type(text) == "string" then return text end
  return "an object whose __tostring fails: " .. view.pretty(text)
end

local function on_error(e)
  local trace = debug.traceback(message_of(e), 3) -- the host's handler calls this one
  return trace:match("^(.*)\n\tlutra/repl/run%.lua:") or trace -- without the frames beneath the chunk
end

return {
  on_error = on_error,
  run = function(...) view.show((...)(view.show)) end, -- called without a name, a chunk is the main chunk in tracebacks
}
