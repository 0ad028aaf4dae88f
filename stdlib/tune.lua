-- lutra tune --limits: measures this machine and keeps the result.
local _, use = ...

return function()
  local limits = use "limits"
  local function say(text) io.stdout:write(text, "\n") io.stdout:flush() end
  print("kept in " .. limits.save(limits.measure(say)))
end
