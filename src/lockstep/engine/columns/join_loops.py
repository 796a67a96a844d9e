"""The compiled loops of joins and unions: event by event over small numbers; rows are put together afterwards.

A row is named by a number: below the base of its side it is one of the kept rows, else the event `number - base` of the
span at hand; -1 is no row. Keys and matches (the values of a join's condition) are numbers too, -1 is a match with a
null.
What an event makes is a line of `out`: the event, the opcode, and the rows that it is made of.
"""

from __future__ import annotations

from lockstep.engine.columns.loops import compiled

# ruff: noqa: ANN001, ANN201 - the types are those of the arrays that a loop is called with
# mypy: disable-error-code="no-untyped-def"


FINE, UNRESOLVED, DUPLICATE, UNKNOWN, OTHER_INPUT = range(5)
"""What is wrong with an event. From OTHER_INPUT on: the row is from input `fault - OTHER_INPUT`."""
OUTER, INNER, FULL = range(3)


@compiled
def put(out, at, event, kind, new, new_other, old, old_other):
    """The change of an output row; where the next one goes. A full join needs one side, others the fact."""
    if kind == 2:
        is_new, was = new >= 0 or new_other >= 0, old >= 0 or old_other >= 0
    elif kind == 1:
        is_new, was = new >= 0 and new_other >= 0, old >= 0 and old_other >= 0
    else:
        is_new, was = new >= 0, old >= 0
    if is_new:
        out[at, 0], out[at, 1], out[at, 2], out[at, 3] = event, 6 if was else 1, new, new_other
        at += 1
    if was:
        out[at, 0], out[at, 1], out[at, 2], out[at, 3] = event, 4, old, old_other
        at += 1
    return at


@compiled
def link(key, match, matched, behind, before, first, last, count):
    """Append a fact to the list of those with its match."""
    matched[key] = match
    if match < 0:
        return
    tail = last[match]
    before[key], behind[key], last[match] = tail, -1, key
    if tail >= 0:
        behind[tail] = key
    else:
        first[match] = key
    count[match] += 1


@compiled
def unlink(key, matched, behind, before, first, last, count):
    """Take a fact from among the others with its match."""
    match = matched[key]
    if match < 0:
        return
    left, right = before[key], behind[key]
    if left >= 0:
        behind[left] = right
    else:
        first[match] = right
    if right >= 0:
        before[right] = left
    else:
        last[match] = left
    count[match] -= 1


@compiled
def link_all(keys, matches, ids, row, matched, behind, before, first, last, count):
    """Put loaded facts in, in order."""
    for i in range(len(keys)):
        row[keys[i]] = ids[i]
        link(keys[i], matches[i], matched, behind, before, first, last, count)


@compiled
def fault_of(opcode, old):
    """What is wrong with an event whose key has the row `old`."""
    if opcode != 1 and opcode != 4 and opcode != 6:
        return 1
    if opcode == 1 and old >= 0:
        return 2
    return 3 if opcode == 4 and old < 0 else 0


@compiled
def take_fact(event, place, kind, fact, facts, base, lists, dim_row, out, at):
    """A fact comes, changes or leaves; where the next line goes."""
    opcodes, keys, matches = fact
    row, matched, behind, before = facts
    first, last, count = lists
    opcode, key, match = opcodes[place], keys[place], matches[place]
    old = row[key]
    was = matched[key] if old >= 0 else -1
    old_other = dim_row[was] if was >= 0 else -1
    if old >= 0:
        unlink(key, matched, behind, before, first, last, count)
    new, new_other = -1, -1
    if opcode != 4:
        new = base + place
        link(key, match, matched, behind, before, first, last, count)
        new_other = dim_row[match] if match >= 0 else -1
    row[key] = new
    if kind == 2 and match >= 0:
        # What is left without a fact is the dimension row alone, and its key is the fact's.
        old_other = new_other = dim_row[match]
    return put(out, at, event, kind, new, new_other, old, old_other)


@compiled
def meet(event, place, kind, fact, base, dim_row, out, at):
    """A fact that is not kept meets what is there; where the next line goes."""
    opcodes, _, matches = fact
    new, new_other, old, old_other = -1, -1, -1, -1
    if opcodes[place] != 4:
        new = base + place
        new_other = dim_row[matches[place]] if matches[place] >= 0 else -1
    if opcodes[place] != 1:
        leaving = place if opcodes[place] == 4 else min(place + 1, len(matches) - 1)
        old = base + leaving
        old_other = dim_row[matches[leaving]] if matches[leaving] >= 0 else -1
    return put(out, at, event, kind, new, new_other, old, old_other)


