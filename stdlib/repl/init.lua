-- What the REPL (vm/repl) does in Lua: {show = f(...), complete = f(text)}, and the global help. The host gives
-- list_folder(path), a list of names, and end_line().
local _, use = ...
local show = use "repl.show"

if rawget(_G, "help") == nil then rawset(_G, "help", use "repl.help") end

return {
  show = show.show,
  complete = function(text) return use "repl.complete"(text) end, -- loaded with the first key
}
