"""Requests to an exec server: their parameters, and what becomes of their answers. No I/O.

Source: docs/environments.md, "The exec protocol".
"""

from typing import Any, TypeVar

import anyio
from pydantic import ValidationError

from protocol.errors import ErrorObject
from protocol.exec_files import MAX_PATH_CHARS
from protocol.exec_server import ExecMessage
from protocol.model import Json, WireModel

Message = TypeVar("Message", bound=WireModel)


class PendingRequest:
    """A request that waits for its answer."""

    def __init__(self) -> None:
        self.settled = anyio.Event()
        self.answered = False
        self.result: Json = None
        self.error: ErrorObject | None = None

    def take(self, message: ExecMessage) -> None:
        """Take the answer."""
        self.answered, self.result, self.error = True, message.result, message.error
        self.settled.set()


def parameters(kind: type[Message], **members: Any) -> Message:
    """Make the parameters of a request whose paths somebody else has chosen.

    Raises:
        OSError: they make no sense.
    """
    try:
        return kind(**members)
    except ValidationError as exc:
        rule = f"an absolute path of at most {MAX_PATH_CHARS} characters, without a null character"
        raise OSError(f"it is not {rule}") from exc


def failure_of(error: ErrorObject) -> OSError:
    """Make an error of the exec server one of this machine; numbers are the other machine's."""
    number = error.data.get("errno") if isinstance(error.data, dict) else None
    return OSError(number, error.message) if isinstance(number, int) else OSError(error.message)


def result_of(kind: type[Message], value: Json) -> Message:
    """Read the result of an answer.

    Raises:
        ConnectionError: it makes no sense.
    """
    try:
        return kind.model_validate(value)
    except ValidationError as exc:
        raise ConnectionError("the exec server gave an answer that makes no sense") from exc
