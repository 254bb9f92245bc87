-- What wrk sends to the API of leases: renewals of leases 1 … n, whose id is their number, in turn. Argument: n.
dofile((debug.getinfo(1, "S").source:sub(2):gsub("leases_wrk", "http_wrk")))

function init(args)
  for i = 1, tonumber(args[1]) do
    local body = string.format('{"tokens":{"bench-%d":1}}', i)
    add(wrk.format("PUT", string.format("/v1/leases/%032x", i), {["Content-Type"] = "application/json"}, body))
  end
end
