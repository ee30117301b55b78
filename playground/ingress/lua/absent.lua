-- Replaces a library that Debian does not have. ingress-nginx always loads it; any use of it is an error.
return setmetatable({
  new = function(self)
    return self
  end,
}, {
  __index = function(_, name)
    error("this nginx lacks the library for " .. name)
  end,
})
