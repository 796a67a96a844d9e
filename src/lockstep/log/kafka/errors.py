"""What the errors of Kafka mean to us."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from lockstep.errors import LockstepError, ServerRefused, ServerUnfit, ServerUnreachable, StoreFull
from lockstep.log.network.driver import TopicGone

_K = KafkaError
GONE = frozenset({_K.UNKNOWN_TOPIC_OR_PART, _K._UNKNOWN_TOPIC, _K._UNKNOWN_PARTITION})
"""The topic may be gone; the client also says so of one whose broker is away."""
TOO_LARGE = frozenset({_K.MSG_SIZE_TOO_LARGE, _K.RECORD_LIST_TOO_LARGE})
OUT_OF_RANGE = frozenset({_K._AUTO_OFFSET_RESET, _K.OFFSET_OUT_OF_RANGE})
TRANSIENT = frozenset({
    _K._TRANSPORT, _K._ALL_BROKERS_DOWN, _K._RESOLVE, _K._NOENT, _K._WAIT_COORD, _K._TIMED_OUT, _K._TIMED_OUT_QUEUE,
    _K.LEADER_NOT_AVAILABLE, _K.NOT_LEADER_FOR_PARTITION, _K.BROKER_NOT_AVAILABLE, _K.REPLICA_NOT_AVAILABLE,
    _K.NETWORK_EXCEPTION, _K.REQUEST_TIMED_OUT, _K.NOT_CONTROLLER, _K.FENCED_LEADER_EPOCH, _K.UNKNOWN_LEADER_EPOCH,
    _K.OFFSET_NOT_AVAILABLE, _K.COORDINATOR_LOAD_IN_PROGRESS, _K.COORDINATOR_NOT_AVAILABLE, _K.NOT_COORDINATOR,
    _K.PREFERRED_LEADER_NOT_AVAILABLE, _K._DESTROY_BROKER,
})  # fmt: skip
"""What may be over in a moment."""
LOGIN = frozenset({_K._AUTHENTICATION, _K.SASL_AUTHENTICATION_FAILED, _K.UNSUPPORTED_SASL_MECHANISM})
_RIGHTS = frozenset({
    _K.TOPIC_AUTHORIZATION_FAILED, _K.GROUP_AUTHORIZATION_FAILED, _K.CLUSTER_AUTHORIZATION_FAILED,
    _K.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
})  # fmt: skip
REFUSED = LOGIN | _RIGHTS
_OLD = frozenset({_K._UNSUPPORTED_FEATURE, _K.UNSUPPORTED_VERSION, _K.UNSUPPORTED_FOR_MESSAGE_FORMAT})
_OWN_SETTING = {
    _K.POLICY_VIOLATION: "the policy of the server for topics, or what is asked for",
    _K.INVALID_REPLICATION_FACTOR: "the option replication, or start more brokers",
    _K.INVALID_CONFIG: "the options of the URL",
    _K.TOPIC_EXCEPTION: "the name of the stream, or the option prefix",
}
_DISK = frozenset({_K.KAFKA_STORAGE_ERROR})
NOT_STORED = REFUSED | _OLD | TOO_LARGE | frozenset({_K.INVALID_RECORD, _K.INVALID_TIMESTAMP, *_OWN_SETTING})
"""A message that is answered so is not stored, for certain."""


def error_of(raised: KafkaException) -> KafkaError:
    """The error in an exception of the client."""
    error = raised.args[0]
    assert isinstance(error, KafkaError), "every exception of the client carries its error"
    return error


def translated(error: KafkaError, server: str) -> LockstepError | TopicGone:
    """The error of ours that says the same."""
    code, text = error.code(), _sentence(error)
    if code in GONE:
        return TopicGone(text)
    if code in REFUSED:
        return ServerRefused(server=server, reason=text)
    if code in _DISK:
        return StoreFull(stream=f"The server {server}", reason=f"{text}; see the disks of its log.dirs")
    if code in _OLD:
        return ServerUnfit(server=server, reason=f"{text}: it is too old", setting="the server: use a newer Kafka")
    if code in _OWN_SETTING:
        return ServerUnfit(server=server, reason=text, setting=_OWN_SETTING[code])
    return ServerUnreachable(server=server, reason=text)


def _sentence(error: KafkaError) -> str:
    return error.str().strip().rstrip(".").replace("\n", " ")
