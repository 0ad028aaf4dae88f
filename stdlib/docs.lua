-- lutra docs DIR: writes a page for each op to DIR/ops, and annotations for editors to DIR/meta.
local _, use = ...

local function write(folder, files)
  use("folders").make(folder, 493) -- 0755
  for name, text in next, files do
    local file, problem = io.open(folder .. "/" .. name, "w")
    if not file then error("docs: " .. problem, 0) end
    file:write(text)
    file:close()
  end
end

return function(folder)
  write(folder .. "/meta", use("meta.annotations").files())
  write(folder .. "/ops", use("meta.pages").files())
  print("docs: " .. folder .. "/ops/index.md, " .. folder .. "/meta for editors")
end
