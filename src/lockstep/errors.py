"""Every error Lockstep raises on purpose.

    LockstepError
      UsageError                                       exit 2
        BadName BadUrl BadConfig BadOffset BadArgument BadRecord RecordTooLarge AppendTooLarge BackendUnknown
        ExtraMissing PackageMissing CheckoutNeeded CronInvalid ZoneUnknown
      NotFound                                         exit 3
        StreamNotFound GroupNotFound StoreNotFound ParentMissing RecordNotFound PositionNotFound PathMissing
        ProfileNotFound SchedulerNotFound
      Conflict                                         exit 4
        StreamExists ConfigMismatch StoreMismatch OffsetConflict Fenced GroupBusy IllegalState Closed ForkedProcess
      Forbidden                                        exit 5
        ServerRefused
      Unavailable                                      exit 6
        TimedOut NoRoom BufferFull Dropped PublishFailed StoreFull StoreBroken AppendUncertain UnsupportedByBackend
        OutboxBlocked ServerUnreachable ServerUnfit SystemFailed
      DataError                                        exit 1
        BatchDamaged FormatTooNew NotAStore Trimmed TakenBack GroupGap DecodeFailed HandlerFailed
        DeliveryRefused

Each class carries a stable code, a sentence with the values that are wrong, and what to do about it.
"""

from __future__ import annotations

import errno
from typing import ClassVar


class LockstepError(Exception):
    """Root of the tree: catch this to catch everything Lockstep raises on purpose."""

    code: ClassVar[str] = "INTERNAL"
    exit_code: ClassVar[int] = 1
    template: ClassVar[str] = "Something went wrong: {reason}."
    advice: ClassVar[str] = "Run the command again with --verbose and report what it prints."

    def __init__(self, **params: object) -> None:
        self.params = params
        super().__init__(f"[{self.code}] {self.template} {self.advice}".strip().format(**params))


class UsageError(LockstepError):
    """The caller asked for something that can't be."""

    code, exit_code = "USAGE", 2
    template, advice = "{reason}", ""


class BadName(UsageError):
    """A stream, group or shard name that is not allowed."""

    code = "BAD_NAME"
    template = "{what} name {name!r} is not allowed."
    advice = "Use 1 to 128 letters, digits, dots, dashes or underscores, beginning with a letter or digit."


class BadUrl(UsageError):
    """A bus URL that can't be understood."""

    code = "BAD_URL"
    template = "Bus URL {url!r} is not valid: {reason}."
    advice = "Write it as in {example}; docs/reference/urls.md has all options."
    _examples: ClassVar[dict[str, str]] = {
        "memory": "memory:NAME",
        "kafka": "kafka://localhost:9092",
        "rabbitmq": "rabbitmq://localhost:5552",
        "redis": "redis://localhost:6379/0",
        "hazelcast": "hazelcast://localhost:5701/dev",
        "postgresql": "postgresql://user@localhost:5432/database",
        "cassandra": "cassandra://localhost:9042/keyspace",
    }

    def __init__(self, **params: object) -> None:
        scheme = str(params.get("url")).partition(":")[0]
        super().__init__(**{"example": self._examples.get(scheme, "lmdb:./events?durability=relaxed"), **params})


class BackendUnknown(UsageError):
    """A bus URL whose scheme no backend answers to."""

    code = "BACKEND_UNKNOWN"
    template = "No backend is called {scheme!r}."
    advice = "Known backends: {known}."


class BadConfig(UsageError):
    """A configuration value outside its range."""

    code = "BAD_CONFIG"
    template = "Setting {field} = {value!r} is not valid: {reason}."
    advice = "Change it and try again; nothing was written."


class BadOffset(UsageError, ValueError):
    """An offset that can't be read, sought or confirmed."""

    code = "BAD_OFFSET"
    template = "Offset {offset} of {stream} is not valid: {reason}."
    advice = "See the readable range with bounds() or 'lockstep stream show'."


