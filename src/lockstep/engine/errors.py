"""Errors of the engine, in the tree of lockstep.errors.

UsageError                                         exit 2
  BadSchema BadExpression ModelInvalid ModelUnreadable ModelUnwritable NotShardable SparkSettingRefused BadEventText
NotFound                                           exit 3
  WindowNotFound FileMissing ProjectNotStated
Conflict                                           exit 4
  ModelMismatch SparkInUse EngineRunning RequestRefused SourceDiffers PositionForeign ModelNotReplaceable
  NoStandby PublishersActive NameTaken SourceUnfit SourceReplaced
Unavailable                                        exit 6
  SparkUnavailable SparkNotStarted StateNotShared SparkFailed ComputeFailed LogTooShort BusNotShared
  FileUnwritable
  SnapshotFolderUnusable HistoryTrimmed BatchTooLarge RequestTimedOut (TimedOut)
DataError                                          exit 1
  FrameDamaged SnapshotDamaged UserCodeFailed OutputBroken OutputDiffers BlocksMissing RowsLost ValueUnfit InputChanged
  BufferGap BufferDamaged SequenceBroken LogShortened SnapshotRefused OutputWithoutStream NoLineTaken
"""

from __future__ import annotations

from lockstep.errors import Conflict, DataError, NotFound, TimedOut, Unavailable, UsageError


class BadSchema(UsageError, ValueError):
    """A schema that can't be."""

    code = "BAD_SCHEMA"
    template = "The schema {text!r} is not valid: {reason}."
    advice = "Write NAME:TYPE for each field, with a star after the names of the key: ID*:int32,symbol:string."


class BadExpression(UsageError, ValueError):
    """An expression that can't be parsed, or does not fit the fields it is used on."""

    code = "BAD_EXPRESSION"
    template = "The expression {text!r} is not valid at character {at}: {reason}."
    advice = "{remedy}"


class ModelUnreadable(UsageError):
    """A model file that is not YAML or XML of the known form."""

    code = "MODEL_UNREADABLE"
    template = "The model {source} can't be read: line {line}, column {column}: {reason}."
    advice = "{remedy}"


class ModelUnwritable(UsageError):
    """A model that holds something the wanted form has no place for."""

    code = "MODEL_UNWRITABLE"
    template = "The model can't be written as {form}: {reason}."
    advice = "Change that, or write it in another form."


class ModelInvalid(UsageError):
    """A model with faults; all of them are listed."""

    code = "MODEL_INVALID"
    template = "The model {name} has {count} fault(s):\n{faults}\n"
    advice = "Fix them and check again with 'lockstep model check'."


class NotShardable(UsageError):
    """More shards were asked for than the plan allows."""

    code = "NOT_SHARDABLE"
    template = "The model {name} can't be split into {shards} shards: {reason}."
    advice = "Run it with --shards 1; 'lockstep model explain' shows the plan."


class SparkSettingRefused(UsageError):
    """A setting of Spark's with which an engine does not work."""

    code = "SPARK_SETTING_REFUSED"
    template = "The Spark setting {name}={value} can't be used: {reason}."
    advice = "Leave it out, or change it."


class BadEventText(UsageError, ValueError):
    """An event line that can't be understood."""

    code = "BAD_EVENT_TEXT"
    template = "{source}, line {line}: {reason}."
    advice = "Write opcode,flag,fields... with an opcode of I, U, P, D or S."


class WindowNotFound(NotFound):
    """No window of that name in the model, or several."""

    code = "WINDOW_NOT_FOUND"
    template = "The model {model} has no {what} {name!r}."
    advice = "It has: {known}."


class FileMissing(NotFound):
    """A file that is to be read does not exist or can't be opened."""

    code = "FILE_MISSING"
    template = "The file {path!r} can't be read: {reason}."
    advice = "Check the path. Nothing was run."