@compiled
def lines_of(place, dim, dims, count):
    """How many lines a dimension row may make at most."""
    opcodes, keys, matches = dim
    rows, matched = dims
    most = 2
    if rows[keys[place]] >= 0 and matched[keys[place]] >= 0:
        most += 2 * count[matched[keys[place]]]
    if opcodes[place] != 4 and matches[place] >= 0:
        most += 2 * count[matches[place]]
    return most


@compiled
def take_dimension(event, place, kind, dim, facts, dims, base, lists, dim_row, out, at):
    """A dimension row comes, changes or leaves, and with it what its facts make; where the next line goes."""
    opcodes, keys, matches = dim
    row, _, behind, _ = facts
    first, _, count = lists
    rows, matched = dims
    opcode, key = opcodes[place], keys[place]
    old = rows[key]
    was = matched[key] if old >= 0 else -1
    match = matches[place] if opcode != 4 else -1
    new = base + place if opcode != 4 else -1
    rows[key], matched[key] = new, match
    if was >= 0:
        dim_row[was] = -1
    if match >= 0:
        dim_row[match] = new
    if was >= 0 and was != match:
        one = first[was]
        while one >= 0:
            at = put(out, at, event, kind, row[one], -1, row[one], old)
            one = behind[one]
    if match >= 0:
        before = old if was == match else -1
        one = first[match]
        while one >= 0:
            at = put(out, at, event, kind, row[one], new, row[one], before)
            one = behind[one]
    if kind == 2:
        alone = match if opcode != 4 else was
        if alone < 0 or count[alone] == 0:
            at = put(out, at, event, kind, -1, new, -1, old)
    return at


@compiled
def join(at, order, split, kind, kept, fact, facts, base, dim, dims, dim_base, lists, dim_row, fault, out):
    """The events of both sides from `order[at]` on; the place of the next one, and how many lines were made.

    `fact` is opcode, key and match of the events with numbers from `split[0]` below `split[1]`, `dim` those from
    `split[2]` on. `facts` are row, match, the next fact and the one before for each key; `dims` row and match for each
    key; `lists` first fact, last and count for each match; `dim_row` the dimension row for each match. It stops where
    `out` may be too short for what comes next.
    """
    made, room = 0, len(out)
    while at < len(order):
        event = order[at]
        if split[0] <= event < split[1]:
            place = event - split[0]
            opcode = fact[0][place]
            wrong = fault_of(opcode, facts[0][fact[1][place]]) if kept else fault_of(opcode, 0 if opcode == 4 else -1)
            if wrong:
                fault[event] = wrong
            elif made + 2 > room:
                break
            elif kept:
                made = take_fact(event, place, kind, fact, facts, base, lists, dim_row, out, made)
            else:
                made = meet(event, place, kind, fact, base, dim_row, out, made)
        else:
            place = event - split[2]
            opcode = dim[0][place]
            wrong = fault_of(opcode, dims[0][dim[1][place]])
            if wrong:
                fault[event] = wrong
            elif made + lines_of(place, dim, dims, lists[2]) > room:
                break
            else:
                made = take_dimension(event, place, kind, dim, facts, dims, dim_base, lists, dim_row, out, made)
        at += 2 if opcode == 6 else 1
    return at, made


@compiled
def unite(order, starts, strict, opcodes, keys, base, row, writer, fault, out):
    """The events of all inputs of a union; how many lines it made. `starts` says where each input's events begin."""
    at, made = 0, 0
    while at < len(order):
        event = order[at]
        port = 0
        while port + 1 < len(starts) and event >= starts[port + 1]:
            port += 1
        opcode, key = opcodes[event], keys[event]
        at += 2 if opcode == 6 else 1
        old = row[key]
        if strict:
            if old >= 0 and writer[key] != port:
                fault[event] = 4 + writer[key]
                continue
            if opcode == 1 and old >= 0:
                fault[event] = 2
                continue
        elif (opcode == 4 or opcode == 5) and (old < 0 or writer[key] != port):
            continue
        if old < 0 and (opcode == 2 or opcode == 4):
            fault[event] = 3
            continue
        new = -1 if opcode == 4 or opcode == 5 else base + event
        row[key], writer[key] = new, port
        made = put(out, made, event, 0, new, -1, old, -1)
    return made
