-- Shared by arrows, counts and readmes. A script loads it by
--   local checkout = dofile((arg[0]:match "^(.*)/" or ".") .. "/checkout.lua")("--option", ...)
-- with the options that it accepts. It prints the comment at the script's head for --help, ends with status 2 at an
-- unknown option, and enters the root of the checkout. checkout.options has the given options as keys;
-- checkout.paths(pathspecs) returns the files that git tracks or would add.
local ffi = require "ffi"
ffi.cdef "int chdir(const char *path);"

local script = arg[0]:match "([^/]*)$"
local checkout = {options = {}}

local function print_help()
  for line in io.lines(arg[0]) do
    if line:find "^%-%- " then print(line:sub(4)) elseif not line:find "^#!" then break end
  end
end

function checkout.paths(pathspecs)
  local paths = {}
  local listing = assert(io.popen("git ls-files --cached --others --exclude-standard -- " .. pathspecs))
  for path in listing:lines() do
    local file = io.open(path) -- a deleted file is listed until git knows
    if file then
      file:close()
      paths[#paths + 1] = path
    end
  end
  listing:close()
  assert(#paths > 0, script .. ": not in a git checkout")
  return paths
end

return function(...)
  local known = {}
  for _, option in ipairs {...} do known[option] = true end
  for _, option in ipairs(arg) do
    if option == "--help" or option == "-h" then
      print_help()
      os.exit(0)
    elseif not known[option] then
      io.stderr:write(script, ": unknown option ", option, " (--help)\n")
      os.exit(2)
    end
    checkout.options[option] = true
  end
  assert(ffi.C.chdir((arg[0]:match "^(.*)/" or ".") .. "/..") == 0)
  return checkout
end