class ModelMismatch(Conflict):
    """State of another model."""

    code = "MODEL_MISMATCH"
    template = "The state in {place} belongs to something else: it was made for {found}, this is {wanted}."
    advice = (
        "Run the model it was made with; to change the model of a project, start that one and use "
        "'lockstep engine replace'. A --state folder of another project can't be used: give another."
    )


class SparkInUse(Conflict):
    """This process has Spark at work already."""

    code = "SPARK_IN_USE"
    template = "Spark can't be started here: {reason}."
    advice = "Give the session to the engine: EngineOptions(session=spark). It runs there, and never stops it."


class EngineRunning(Conflict):
    """Another engine uses the same state."""

    code = "ENGINE_RUNNING"
    template = "Another engine (pid {pid}) uses {place}."
    advice = "Stop it first, or wait until it has ended."


class SparkUnavailable(Unavailable):
    """Spark can't be started here."""

    code = "SPARK_UNAVAILABLE"
    template = "Spark can't be started: {reason}."
    advice = (
        "It needs Java 17 or newer (apt-get install openjdk-17-jre-headless; set JAVA_HOME if it is elsewhere), and a "
        "Python and folders that this user may run, read and write."
    )


class SparkNotStarted(Unavailable):
    """Spark is there, and refused to start, or could not reach its master."""

    code = "SPARK_NOT_STARTED"
    template = "Spark did not start with master {master}: {reason}."
    advice = (
        "Check that the master can be reached from here, and the settings given with --conf. Its own words: {words}."
    )


class StateNotShared(Unavailable):
    """Workers on other hosts can't leave their results for the driver."""

    code = "STATE_NOT_SHARED"
    template = "Spark's workers on {hosts} do not see the folder {folder}, where they leave their results."
    advice = "Give --state a folder that the driver and all workers share."


class SparkFailed(Unavailable):
    """The query ended with an error that is not ours."""

    code = "SPARK_FAILED"
    template = "The Spark query of {project} failed: {reason}."
    advice = "Run the command again with --verbose to see Spark's own words; state is as before the failed batch."


class ComputeFailed(Unavailable):
    """A batch in the engine's own process failed for a reason outside of it: the disk, memory."""

    code = "COMPUTE_FAILED"
    template = "A batch of {project} failed: {reason}."
    advice = "Check the disk of the engine's --state folder; state is as before the failed batch."


class LogTooShort(Unavailable):
    """A log keeps less than a window needs."""

    code = "LOG_TOO_SHORT"
    template = "{window} needs {stream} from offset {needed} on, but it begins at {first}."
    advice = "Give the stream a longer retention, or begin anew with another --state folder."


class BusNotShared(Unavailable):
    """Workers on other hosts can't reach the bus."""

    code = "BUS_NOT_SHARED"
    template = "The bus {url} can be opened on host {host} only, and this worker runs on {other}."
    advice = "Use a network bus, or a Spark master whose workers are on one host."


class FileUnwritable(Unavailable):
    """A file that is to be written can't be: a full disk."""

    code = "FILE_UNWRITABLE"
    template = "The file {path!r} can't be written: {reason}."
    advice = "Free disk space or choose another place. Nothing was left behind."


class FrameDamaged(DataError):
    """Bytes that are not an event frame, or a broken one."""

    code = "FRAME_DAMAGED"
    template = "The event frame at {place} can't be read: {reason}."
    advice = "Check that the stream is an event stream, and the store with 'lockstep stream verify'."


class SnapshotDamaged(DataError):
    """A snapshot that fails its checks."""

    code = "SNAPSHOT_DAMAGED"
    template = "The snapshot {place} can't be used: {reason}."
    advice = "Begin anew with another --state folder: the answer is computed again from the log."


class UserCodeFailed(DataError):
    """A handler, plug or function of the user raised an error."""

    code = "USER_CODE_FAILED"
    template = "{what} of window {window} failed on block {block}, event {event}: {reason}."
    advice = "Fix it and start again: state is as before this block, nothing of it was published."


