"""What processes tell each other is numbers and JSON, and means the same where it arrives."""

import json

import pytest

from firehose.errors import FirehoseError, Stopped
from firehose.parallel.group import _result, _told

ERRORS = [
    (FirehoseError("The disk is full."), FirehoseError),
    (Stopped("Stopped."), FirehoseError),
    (FileNotFoundError(2, "No such file", "corpus"), FileNotFoundError),
    (ZeroDivisionError("by zero"), ArithmeticError),
    (MemoryError(), MemoryError),
]


@pytest.mark.parametrize(("error", "kind"), ERRORS)
def test_an_error_of_the_first_process_is_raised_in_all(
    error: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(kind) as raised:
        _result(json.dumps(_told(error)))
    assert str(raised.value) == str(error)


def test_a_defect_is_told_as_such() -> None:
    with pytest.raises(RuntimeError, match="the first process failed: KeyError"):
        _result(json.dumps(_told(KeyError("x"))))


def test_a_result_is_what_it_was() -> None:
    assert _result(json.dumps({"result": {"a": [1.5, None]}})) == {"a": [1.5, None]}
