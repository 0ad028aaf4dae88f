-- The Lua part of the REPL (vm/repl): {read = f(text), run = f(chunk), on_error = f(e), complete = f(text)}, and the
-- globals help, exit and quit. The host provides list_folder(path), which returns a list of names, and end_line().
local _, use = ...
local run = use "repl.run"

local leave = setmetatable({}, {
  __tostring = function() return "exit() or Control-D leaves" end,
  __call = function(_, code) os.exit(code or 0) end,
})

for name, value in pairs {help = use "repl.help", exit = leave, quit = leave} do
  if rawget(_G, name) == nil then rawset(_G, name, value) end
end

return {
  read = use "repl.read",
  run = run.run,
  on_error = run.on_error,
  complete = function(text) return use "repl.complete"(text) end, -- loaded with the first key
}
