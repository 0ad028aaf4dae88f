-- What the REPL (vm/repl) does in Lua: {read = f(text), run = f(chunk), on_error = f(e), complete = f(text)}, and the global help. The host gives
-- list_folder(path), a list of names, and end_line().
local _, use = ...
local run = use "repl.run"

if rawget(_G, "help") == nil then rawset(_G, "help", use "repl.help") end

return {
  read = use "repl.read",
  run = run.run,
  on_error = run.on_error,
  complete = function(text) return use "repl.complete"(text) end, -- loaded with the first key
}
