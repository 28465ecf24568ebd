"""Settings of the log, and its thread: nobody waits for a reader that does not read."""

import io
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from app_server.observability import log
from app_server.observability.log import (
    MAX_MESSAGE_CHARS,
    LogHandler,
    LogSettings,
    read_log_settings,
    set_up_logs,
)
from tests.support.harness import claim


@pytest.mark.parametrize(
    ("environ", "levels", "log_format", "settings"),
    [
        ({}, None, None, LogSettings("warning", {}, "text")),
        ({"LOG_LEVEL": "", "LOG_FORMAT": ""}, None, None, LogSettings("warning", {}, "text")),
        (
            {"LOG_LEVEL": "Debug", "LOG_FORMAT": "JSON"},
            None,
            None,
            LogSettings("debug", {}, "json"),
        ),
        ({"LOG_LEVEL": "debug", "LOG_FORMAT": "json"}, "error", "text", LogSettings("error")),
        (
            {"LOG_LEVEL": "mcp=debug, models/prompt=info,turns.approval=error"},
            None,
            None,
            LogSettings(
                "warning",
                {
                    "app_server.mcp": "debug",
                    "app_server.models.prompt": "info",
                    "app_server.turns.approval": "error",
                },
            ),
        ),
    ],
)
def test_the_command_line_wins_over_the_environment(
    environ: Mapping[str, str], levels: str | None, log_format: str | None, settings: LogSettings
) -> None:
    assert read_log_settings(environ, levels, log_format) == settings


@pytest.mark.parametrize(
    ("environ", "levels", "log_format", "rule"),
    [
        (
            {"LOG_LEVEL": "loud"},
            None,
            None,
            "LOG_LEVEL: `loud` is none of debug, info, warning, error",
        ),
        ({}, "info,mcp=", None, "--log-level: `` is none of debug, info, warning, error"),
        ({"LOG_FORMAT": "xml"}, None, None, "LOG_FORMAT: `xml` is none of text, json"),
        ({}, None, "xml", "--log-format: `xml` is none of text, json"),
    ],
)
def test_a_wrong_setting_names_its_source_and_the_rule(
    environ: Mapping[str, str], levels: str | None, log_format: str | None, rule: str
) -> None:
    with pytest.raises(ValueError, match="is no") as caught:
        read_log_settings(environ, levels, log_format)
    assert str(caught.value) == rule


@pytest.mark.parametrize("folder", ["nowhere", "../tests", "mcp/..", ""])
def test_a_folder_that_is_not_there_is_a_warning_that_names_those_that_are(folder: str) -> None:
    settings = read_log_settings({"LOG_LEVEL": f"info,{folder}=debug,mcp=error"})
    (warning,) = settings.warnings
    assert (settings.level, settings.folders) == ("info", {"app_server.mcp": "error"})
    assert warning.startswith(
        f"LOG_LEVEL: `{folder}` is no folder of the server, which are accounts, acp, apps, cli, "
    )
    assert warning.endswith(", turns, and those in them such as `models/prompt`")


def test_what_is_wrong_with_the_settings_is_logged(capfd: pytest.CaptureFixture[str]) -> None:
    with set_up(LogSettings("error", warnings=["planted"])):
        pass
    assert capfd.readouterr().err == ""
    with set_up(LogSettings("warning", warnings=["planted"])):
        pass
    line = capfd.readouterr().err.split(" ", 1)[1]
    assert line == "WARNING app_server.observability.log: planted\n"