class BadArgument(UsageError, ValueError):
    """An argument outside its range."""

    code = "BAD_ARGUMENT"
    template = "{name} = {value!r} is not valid: {reason}."
    advice = "Nothing was done."


class BadRecord(UsageError, ValueError):
    """A record that can't be published."""

    code = "BAD_RECORD"
    template = "The record can't be published to {stream}: {reason}."
    advice = "Nothing was queued."


class RecordTooLarge(BadRecord):
    """A record above the stream's limit."""

    code = "RECORD_TOO_LARGE"
    template = "A record of {size} bytes is above the limit of {stream}, {limit} bytes."
    advice = "Split it, or create the stream with a larger max_record_bytes. Nothing was queued."


class AppendTooLarge(UsageError, ValueError):
    """What is to be stored in one step is more than the server takes in one message."""

    code = "APPEND_TOO_LARGE"
    template = "An append of {size} to {stream} does not fit into one message of {bus}, which takes {limit}."
    advice = "Publish smaller records or fewer at once, or raise {setting}."


class ExtraMissing(UsageError):
    """A package that only some users need is not installed."""

    code = "EXTRA_MISSING"
    template = "This needs the package {package}, which is not installed."
    advice = "Install it with: pip install 'lockstep-events[{extra}]'."


class PackageMissing(UsageError):
    """An optional package is not installed."""

    code = "PACKAGE_MISSING"
    template = "{what} needs the package {package}, which is not installed."
    advice = "Install it with: pip install {package}."


class CheckoutNeeded(UsageError):
    """Something of the source tree that no package holds: benchmarks and simulation."""

    code = "CHECKOUT_NEEDED"
    template = "{what} is part of Lockstep's source tree and not of the installed package."
    advice = "Clone the repository, run `make setup` in it, and give the command there."


class CronInvalid(UsageError, ValueError):
    """A cron expression that is not valid in its dialect; `params["reason"]` is the sentence of cron-utils."""

    code = "CRON_INVALID"
    template = "The {dialect} expression {expression!r} is not valid{place}: {reason}{stop}"
    advice = "Correct it; 'lockstep cron check' tries an expression, docs/reference/cron.md has the fields."

    def __init__(self, **params: object) -> None:
        stop = "" if str(params.get("reason")).endswith((".", "!")) else "."
        super().__init__(**{"stop": stop, **params})


class ZoneUnknown(UsageError, ValueError):
    """No time zone of that name."""

    code = "ZONE_UNKNOWN"
    template = "Time zone {name!r} does not exist."
    advice = "{cure}"


class NotFound(LockstepError, LookupError):
    """Something named does not exist."""

    code, exit_code = "NOT_FOUND", 3
    template, advice = "{what} {name!r} does not exist.", "Check how it is spelled."


class PathMissing(NotFound):
    """A file or folder that is not there."""

    code = "PATH_MISSING"
    template = "The path {path!r} can't be used: {reason}."
    advice = "Check how it is written, and that the folder exists."


class ProfileNotFound(NotFound):
    """No profile of that name in the configuration file of the command line."""

    code = "PROFILE_NOT_FOUND"
    template = "Profile {name!r} does not exist. Profiles in {path}: {known}."
    advice = "Add it there as [profiles.NAME], or choose another with --profile or LOCKSTEP_PROFILE."


class StreamNotFound(NotFound):
    """No stream of that name on this bus."""

    code = "STREAM_NOT_FOUND"
    template = "Stream {name!r} does not exist on {bus}."
    advice = "{cure}."
    _group_logs: ClassVar[str] = "_group."

    def __init__(self, **params: object) -> None:
        name = str(params.get("name"))
        cure = f"See what exists with 'lockstep stream ls', or create it with 'lockstep stream create {name}'"
        if name.startswith(self._group_logs):
            group = name.removeprefix(self._group_logs)
            cure = f"Group {group!r} was deleted; open its subscribers again to begin it anew"
        super().__init__(**{"cure": cure, **params})


