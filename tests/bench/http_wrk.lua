-- What wrk sends: requests made beforehand, one for each of `ids` resources in turn, and its figures as a line of JSON.
-- Arguments behind `--`: method, path up to the id, ids, token ("" = none), bytes of the body (0 = none).
local requests, turn = {}, 0

function add(request) requests[#requests + 1] = request end

function init(args)
  local method, path, ids, token, body = args[1], args[2], tonumber(args[3]), args[4], tonumber(args[5])
  local headers = {}
  if token ~= "" then headers["Fencing-Token"] = token end
  if body > 0 then headers["Content-Length"] = tostring(body) end
  for id = 1, ids do
    add(wrk.format(method, path .. id, headers, body > 0 and string.rep("x", body) or nil))
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

-- `status` counts what is above 399; the benchmark counts at the other end what arrived there, too.
function done(summary, latency)
  local e = summary.errors
  io.write(string.format('\n{"requests":%d,"seconds":%.6f,"p50_us":%d,"p99_us":%d,',
    summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99)))
  io.write(string.format('"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
    e.connect, e.read, e.write, e.status, e.timeout))
end
