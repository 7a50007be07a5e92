-- A mixed load for wrk: new events, copies of old ones, bodies that break the contract, reads.
-- Each thread notes the keys of events that were accepted for the first time in a file of its own,
-- in the folder given as the first argument. Anything but the expected statuses is counted.

local threads = {}
local made = 0

function setup(thread)
  made = made + 1
  thread:set("number", made)
  table.insert(threads, thread)
end

function init(args)
  notes = assert(io.open(args[1] .. "/thread-" .. number, "w"))
  sent = 0
  unexpected = 0
  json = { ["Content-Type"] = "application/json" }
  math.randomseed(number)
end

-- One event for each n of this thread.
local function event(n)
  local sequence = string.format("%.0f", 1739980000000 + number * 100000000 + n)
  return '{"envelope":{"event_name":"pixel_control.lifecycle.maniaplanet_beginmatch",'
    .. '"schema_version":"2026-02-19.1","event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-'
    .. sequence .. '","event_category":"lifecycle","source_callback":"ManiaPlanet.BeginMatch",'
    .. '"source_sequence":' .. sequence .. ',"source_time":1739980000,"idempotency_key":"pc-idem-'
    .. string.format("%08x%032x", number, n) .. '","payload":{},"metadata":{"context":{"server":'
    .. '{"login":"server-' .. (n % 50) .. '"}}}},"transport":{"attempt":1,"max_attempts":3,'
    .. '"retry_backoff_ms":250,"auth_mode":"none"}}'
end

function request()
  local kind = math.random(100)
  if kind <= 70 or sent == 0 then
    sent = sent + 1
    return wrk.format("POST", "/plugin/events", json, event(sent))
  elseif kind <= 85 then
    return wrk.format("POST", "/plugin/events", json, event(math.random(sent)))
  elseif kind <= 90 then
    return wrk.format("POST", "/plugin/events", json, '{"envelope":' .. math.random(1000) .. "}")
  elseif kind <= 96 then
    return wrk.format("GET", "/v1/pixel/servers?limit=5")
  elseif kind <= 98 then
    return wrk.format("GET", "/v1/admissions?limit=5")
  elseif kind == 99 then
    return wrk.format("GET", "/metrics")
  else
    return wrk.format("GET", "/no/such/path")
  end
end

function response(status, headers, body)
  if status == 200 then
    if body:find('"disposition":"processed"', 1, true) then
      notes:write(body:match('"idempotency_key":"([^"]+)"'), "\n")
    end
  elseif status ~= 404 and status ~= 503 then
    unexpected = unexpected + 1
  end
end

function done(summary, latency, requests)
  local all = 0
  for _, thread in ipairs(threads) do
    all = all + thread:get("unexpected")
  end
  io.write("unexpected responses: ", all, "\n")
end