class GroupNotFound(NotFound):
    """No group of that name on this bus."""

    code = "GROUP_NOT_FOUND"
    template = "Group {name!r} does not exist on {bus}."
    advice = "See what exists with 'lockstep group ls'."


class SchedulerNotFound(NotFound):
    """A client asked for a scheduler that no node has set up on this bus."""

    code = "SCHEDULER_NOT_FOUND"
    template = "Scheduler {name!r} does not exist on {bus}."
    advice = "Start a node first: 'lockstep schedule serve --name {name}', or bus.scheduler({name!r})."


class StoreNotFound(NotFound):
    """The folder of an embedded bus is missing."""

    code = "STORE_NOT_FOUND"
    template = "There is no store in {path}."
    advice = "Check the path; 'lockstep stream create NAME --bus lmdb:FOLDER' makes a new store."


class ParentMissing(StoreNotFound):
    """The folder in which a new embedded bus is to be made does not exist."""

    code = "PARENT_MISSING"
    template = "The store {path} can't be created: the folder {parent} does not exist."
    advice = "Create that folder first, or check the path."


class RecordNotFound(NotFound):
    """No record at that offset."""

    code = "RECORD_NOT_FOUND"
    template = "Stream {stream} has no record at offset {offset}."
    advice = "Offsets may have gaps; read from it to get the next record."


class PositionNotFound(NotFound):
    """A group without a stored position was opened with initial='none'."""

    code = "POSITION_NOT_FOUND"
    template = "Group {group!r} has no stored position on {stream} and may not choose one (initial='none')."
    advice = "Use initial='earliest' or 'latest', or set one with 'lockstep group reset'."


class Conflict(LockstepError):
    """The state of the bus says no."""

    code, exit_code = "CONFLICT", 4
    template, advice = "{reason}", ""


class StreamExists(Conflict):
    """A stream of that name is there already."""

    code = "STREAM_EXISTS"
    template = "Stream {name!r} exists already."
    advice = "Choose another name, or leave out --new to use it."


class ConfigMismatch(Conflict):
    """A stream was opened with a configuration that differs from the stored one."""

    code = "CONFIG_MISMATCH"
    template = "{what} {name!r} has {field} = {stored!r}, not {given!r}."
    advice = "Open it without a configuration to use the stored one{otherwise}."


class StoreMismatch(Conflict):
    """A node or client of a scheduler was given another store than the one that has its rows."""

    code = "STORE_MISMATCH"
    template = "Scheduler {name!r} keeps its rows in {known}, and this process was given {given}."
    advice = (
        "Give all nodes and clients the same store: --store, LOCKSTEP_STORE or store=; none for the bus itself. To use"
        " another store from now on, end all nodes and start one with 'lockstep schedule serve --change-store'."
    )


class OffsetConflict(Conflict):
    """A conditional append met another last offset than the one expected."""

    code = "OFFSET_CONFLICT"
    template = "Stream {stream} ends at offset {actual}, not {expected}."
    advice = "Read what was added, decide again, and retry with the new last offset. Nothing was written."


class Fenced(Conflict):
    """Somebody else owns what this process thought it owned."""

    code = "FENCED"
    template = "Member {member} of group {group!r} does not own {stream} in epoch {epoch}: {reason}."
    advice = "Drop the work at hand; its records are delivered to the new owner."


class GroupBusy(Conflict):
    """An administrative change met a group that is at work."""

    code = "GROUP_BUSY"
    template = "Group {group!r} is at work on {stream} (member {member})."
    advice = "Stop its members first, or force the change."


class IllegalState(Conflict):
    """The call does not fit what the object is or has become."""

    code = "ILLEGAL_STATE"
    template, advice = "{what} can't {action}: {reason}.", ""


class Closed(IllegalState):
    """The object was closed."""

    code = "CLOSED"
    template, advice = "{what} is closed.", "Open a new one."


class ForkedProcess(IllegalState):
    """An embedded bus was used in a child after fork."""

    code = "FORKED_PROCESS"
    template = "The bus {bus} was opened in process {parent} and can't be used in its fork {child}."
    advice = "Open the bus in the child, or start children with the 'spawn' method."


