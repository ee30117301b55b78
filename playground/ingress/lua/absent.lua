-- Stands for a library that Debian does not have. ingress-nginx loads it in any case; who uses it is told.
return setmetatable({
  new = function(self)
    return self
  end,
}, {
  __index = function(_, name)
    error("this nginx lacks the library for " .. name)
  end,
})
