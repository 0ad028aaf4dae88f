-- lutra repro FILE: runs a repro, compiled and eagerly, and reports where they differ. A difference is an error.
local lt = ...

return function(file)
  local ok, r = pcall(lt._native.run_repro, file)
  if not ok then error((r:gsub("^lutra/%w+%.lua:%d+: ", "")), 0) end
  print(("%s, %d %s"):format(r.about == "" and "a graph" or r.about, r.ops, r.ops == 1 and "op" or "ops"))
  print("recorded: " .. r.recorded)
  if r.bugs ~= r.bugs_on then
    print(("it was recorded with LUTRA_INJECT='%s'; now it is '%s'"):format(r.bugs, r.bugs_on))
  end
  if r.kind == "guard" then
    print("guards:\n" .. r.guards)
    error("guards belong to a running program: this repro tells what was seen, and cannot see it again", 0)
  end
  print(r.graph)
  if r.now == "" then return print("now: compiled code and eager agree") end
  error((r.now == "fails" and "the compiler fails: " or "compiled code differs from eager: ") .. r.what, 0)
end