class Forbidden(LockstepError, PermissionError):
    """The operating system says no."""

    code, exit_code = "FORBIDDEN", 5
    template = "{path} can't be {action}: {reason}."
    advice = "Check the owner and mode of the folder."


class ServerRefused(Forbidden):
    """A server knows us, and says no: a wrong password, or a right that is missing."""

    code = "SERVER_REFUSED"
    template = "The server {server} refused: {reason}."
    advice = "Check user, password and rights; see docs/reference/urls.md for where they are given."


class Unavailable(LockstepError):
    """Not now, or not here."""

    code, exit_code = "UNAVAILABLE", 6
    template, advice = "{reason}", "Try again later."


class TimedOut(Unavailable, TimeoutError):
    """Something did not finish in the time given."""

    code = "TIMED_OUT"
    template = "{what} did not finish within {seconds:g} s."
    advice = "It may still finish: treat the outcome as unknown."


class NoRoom(TimedOut):
    """The publisher's buffer stayed full for as long as publish() may wait."""

    code = "NO_ROOM"
    template = "The buffer of the publisher to {stream} had no room within {seconds:g} s."
    advice = "The record was not queued: publish it again, slower, or raise buffer_records or buffer_bytes."


class BufferFull(Unavailable):
    """The publisher's buffer is full and may not wait."""

    code = "BUFFER_FULL"
    template = "The buffer of the publisher to {stream} holds {records} records, {bytes} bytes, and is full."
    advice = "The record was not queued. Publish slower, raise buffer_records or buffer_bytes, or let it block."


class Dropped(Unavailable):
    """The buffer was full, and its policy drops the oldest."""

    code = "DROPPED"
    template = "The record was dropped from the full buffer of the publisher to {stream}."
    advice = "Publish slower, raise the buffer, or choose when_full='block'."


class PublishFailed(Unavailable):
    """Records that were published and not stored, without anybody having looked at their receipts."""

    code = "PUBLISH_FAILED"
    template = "{count} records published to {stream} were not stored; the first failed with: {reason}"
    advice = "Keep the receipts or give a callback to know which; publish those again whose outcome is not unknown."


class StoreFull(Unavailable):
    """No room: the map, the disk, or the ceiling of a protected stream."""

    code = "STORE_FULL"
    template = "{stream} can't take the records: {reason}."
    advice = "Trim streams, free disk space or raise the limit; readers go on. Nothing was written."


class StoreBroken(Unavailable):
    """The store failed in a way that needs a fresh look at the disk."""

    code = "STORE_BROKEN"
    template = "The store {path} failed: {reason}."
    advice = "Stop writing, check the disk, run 'lockstep stream verify', then open it again."


class AppendUncertain(Unavailable):
    """An append whose acknowledgement was lost: it may have landed, may land late, or not at all."""

    code = "APPEND_UNCERTAIN"
    template = "The append to {stream} was not acknowledged: {reason}."
    advice = "It may be stored or not: read the end of the stream before you publish the records again."


class UnsupportedByBackend(Unavailable):
    """This bus can't do that, and nothing pretends it can."""

    code = "UNSUPPORTED_BY_BACKEND"
    template = "The bus {bus} can't {feature}."
    advice = "See bus.promises for what it can do."


class OutboxBlocked(Unavailable):
    """Records that a scheduler has fired can't be published, and wait in its store."""

    code = "OUTBOX_BLOCKED"
    template = "Fired events of scheduler {name!r} wait, because stream {stream!r} does not take them: {reason}"
    advice = "Give the scheduler the right to publish there, or raise the stream's limits; it goes on by itself."


class ServerUnreachable(Unavailable):
    """Nobody answers at an address, or no longer."""

    code = "SERVER_UNREACHABLE"
    template = "The server {server} does not answer: {reason}."
    advice = "Check the address and that the server runs; 'lockstep dev up' starts one to try."