class Stuck(io.StringIO):
    """A stream whose reader does not read until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = threading.Event()
        self.reads = threading.Event()

    def write(self, text: str) -> int:
        self.reached.set()
        assert self.reads.wait(30)
        return super().write(text)


class Broken(io.StringIO):
    """A stream that takes nothing, the first time."""

    failed = False

    def write(self, text: str) -> int:
        if not self.failed:
            self.failed = True
            raise OSError(5, "Input/output error")
        return super().write(text)


@pytest.fixture(name="logger")
def _logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger("app_server.tests.of_the_log")
    logger.propagate = False
    logger.setLevel(logging.DEBUG)
    yield logger
    logger.handlers.clear()


def test_who_logs_waits_for_nobody_and_what_is_dropped_is_counted(logger: logging.Logger) -> None:
    stream = Stuck()
    handler = LogHandler("text", {}, stream, max_waiting=2)
    logger.addHandler(handler)
    logger.info("first")
    assert stream.reached.wait(30)
    for number in range(5):
        logger.info("more %d", number)
    stream.reads.set()
    handler.close()
    messages = [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()]
    assert messages == ["first", "3 lines of the log were dropped", "more 0", "more 1"]


def test_a_stream_and_a_record_that_fail_end_nothing(
    logger: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = Broken()
    handler = LogHandler("text", {}, stream)
    logger.addHandler(handler)
    logger.info("lost")
    wrong = logging.LogRecord(logger.name, logging.INFO, "f.py", 7, "%d %d", ("planted",), None)
    handler.handle(wrong)
    logger.info("said")
    handler.close()
    messages = [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()]
    assert messages == [
        "1 lines of the log were dropped",
        "logged by f.None, line 7",
        "said",
    ]
    assert capsys.readouterr() == ("", "")


def test_the_end_of_a_process_waits_for_a_stuck_stream_for_a_bounded_time(
    logger: logging.Logger,
) -> None:
    stream = Stuck()
    handler = LogHandler("text", {}, stream, max_waiting=1, flush_s=0.01)
    logger.addHandler(handler)
    logger.info("stuck")
    assert stream.reached.wait(30)
    handler.close()
    handler.close()
    stream.reads.set()


def test_the_end_of_a_process_waits_once_for_room_and_for_the_stream_together(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, waits = iter([100.0, 101.5]), list[float | None]()
    wait = threading.Event.wait

    def waited(event: threading.Event, timeout: float | None = None) -> bool:
        waits.append(timeout)
        return wait(event, 0.0 if timeout == 0.5 else timeout)

    stream = Stuck()
    handler = LogHandler("text", {}, stream, flush_s=2.0)
    logger.addHandler(handler)
    logger.info("stuck")
    assert stream.reached.wait(30)
    monkeypatch.setattr(threading.Event, "wait", waited)
    monkeypatch.setattr(log, "time", SimpleNamespace(monotonic=lambda: next(times)))
    handler.close()
    stream.reads.set()
    assert waits == [0.5]


def test_lines_wait_until_what_makes_them_can_be_loaded(
    logger: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no descriptor is left, the lines that say so are the first ones, and were dropped."""
    tries = 0

    def load(find: Any) -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise OSError(24, "Too many open files")
        return find()

    monkeypatch.setattr(log, "load_from_worker", load)
    stream = io.StringIO()
    handler = LogHandler("text", {}, stream, load_again_s=0.001)
    logger.addHandler(handler)
    logger.info("first")
    logger.info("second")
    handler.close()
    messages = [line.split(": ", 1)[1] for line in stream.getvalue().splitlines()]
    assert (messages, tries) == (["first", "second"], 3)


def test_what_waits_of_a_long_message_is_bounded() -> None:
    handler = LogHandler("text", {}, io.StringIO())
    record = logging.LogRecord("app_server", logging.ERROR, "f", 1, "%s", ("x" * 1_000_000,), None)
    handler.handle(record)
    assert record.msg == "x" * MAX_MESSAGE_CHARS
    handler.close()


def test_nothing_is_begun_for_a_process_that_logs_nothing() -> None:
    before = threading.active_count()
    LogHandler("text", {}, io.StringIO()).close()
    assert threading.active_count() == before


@contextmanager
def set_up(settings: LogSettings) -> Iterator[list[logging.Logger]]:
    """Set up the log as a process does; gives the loggers of libraries and of the server."""
    loggers = [logging.getLogger(), logging.getLogger("app_server")]
    levels = [one.level for one in loggers]
    handler = set_up_logs(settings)
    try:
        yield loggers
    finally:
        for one, before in zip(loggers, levels, strict=True):
            one.removeHandler(handler)
            one.setLevel(before)
        handler.close()


@claim("log:content")
def test_libraries_say_where_they_logged_and_nothing_below_a_warning(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with set_up(LogSettings("debug")):
        library = logging.getLogger("some_library.wire")
        library.debug("planted %s", "planted")
        library.info("planted %s", "planted")
        library.warning("planted %s", "planted")
        logging.getLogger("app_server.tests").debug("said")
    said = [line.split(" ", 1)[1] for line in capfd.readouterr().err.splitlines()]
    place = "logged by test_log.test_libraries_say_where_they_logged_and_nothing_below_a_warning"
    assert [one.partition(", line")[0] for one in said] == [
        f"WARNING some_library.wire: {place}",
        "DEBUG app_server.tests: said",
    ]


@pytest.mark.parametrize(
    ("level", "libraries"),
    [("debug", "WARNING"), ("info", "WARNING"), ("warning", "WARNING"), ("error", "ERROR")],
)
def test_libraries_are_as_quiet_as_a_warning_or_quieter(level: str, libraries: str) -> None:
    with set_up(LogSettings(level)) as loggers:
        levels = [logging.getLevelName(one.level) for one in loggers]
    assert levels == [libraries, level.upper()]


@pytest.mark.parametrize("turn", ["first", "second"])
def test_what_a_test_sets_up_is_gone_for_the_next(turn: str) -> None:
    ours = logging.getLogger("app_server")
    handlers = list(ours.handlers)
    assert (ours.level, handlers) == (logging.NOTSET, [])
    set_up_logs(LogSettings("error"))
    ours.addHandler(logging.NullHandler())
