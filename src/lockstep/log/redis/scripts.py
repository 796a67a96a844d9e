"""What the server does in one step, as scripts. Nothing is written before it is known that everything can be.

Times are nanoseconds in 20 digits, compared as text: Lua's numbers are too short for them. Age is measured by the
server's clock, so that no writer's clock decides what is too old.

Each batch is stored with the checksum of the one before it: a reader that goes on sees whether that is the one it read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

Argument = str | bytes | int
Command = tuple[Argument, ...]

PRODUCER_FORGOTTEN_NS = 3600 * 10**9
SKEW_NS = 10**9
"""A writer whose clock differs by more than this from the server's gets the server's time."""
UNDO_MS = 10_000
"""So long are old values of cells kept; a view must be used for less than that."""


@dataclass(frozen=True, slots=True)
class Script:
    """A script, called by its checksum."""

    text: str
    sha: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha", hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest())

    def call(self, keys: Iterable[str], arguments: Iterable[Argument]) -> Command:
        """The command that runs it."""
        keys = tuple(keys)
        return ("EVALSHA", self.sha, len(keys), *keys, *arguments)


_HELPERS = """
local at = 0
local function take() at = at + 1; return ARGV[at] end
local function limit() local text = take(); return text ~= '' and tonumber(text) or nil end
local function whole(number) return string.format('%.0f', number) end
"""

_DROP = """
-- Which stored batches, oldest first: first those in the list, then those that are about to be added.
local function oldest(sizes, added, stamp)
  local stored, chunk, start, step = redis.call('LLEN', sizes), {}, 0, 4
  return function(i)
    if i >= stored then
      local one = added[i - stored + 1]
      if one then return one.stop, one.size, tonumber(stamp) end
      return nil
    end
    if i < start or i >= start + #chunk then
      start, step = i, math.min(step * 4, 1024)
      chunk = redis.call('LRANGE', sizes, i, i + step - 1)
    end
    local stop, size, ns = string.match(chunk[i - start + 1], '(%d+) (%d+) (%d+)')
    return tonumber(stop), tonumber(size), tonumber(ns)
  end
end

-- Remove the oldest batches, of which the last ends at the given offset.
local function drop(log, count, stop)
  if count > 0 then
    redis.call('XTRIM', log.entries, 'MINID', '=', '0-' .. whole(stop + 1))
    redis.call('LTRIM', log.sizes, count, -1)
  end
end
"""

_APPEND = (
    _DROP
    + """
local function log_keys(first)
  return {row = KEYS[first], entries = KEYS[first + 1], sizes = KEYS[first + 2], seen = KEYS[first + 3],
          holds = KEYS[first + 4]}
end

-- The holds that change in the same step: an offset, or false to let go.
local function take_holds(log)
  log.own_holds = {}
  for h = 1, tonumber(take()) do
    local holder, offset = take(), limit()
    log.own_holds[holder] = offset or false
  end
end

-- The batches to add, each with its offset; those that their producer sent before are left out.
local function sort_out(log, next)
  local bases, added, known, bytes = {}, {}, {}, 0
  for i = 1, tonumber(take()) do
    local count, producer, sequence, size, data = tonumber(take()), take(), tonumber(take()), tonumber(take()), take()
    local last = known[producer]
    if producer ~= '' and last == nil then
      local stored = redis.call('HGET', log.seen, producer)
      last = false
      if stored then
        local seq, stop = string.match(stored, '(%d+) (%d+)')
        last = {sequence = tonumber(seq), stop = tonumber(stop)}
      end
    end
    if last and sequence < last.sequence then
      bases[i] = 'c ' .. whole(last.stop - (last.sequence - sequence)) .. ' ' .. whole(last.stop)
    else
      bases[i] = whole(next)
      added[#added + 1] = {base = next, stop = next + count, size = size, data = data, producer = producer,
                           sequence = sequence + count, is_new = last == false}
      next, bytes = next + count, bytes + size
      known[producer] = producer ~= '' and {sequence = sequence + count, stop = next} or nil
    end
  end
  return bases, added, next, bytes
end