class NoLineTaken(DataError):
    """Input of which not one line is an event."""

    code = "NO_LINE_TAKEN"
    template = "Not one of {count} lines of {files} is an event: {reasons}."
    advice = "Compare a line with the schema of the window: the number of fields, the date format, opcode and flag."


class RowsLost(DataError):
    """Rows that a Spark program was to read are no longer there."""

    code = "ROWS_LOST"
    template = "Offsets {first} to {last} of {stream} can't be read: {reason}."
    advice = "Give the stream a longer retention, or go on without them with option failOnDataLoss=false."


class OutputBroken(DataError):
    """An out stream does not go on where it ended."""

    code = "OUTPUT_BROKEN"
    template = "Block {number} of {stream} names {previous} before it, but the last one is {last}."
    advice = "Something else wrote to the stream; choose another project name, or delete the stream."


class OutputDiffers(DataError):
    """An out stream, a beat or a saved position is of another sequence than the one at hand."""

    code = "OUTPUT_DIFFERS"
    template = "Block {block} of {stream} was computed from another sequence ({found}) than the one here ({known})."
    advice = (
        "The bus lost records that it had acknowledged. Readers: drop what you derived from this stream and read it "
        "again from its start, without the saved position. Engines: run the project anew under another name."
    )


class LogShortened(DataError):
    """A log ends before what was read from it."""

    code = "LOG_SHORTENED"
    template = "{stream} ends at offset {next}, but it was read up to offset {at} before{block}."
    advice = (
        "The bus lost records that it had acknowledged. Readers: drop what you derived from this stream and read it "
        "again from its start, without the saved position. Engines: begin anew with another --state folder."
    )


class ValueUnfit(DataError):
    """A value of a window that a data frame has no type for."""

    code = "VALUE_UNFIT"
    template = "A value of field {field} of {window} can't be shown as {kind}: {reason}."
    advice = "Read times as numbers with option times=integers, or leave the field out with option columns."


class InputChanged(DataError):
    """An input no longer holds what the sequence log says of it."""

    code = "INPUT_CHANGED"
    template = "An input of {stream} does not hold what it held when block {block} was decided."
    advice = "The bus lost or changed acknowledged records. Restore a snapshot and replay, or begin anew."


class SourceUnfit(Conflict):
    """A source that can't tell the records of its stream apart."""

    code = "SOURCE_UNFIT"
    template = "{stream} has {shards} shards, in which offsets repeat, and the key of {window} is the offset alone."
    advice = "Add the shard to the key: shard*:int32,offset*:int64, or record_shard and record_offset with decode."


class SourceReplaced(Conflict):
    """A stream was deleted and made anew under its name."""

    code = "SOURCE_REPLACED"
    template = "{stream} is not the stream from which {window} took records so far: it was deleted and made anew."
    advice = "Give the source window another name, under which it begins with this stream; or run a new project."


class BufferGap(DataError):
    """A standby's buffer does not hold what is to be published next."""

    code = "BUFFER_GAP"
    template = "Blocks {first} to {last} are to be published, but {place} no longer holds them."
    advice = "The engine computes them again from its last snapshot; somebody removed files of its spool."


class BufferDamaged(DataError):
    """A file of the spool is not what the worker wrote."""

    code = "BUFFER_DAMAGED"
    template = "The spool file {place} can't be published: {reason}."
    advice = "The engine computes its blocks again from its last snapshot. Check the disk below the state folder."


class OutputWithoutStream(DataError):
    """Blocks of a window were computed that no model in force publishes."""

    code = "OUTPUT_WITHOUT_STREAM"
    template = "Blocks {first} to {last} hold output of window {window}, which this engine does not publish."
    advice = "Start the engine again: it computes them anew. If it happens again, please report it."


class SnapshotRefused(DataError):
    """A persisted snapshot that is broken, incomplete or of something else."""

    code = "SNAPSHOT_REFUSED"
    template = "The persisted snapshot {place} can't be used: {reason}."
    advice = "An older good one is used if there is one; it was left as it is."


