-- lutra tune --limits: measures this machine and keeps the result.
local _, use = ...

return function(...)
  local what = ...
  if what ~= "--limits" or select("#", ...) ~= 1 then error("tune: usage: lutra tune --limits", 0) end
  local limits = use "limits"
  local function say(text) io.stdout:write(text, "\n") io.stdout:flush() end
  print("kept in " .. limits.save(limits.measure(say)))
end
