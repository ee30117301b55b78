-- Selects endpoints in turn, in proportion to their weights. ingress-nginx has one instance for each Service.
local _M = {}
_M.__index = _M

function _M.new(_, nodes)
  local self = setmetatable({}, _M)
  self:reinit(nodes)
  return self
end

function _M:reinit(nodes)
  self.nodes, self.turns, self.last = nodes, {}, 0
  for endpoint, weight in pairs(nodes) do
    for _ = 1, weight do
      table.insert(self.turns, endpoint)
    end
  end
end

function _M:find()
  if #self.turns == 0 then
    return nil, "there are no endpoints"
  end
  self.last = self.last % #self.turns + 1
  return self.turns[self.last]
end

return _M