-- The first offset that the limits leave; the newest batch always stays.
local function wanted_first(log, limits, row, batch)
  local wanted = row.first
  if limits.capacity then wanted = math.max(wanted, row.next - limits.capacity) end
  local kept, i = row.bytes, 0
  while (limits.bytes or limits.age) and i < limits.work do
    local stop, size, ns = batch(i)
    local is_beyond = (limits.bytes and kept > limits.bytes) or (limits.age and ns and ns < row.now - limits.age)
    if not stop or stop >= row.next or not is_beyond then break end
    wanted, kept, i = math.max(wanted, stop), kept - size, i + 1
  end
  if limits.ceiling then
    local held = redis.call('HGETALL', log.holds)
    for h = 1, #held, 2 do
      if log.own_holds[held[h]] == nil then wanted = math.min(wanted, tonumber(held[h + 1])) end
    end
    for _, offset in pairs(log.own_holds) do if offset then wanted = math.min(wanted, offset) end end
  end
  return math.max(row.first, math.min(wanted, row.next))
end

-- The server's clock as a stamp, and the time to note: the writer's, unless its clock is far off.
local function times(given)
  local clock = redis.pcall('TIME')
  if clock.err then return given, given end -- this user may not ask for it
  local server = string.sub('0000000000' .. clock[1] .. string.format('%06d000', clock[2]), -20)
  local is_near = math.abs(tonumber(given) - tonumber(server)) <= SKEW_NS
  return server, is_near and given or server
end

-- What an append would do: its answer if it can't be done, or else the row that it leaves.
local function plan(log)
  local given, expected = take(), take()
  local limits = {capacity = limit(), bytes = limit(), age = limit(), ceiling = limit()}
  local stored = redis.call('HMGET', log.row, 'id', 'first', 'next', 'bytes', 'ns', 'tip')
  if stored[1] ~= log.identity then return nil, {'GONE'} end
  if expected ~= '' and tonumber(expected) ~= tonumber(stored[3]) then return nil, {'CONFLICT', stored[3]} end
  local server, noted = times(given)
  local row = {first = tonumber(stored[2]), given = given, stamp = noted > stored[5] and noted or stored[5]}
  row.now = tonumber(server)
  -- The checksum of the last batch; empty if it was added by an earlier version, which notes none.
  local is_noted = stored[6] and string.sub(stored[6], 1, -5) == stored[3]
  row.before = is_noted and string.sub(stored[6], -4) or ''
  local bases, added, next, bytes = sort_out(log, tonumber(stored[3]))
  row.next, row.bytes, row.added, row.bases = next, tonumber(stored[4]) + bytes, added, bases
  limits.work = 1024 + #added
  local batch = oldest(log.sizes, added, row.stamp)
  row.first = wanted_first(log, limits, row, batch)
  row.dropped, row.cut = 0, 0
  if row.first == 0 and not limits.ceiling then return row end
  while row.dropped < limits.work or (limits.ceiling and row.bytes > limits.ceiling) do
    local stop, size = batch(row.dropped)
    if not stop or stop > row.first then break end
    row.dropped, row.cut, row.bytes = row.dropped + 1, stop, row.bytes - size
  end
  if limits.ceiling and row.bytes > limits.ceiling then return nil, {'FULL'} end
  return row
end

local function forget_old(seen, now)
  local found = redis.call('HRANDFIELD', seen, 64, 'WITHVALUES')
  for i = 1, #found, 2 do
    local ns = string.match(found[i + 1], '%d+ %d+ (%d+)')
    if now - tonumber(ns) > FORGOTTEN_NS then redis.call('HDEL', seen, found[i]) end
  end
end

local function apply(log, row, change)
  local before = row.before
  for _, one in ipairs(row.added) do
    local id, name = '0-' .. whole(one.base + 1), 'b' .. before
    if row.stamp == row.given then
      redis.call('XADD', log.entries, id, name, one.data)
    else
      redis.call('XADD', log.entries, id, name, one.data, 't', row.stamp)
    end
    before = string.sub(one.data, 5, 8)
    redis.call('RPUSH', log.sizes, whole(one.stop) .. ' ' .. whole(one.size) .. ' ' .. row.stamp .. ' ' .. change)
    if one.producer ~= '' then
      if one.is_new then forget_old(log.seen, row.now) end
      redis.call('HSET', log.seen, one.producer, whole(one.sequence) .. ' ' .. whole(one.stop) .. ' ' .. row.stamp)
    end
  end
  drop(log, row.dropped, row.cut)
  redis.call('HSET', log.row, 'first', whole(row.first), 'next', whole(row.next), 'bytes', whole(row.bytes),
             'ns', row.stamp, 'ver', change, 'tip', whole(row.next) .. before)
