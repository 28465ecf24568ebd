"""Lines of the log: text and JSON, with ids, bounded, without secrets."""

import errno
import json
import logging
import os
from contextvars import copy_context
from typing import Any

import pytest

from app_server.observability.log_context import MAX_ID_CHARS, REQUEST, THREAD, TURN, add_ids
from app_server.observability.log_lines import (
    MAX_CHARS,
    MAX_FAILURES,
    LineFormatter,
    LogFormat,
)
from tests.support.harness import claim

SECRET = "hunter2-Zx9_qwerty"


def record(message: str, *arguments: Any, failure: BaseException | None = None) -> Any:
    info = None if failure is None else (type(failure), failure, failure.__traceback__)
    made = logging.LogRecord(
        "app_server.mcp.client", logging.WARNING, "f.py", 1, message, arguments, info
    )
    made.created = 1_700_000_000.25
    return made


def render(log_format: LogFormat, made: logging.LogRecord) -> str:
    add_ids(made)
    return LineFormatter(log_format, {"MY_TOKEN": SECRET}).format(made)


def within(log_format: LogFormat, made: logging.LogRecord, request_id: str | int = 7) -> str:
    def work() -> str:
        REQUEST.set((3, request_id, "turn/start"))
        THREAD.set("t1")
        TURN.set("u1")
        return render(log_format, made)

    return copy_context().run(work)


def test_a_line_of_text_says_when_what_where_and_for_whom() -> None:
    assert render("text", record("hello %s", "you")) == (
        "2023-11-14T22:13:20.250000Z WARNING app_server.mcp.client: hello you"
    )
    assert within("text", record("hello")) == (
        "2023-11-14T22:13:20.250000Z WARNING app_server.mcp.client: connectionId=3 requestId=7 "
        "method=turn/start threadId=t1 turnId=u1 hello"
    )


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_that_refuses_is_no_traceback(number: int) -> None:
    full = OSError(number, os.strerror(number), "/home/x")
    for failure in (full, ExceptionGroup("group", [full])):
        line = render("text", record("handler failed", failure=failure))
        said = f"OSError: [Errno {number}] {os.strerror(number)}"
        assert line.partition("handler failed\n\t")[2] == said
    assert "ExceptionGroup" in render(
        "text", record("x", failure=ExceptionGroup("g", [full, full]))
    )
    other = OSError(errno.EBADF, os.strerror(errno.EBADF))
    try:
        raise other
    except OSError:
        assert "Traceback" in render("text", record("x", failure=other))


def test_a_line_of_json_has_the_members_of_codex_and_the_ids() -> None:
    assert json.loads(within("json", record("hello\nyou"))) == {
        "timestamp": "2023-11-14T22:13:20.250000Z",
        "level": "WARN",
        "target": "app_server.mcp.client",
        "fields": {"message": "hello\nyou"},
        "connectionId": 3,
        "requestId": 7,
        "method": "turn/start",
        "threadId": "t1",
        "turnId": "u1",
    }
    assert "\n" not in within("json", record("hello\nyou"))


def test_what_a_client_sends_cannot_look_like_a_line_of_the_log() -> None:
    line = within("text", record("a\n2023 ERROR forged"), "x y\n2023 ERROR forged")
    assert [part[0] for part in line.split("\n")[1:]] == ["\t"]
    assert 'requestId="x y\\n2023 ERROR forged" method' in line


def test_terminals_obey_nothing_of_a_line() -> None:
    assert render("text", record("a\rb\tc\x1b[2J")) == (
        "2023-11-14T22:13:20.250000Z WARNING app_server.mcp.client: a\\x0db\tc\\x1b[2J"
    )
    line = render("json", record("a\rb\x7f\x9b2J"))
    assert json.loads(line)["fields"] == {"message": "a\rb\x7f\x9b2J"}
    assert line.isprintable()


def failing(content: str) -> BaseException:
    """Raise a failure of each kind, one after the other, with content in their texts."""
    with pytest.raises(ExceptionGroup) as caught:
        try:
            try:
                raise OSError(28, content, content)
            except OSError:
                int(content)
        except ValueError as exc:
            raise ExceptionGroup(content, [KeyError(content), OSError(content)]) from exc
    caught.value.add_note(content)
    return caught.value


@claim("log:content")
def test_a_failure_is_shown_by_place_and_class_and_without_its_text() -> None:
    line = json.loads(render("json", record("said", failure=failing("planted"))))
    shown = [one for one in line["fields"]["exception"].splitlines() if not one.startswith("  ")]
    assert shown == [
        "Traceback (most recent call last):",
        "OSError: [Errno 28] No space left on device",
        "which led to:",
        "Traceback (most recent call last):",
        "ValueError",
        "which led to:",
        "Traceback (most recent call last):",
        "ExceptionGroup",
    ]
    assert line["fields"]["exception"].endswith("ExceptionGroup\n  | KeyError\n  | OSError")
    assert "planted" not in json.dumps(line)


def test_failures_that_lead_to_each_other_are_shown_once() -> None:
    one, other = ValueError(), KeyError()
    one.__context__, other.__context__ = other, one
    line = json.loads(render("json", record("said", failure=one)))
    assert line["fields"]["exception"] == "KeyError\nwhich led to:\nValueError"


def test_secrets_are_in_no_part_of_a_line() -> None:
    said = "https://h/?k=%s with Authorization: Bearer %s"
    for log_format in ("text", "json"):
        line = within(log_format, record(said, SECRET, SECRET), f"id-{SECRET}")
        assert SECRET not in line
        assert "https://h/?*** with Authorization: " in line


def test_messages_tracebacks_and_ids_are_cut() -> None:
    failure: BaseException = ExceptionGroup("", [ValueError()] * 3)
    for _ in range(3 * MAX_FAILURES):
        failure = BaseExceptionGroup("", [failure, KeyError()])
    line = json.loads(within("json", record("x" * 3 * MAX_CHARS, failure=failure), "i" * 999))
    assert line["fields"]["message"] == "x" * (MAX_CHARS - 1) + "…"
    assert line["fields"]["exception"].count("Group") == MAX_FAILURES
    assert line["requestId"] == "i" * MAX_ID_CHARS
