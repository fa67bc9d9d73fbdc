"""Error codes are Kafka's, and errors say what they are."""

import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from moldau.model.errors import ErrorCode, KafkaError, MalformedMessage

DUMP_ERRORS = Path(__file__).parent.parent / "kafka" / "DumpErrors.java"


def test_names_numbers_and_retriability_are_those_of_kafka(run_java: Callable[..., str]) -> None:
    ours = {f"{code.name} {code.value} {str(code.is_retriable).lower()}" for code in ErrorCode}
    assert ours == set(run_java(DUMP_ERRORS.read_text()).splitlines())


def test_a_code_is_found_by_its_number_and_is_one() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert int(ErrorCode.UNKNOWN_SERVER_ERROR) == -1
    with pytest.raises(ValueError):
        ErrorCode(4242)


@pytest.mark.parametrize("code", ErrorCode)
def test_every_code_has_a_sentence_of_its_own(code: ErrorCode) -> None:
    assert code.message.endswith(".")
    assert [other for other in ErrorCode if other.message == code.message] == [code]


def test_an_error_speaks_for_itself_unless_told_what_to_say() -> None:
    assert str(KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)) == "GROUP_ID_NOT_FOUND (69): There is no such group."
    told = KafkaError(ErrorCode.INVALID_REQUEST, "Twice the same topic.")
    assert told.message == "Twice the same topic."
    assert str(told) == "INVALID_REQUEST (42): Twice the same topic."


def test_an_error_survives_pickling() -> None:
    copy = pickle.loads(pickle.dumps(KafkaError(ErrorCode.INVALID_REQUEST, "Twice the same topic.")))
    assert (copy.code, copy.message) == (ErrorCode.INVALID_REQUEST, "Twice the same topic.")


def test_malformed_bytes_are_a_value_error_that_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="3 bytes are missing"):
        raise MalformedMessage("3 bytes are missing")