end
""".replace("FORGOTTEN_NS", str(PRODUCER_FORGOTTEN_NS)).replace("SKEW_NS", str(SKEW_NS))
)

APPEND = Script(
    _HELPERS
    + _APPEND
    + """
local log = log_keys(2)
log.identity = take()
local is_dry, touches, bell = take() == '1', take() == '1', take()
take_holds(log)
local row, refusal = plan(log)
if not row then return refusal end
if not is_dry then
  if #row.added > 0 then
    apply(log, row, whole(redis.call('INCR', KEYS[1])))
    if bell ~= '' then redis.call('SPUBLISH', bell, '') end
  elseif touches then
    redis.call('INCR', KEYS[1])
  end
end
table.insert(row.bases, 1, 'OK')
return row.bases
"""
)
"""Keys: changes, then those of the log. With `touches` something is written even for copies: WAIT waits for that."""

COMMIT = Script(
    _HELPERS
    + _APPEND
    + """
local logs, cells, bells = {}, {}, {}
for i = 1, tonumber(take()) do
  local log, pinned = log_keys(4 + (i - 1) * 5), nil
  log.identity, pinned = take(), take()
  local row = redis.call('HMGET', log.row, 'id', 'ver')
  if row[1] ~= log.identity or row[2] ~= pinned then return {'STALE'} end
  take_holds(log)
  if take() == '1' then
    local refusal
    bells[#bells + 1] = take()
    log.plan, refusal = plan(log)
    if refusal then return {refusal[1], whole(i)} end
  end
  logs[i] = log
end
for i = 1, tonumber(take()) do
  local key, is_there, value = take(), take() == '1', take()
  local found = redis.call('HGET', KEYS[2], key)
  if (found ~= false) ~= is_there or (is_there and found ~= value) then return {'STALE'} end
end
for i = 1, tonumber(take()) do cells[i] = {take(), take() == '1', take()} end
local touches = take() == '1'

local change = nil
local function number()
  change = change or whole(redis.call('INCR', KEYS[1]))
  return change
end
local answer = {'OK'}
for _, log in ipairs(logs) do
  if log.plan and #log.plan.added > 0 then apply(log, log.plan, number()) end
  for _, base in ipairs(log.plan and log.plan.bases or {}) do answer[#answer + 1] = base end
  for holder, offset in pairs(log.own_holds) do
    if offset then
      redis.call('HSET', log.holds, holder, whole(offset))
    else
      redis.call('HDEL', log.holds, holder)
    end
  end
end
if #cells > 0 then
  local now = redis.call('TIME')
  local oldest_ms = whole(now[1] * 1000 + math.floor(now[2] / 1000) - UNDO_MS)
  for _, cell in ipairs(cells) do
    local before = redis.call('HGET', KEYS[2], cell[1])
    if before then
      redis.call('XADD', KEYS[3], 'MINID', '~', oldest_ms, '*', 'k', cell[1], 'v', before)
    else
      redis.call('XADD', KEYS[3], 'MINID', '~', oldest_ms, '*', 'k', cell[1])
    end
    if cell[2] then redis.call('HSET', KEYS[2], cell[1], cell[3]) else redis.call('HDEL', KEYS[2], cell[1]) end
  end
  redis.call('PEXPIRE', KEYS[3], 6 * UNDO_MS)
end
if touches then number() end
for _, bell in ipairs(bells) do redis.call('SPUBLISH', bell, '') end
return answer
""".replace("UNDO_MS", str(UNDO_MS))
)
"""Keys: changes, cells, undo, then those of each log. STALE if a log or cell is no longer as it was read.

With `touches` something is written even if nothing is new: WAIT waits for that."""

_MOMENT = """
local function moment(changes, undo)
  local last = redis.call('XREVRANGE', undo, '+', '-', 'COUNT', 1)
  return redis.call('GET', changes) or '0', last[1] and last[1][1] or '0-0'
end
"""

LOOK = Script(
    _HELPERS
    + _MOMENT
    + """
local name, since = take(), limit()
local entry = redis.call('HGET', KEYS[3], name)
local row = redis.call('HMGET', KEYS[4], 'id', 'first', 'next', 'ver', 'born')
local change, undone = moment(KEYS[1], KEYS[2])
if not entry or not row[1] or (since and tonumber(row[5]) > since) then return {'GONE', change, undone} end
if not since or tonumber(row[4]) <= since then return {'OK', change, undone, entry, row[1], row[2], row[3], row[4]} end
local stop = -1
while true do
  local chunk = redis.call('LRANGE', KEYS[5], stop - 63, stop)
  for i = #chunk, 1, -1 do
    local next, at = string.match(chunk[i], '(%d+) %d+ %d+ (%d+)')
    if tonumber(at) <= since then return {'OK', change, undone, entry, row[1], row[2], next, row[4]} end
  end
  if #chunk < 64 then break end
  stop = stop - 64
end
if tonumber(row[2]) == 0 then return {'OK', change, undone, entry, row[1], '0', '0', row[4]} end
return {'PAST', change, undone}
"""
)
"""Keys: changes, undo, catalogue, row, sizes. A log now, or as it was after an earlier change; PAST if that is gone."""

CELL = Script(
    _HELPERS
    + _MOMENT
    + """
local key, since = take(), take()
local change, undone = moment(KEYS[1], KEYS[2])
if since ~= '' and undone ~= since then
  for _, entry in ipairs(redis.call('XRANGE', KEYS[2], '(' .. since, '+')) do
    if entry[2][2] == key then return {change, undone, entry[2][4] or false} end
  end
end
return {change, undone, redis.call('HGET', KEYS[3], key)}
"""
)
"""Keys: changes, undo, cells. A cell now, or as it was at an earlier moment."""

CREATE = Script(
    _HELPERS
    + """
local name, entry, identity = take(), take(), take()
local found = redis.call('HGET', KEYS[2], name)
if found then return found end
local change = redis.call('INCR', KEYS[1])
redis.call('UNLINK', unpack(KEYS, 3))
redis.call('HSET', KEYS[2], name, entry)
redis.call('HSET', KEYS[3], 'id', identity, 'first', 0, 'next', 0, 'bytes', 0, 'ns', '0', 'ver', change, 'born', change)
return entry
"""
)
"""Keys: changes, catalogue, then those of the log. Returns the entry: the new one, or the one that was there."""

ALTER = Script(
    """#!lua flags=allow-oom
local name, entry, altered = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', KEYS[2], name) ~= entry then return 0 end
redis.call('HSET', KEYS[2], name, altered)
redis.call('INCR', KEYS[1])
return 1
"""
)
"""Keys: changes, catalogue. Replaces an entry if it is still the given one."""

DELETE = Script(
    """#!lua flags=allow-oom
local name, entry, bell = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', KEYS[2], name) ~= entry then return 0 end
redis.call('HDEL', KEYS[2], name)
redis.call('UNLINK', unpack(KEYS, 3))
redis.call('INCR', KEYS[1])
redis.call('SPUBLISH', bell, '')
return 1
"""
)
"""Keys: changes, catalogue, then those of the log. Deletes it if its entry is still the given one."""

TRIM = Script(
    "#!lua flags=allow-oom\n"
    + _HELPERS
    + _DROP
    + """
local log = {row = KEYS[2], entries = KEYS[3], sizes = KEYS[4]}
local identity, before = take(), tonumber(take())
local row = redis.call('HMGET', log.row, 'id', 'first', 'next', 'bytes')
if row[1] ~= identity then return 'GONE' end
local first, bytes = math.max(tonumber(row[2]), math.min(before, tonumber(row[3]))), tonumber(row[4])
local batch, count, cut = oldest(log.sizes, {}, '0'), 0, 0
while count < 4096 do
  local stop, size = batch(count)
  if not stop or stop > first then break end
  count, cut, bytes = count + 1, stop, bytes - size
end
if count == 0 and first == tonumber(row[2]) then return 'DONE' end
drop(log, count, cut)
redis.call('HSET', log.row, 'first', whole(first), 'bytes', whole(bytes), 'ver', redis.call('INCR', KEYS[1]))
return count < 4096 and 'DONE' or 'MORE'
"""
)
"""Keys: changes, then those of the log. MORE if it has to be called again."""

HOLD = Script(
    """#!lua flags=allow-oom
local identity, holder, offset = ARGV[1], ARGV[2], ARGV[3]
if redis.call('HGET', KEYS[1], 'id') ~= identity then return offset == '' and 'DONE' or 'GONE' end
if offset == '' then redis.call('HDEL', KEYS[2], holder) else redis.call('HSET', KEYS[2], holder, offset) end
return 'DONE'
"""
)
"""Keys: row, holds."""

SCRIPTS = (APPEND, COMMIT, LOOK, CELL, CREATE, ALTER, DELETE, TRIM, HOLD)
