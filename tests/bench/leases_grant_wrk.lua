-- What wrk sends to the API of leases: each of its threads, with one connection, takes a lease of a resource of its own,
-- and releases it.
-- Argument: a number that no other run has.
dofile((debug.getinfo(1, "S").source:sub(2):gsub("leases_grant_wrk", "http_wrk")))

local threads, run, count, held = 0, 0, 0, nil

function setup(thread)
  threads = threads + 1
  thread:set("number", threads)
end

function init(args) run = tonumber(args[1]) end

local json = {["Content-Type"] = "application/json"}

function request()
  local name = string.format("taken-%d-%d", run, number)
  if held then return wrk.format("DELETE", "/v1/leases/" .. held.id, json, string.format('{"tokens":{"%s":%s}}', name, held.token)) end
  count = count + 1
  local id = string.format("%08x%08x%016x", run, number, count)
  return wrk.format("POST", "/v1/leases", json, string.format('{"id":"%s","resources":["%s"]}', id, name))
end

function response(status, headers, body)
  local token = body:match('"taken%-%d+%-%d+":(%d+)')
  held = not held and status == 201 and {id = string.format("%08x%08x%016x", run, number, count), token = token} or nil
end