class SnapshotFolderUnusable(Unavailable):
    """The folder for persisted snapshots is missing, can't be written, or is none."""

    code = "SNAPSHOT_FOLDER_UNUSABLE"
    template = "The snapshot folder {path} can't be used: {reason}."
    advice = "Give one that this user may write to, on a disk with room. Nothing was persisted."


class RequestTimedOut(TimedOut):
    """No engine of the project answered in time."""

    code = "REQUEST_TIMED_OUT"
    template = "The request {kind!r} to project {project} was not answered within {seconds:g} s. Asked: {asked}."
    advice = "It may still be carried out; asked again with the same id, it is carried out once."


class RequestRefused(Conflict):
    """An engine said no, for a reason that this version has no class for."""

    code = "REQUEST_REFUSED"
    template = "The engine {engine} refused the request {kind!r}: {reason}"
    advice = ""


class ProjectNotStated(NotFound):
    """A project whose engines have never led."""

    code = "PROJECT_NOT_STATED"
    template = "Nothing says yet what the model of project {project} in cluster {cluster} is."
    advice = "Its first engine states it as soon as it runs: 'lockstep engine run MODEL'."


class SourceDiffers(Conflict):
    """A publisher of a failover group reads something else than those before it."""

    code = "SOURCE_DIFFERS"
    template = "Block {id} of group {group} is not what was published under that number: {reason}."
    advice = "All adapters of a group must read the same source from its start. It did not become active."


class PositionForeign(Conflict):
    """A saved position belongs to another stream, or to another way of reading it."""

    code = "POSITION_FOREIGN"
    template = "The saved position is of {found}, this is {wanted}."
    advice = "Go on with what it was made for, or begin anew without it."


class BatchTooLarge(Unavailable):
    """Rows of a data frame of which a bounded stream would keep only the end."""

    code = "BATCH_TOO_LARGE"
    template = (
        "The stream {stream} keeps {bound}={most}, and this batch has {wanted}: the rest would be dropped at once."
    )
    advice = "Nothing was written. Write less at once, or alter the stream: 'lockstep stream alter {stream}'."


class HistoryTrimmed(Unavailable):
    """A reader needs what was trimmed away."""

    code = "HISTORY_TRIMMED"
    template = "{what} needs {stream} from offset {needed} on, but it begins at {first}."
    advice = "Begin with what is there, or with what comes from now on."


class BlocksMissing(DataError):
    """A block was published, and is not on its stream."""

    code = "BLOCKS_MISSING"
    template = "{stream} ends with block {last}, but block {wanted} was published to it more than {seconds:g} s ago."
    advice = "The bus lost it, or it was trimmed before it was read."


class ModelNotReplaceable(Conflict):
    """A model that can't take the place of the one that runs while it runs."""

    code = "MODEL_NOT_REPLACEABLE"
    template = "The model of {project} can't be replaced while it runs, for {count} reason(s):\n{reasons}\n"
    advice = "Stop engines, publishers and subscribers, and run the new model under another cluster or project name."


class NoStandby(Conflict):
    """Nobody could take over."""

    code = "NO_STANDBY"
    template = "No standby of {project} is in step; {engine} goes on leading."
    advice = "Start another engine with the same model, and wait until 'lockstep status' shows it as standby."


class PublishersActive(Conflict):
    """Something still comes in."""

    code = "PUBLISHERS_ACTIVE"
    template = "Somebody is publishing to {stream}: the day can't begin."
    advice = "Stop the publishers first, or use --force."


class NameTaken(Conflict):
    """Two engines of a project have one name."""

    code = "NAME_TAKEN"
    template = "Another engine (pid {pid} on {host}) of project {project} is called {name!r}."
    advice = "Give each engine a --name of its own. The one that runs goes on."


class SequenceBroken(DataError):
    """A sequence log that is not the one its leaders read."""

    code = "SEQUENCE_BROKEN"
    template = "Entry {number} stands on {stream} where the last one that counts is {last}: the log lost records."
    advice = "The bus lost what it had acknowledged. Restore a snapshot from before that, or begin anew."
