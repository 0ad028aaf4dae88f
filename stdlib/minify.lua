-- lutra minify FILE [-o OUT]: writes the smallest repro that fails in the same way, and prints its graph.
local lt = ...

return function(file, _, out)
  out = out or (file:gsub("%.repro$", "") .. ".min.repro")
  local ok, r = pcall(lt._native.minify_repro, file, out)
  if not ok then error((r:gsub("^lutra/%w+%.lua:%d+: ", "")), 0) end
  print(r.graph)
  print(r.kind == "fails" and "the compiler fails: " .. r.what or r.what)
  print(("%d %s: %s"):format(r.ops, r.ops == 1 and "op" or "ops", out))
end