class ServerUnfit(Unavailable):
    """A server, or a topic on it, is not what the promises need."""

    code = "SERVER_UNFIT"
    template = "{server} can't be used: {reason}."
    advice = "Change {setting}."


class DataError(LockstepError):
    """Stored data is not what it should be."""

    code = "DATA"
    template, advice = "{reason}", ""


class TakenBack(DataError):
    """A record that was read is gone, or another one stands there: a server failed before its copies had it."""

    code = "TAKEN_BACK"
    template = "{what} of stream {stream!r} were read, and another record is there now, or none: {reason}."
    advice = "Seek to offset {offset} or before it, and read on from there."


class BatchDamaged(DataError):
    """A stored batch fails its checksum or does not parse."""

    code = "BATCH_DAMAGED"
    template = "The batch at offset {offset} of {stream} is damaged: {reason}."
    advice = "Run 'lockstep stream verify {stream}'; restore it from a replica, or seek past the batch on purpose."


class FormatTooNew(DataError):
    """Data written by a newer version."""

    code = "FORMAT_TOO_NEW"
    template = "{what} has format {found}, and this version reads up to {known}."
    advice = "Upgrade lockstep on this machine. Nothing was skipped."


class NotAStore(DataError):
    """A file or folder that is not an embedded store."""

    code = "NOT_A_STORE"
    template = "{path} is not a Lockstep store: {reason}."
    advice = "Give the folder of a store, or an empty or new folder."


class Trimmed(DataError):
    """The records asked for are gone by retention."""

    code = "TRIMMED"
    template = "Offset {offset} of {stream} was trimmed; the first readable one is {first}."
    advice = "Seek to it, choose on_gap='skip', or give the stream a history store."


class GroupGap(Trimmed):
    """A group was too slow, or away for too long: retention removed records that it had not read."""

    code = "GROUP_GAP"
    template = (
        "Group {group!r} missed {count} offsets of {stream}: {offset} to {last} were trimmed before it read them; "
        "the first readable offset is {first}."
    )
    advice = (
        "To go on without them, run 'lockstep group reset {group} {stream} --to earliest' or open the subscriber with "
        "on_gap='skip'. To prevent it, give the stream more retention, protect=True or a history."
    )


class DecodeFailed(DataError):
    """A value could not be turned into an object."""

    code = "DECODE_FAILED"
    template = "The {part} of record {offset} of {stream} can't be decoded: {reason}."
    advice = "Read the stream as bytes to look at it."


class HandlerFailed(DataError):
    """A handler failed and its policy says stop."""

    code = "HANDLER_FAILED"
    template = "The handler failed on record {offset} of {stream} after {attempts} attempts: {reason}."
    advice = "Fix the handler, or let failed records go to a dead-letter stream."


class DeliveryRefused(DataError):
    """An item of an outbox that can't be carried out, however often it is tried. Handlers raise it to say so."""

    code = "DELIVERY_REFUSED"
    template = "The item can't be carried out: {reason}."
    advice = "It goes to the dead letters; mend what is wrong there, and send it back."


class SystemFailed(Unavailable):
    """The operating system refused something, for another reason than a missing path or a missing right."""

    code = "SYSTEM_FAILED"
    template = "The operating system refused {path}: {reason}."
    advice = "Check the disk, the network and the limits of this user (ulimit -a), and try again."


_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)
_REFUSED = (errno.EACCES, errno.EPERM, errno.EROFS)


def from_os_error(error: OSError, path: str | None = None) -> LockstepError:
    """The error of this tree that an error of the operating system means; `path` is what the user named."""
    place, reason = path or error.filename or "a call", error.strerror or str(error)
    made: LockstepError
    if error.errno in _MISSING:
        made = PathMissing(path=str(place), reason=reason)
    elif error.errno in _REFUSED:
        made = Forbidden(path=str(place), action="used", reason=reason)
    else:
        made = SystemFailed(path=str(place), reason=reason)
    made.__cause__ = error
    return made
