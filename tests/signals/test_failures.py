"""Which errors end the signals of a thread, and what their receipts say then."""

import pytest

from app_server.config.values import ConfigError
from app_server.signals.recipients import NoRecipient
from app_server.signals.thread_delivery import LASTING, failure_of
from app_server.threads.failures import ThreadArchived, ThreadDamaged, ThreadNotFound, ThreadTooNew

NEWER = "a newer version of this server wrote the thread"
DAMAGED = "the log of the thread is damaged in its first line"


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NoRecipient("threadArchived", "archived", "put away"), "threadArchived", "put away"),
        (ThreadNotFound("t"), "threadNotFound", "the thread is gone"),
        (ThreadArchived("t"), "threadArchived", "thread t is archived"),
        (ThreadTooNew("t"), "threadNotLoadable", NEWER),
        (ThreadDamaged("t"), "threadNotLoadable", DAMAGED),
        (ConfigError("`model` must be a string"), "threadNotLoadable", "`model` must be a string"),
    ],
)
def test_a_lasting_error_has_one_code_and_one_text(error: Exception, code: str, text: str) -> None:
    assert isinstance(error, LASTING)
    assert failure_of(error, "t") == (code, text)


def test_errors_that_pass_are_not_lasting() -> None:
    assert not any(issubclass(error, LASTING) for error in (OSError, TimeoutError, LookupError))
