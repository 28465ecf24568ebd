"""Settings of the log, and the thread that writes it: nobody who logs waits for a disk or a pipe.

Light, as every start has it. What makes lines is imported with the first of them.
Source: docs/operations.md, "Log".
"""

import argparse
import atexit
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Mapping
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from app_server.runtime.loader import load_from_worker

if TYPE_CHECKING:
    from app_server.observability.logs.lines import LineWriter

FORMAT_VARIABLE = "LOG_FORMAT"
LEVEL_VARIABLE = "LOG_LEVEL"
LEVELS = ("debug", "info", "warning", "error")
FORMATS: tuple[Literal["text", "json"], ...] = ("text", "json")

MAX_WAITING = 4096
"""Lines that wait to be written; what comes then is dropped and counted."""
MAX_MESSAGE_CHARS = 32 * 1024
"""Of a message that waits; its line has half of them, so that the cut divides no secret."""
LOAD_AGAIN_S = 0.5
"""Until what makes lines is looked for again, where it could not be loaded."""
FLUSH_S = 2.0
"""At the end of the process, for what waits."""

PACKAGE = Path(__file__).parents[2]
OWN = PACKAGE.name
"""Loggers of this name and below it are ours; all others are those of libraries."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged, and how."""

    level: str = "warning"
    folders: Mapping[str, str] = field(default_factory=dict)
    """Levels of folders of the server, by the names of their loggers."""
    format: Literal["text", "json"] = "text"


def read_log_settings(
    environ: Mapping[str, str], levels: str | None = None, log_format: str | None = None
) -> LogSettings:
    """Read the settings: those of the command line, else of the environment, else the defaults.

    Raises:
        ValueError: a value breaks a rule, which the text names.
    """
    source = "--log-level"
    if levels is None:
        source, levels = LEVEL_VARIABLE, environ.get(LEVEL_VARIABLE) or "warning"
    general, folders = "warning", dict[str, str]()
    for part in levels.split(","):
        folder, separator, level = part.strip().rpartition("=")
        if level.strip().lower() not in LEVELS:
            raise ValueError(f"{source}: `{level.strip()}` is none of {', '.join(LEVELS)}")
        if separator:
            folders[_logger_of(folder.strip(), source)] = level.strip().lower()
        else:
            general = level.strip().lower()
    source = "--log-format"
    if log_format is None:
        source, log_format = FORMAT_VARIABLE, environ.get(FORMAT_VARIABLE) or "text"
    for known in FORMATS:
        if log_format.lower() == known:
            return LogSettings(general, folders, known)
    raise ValueError(f"{source}: `{log_format}` is none of {', '.join(FORMATS)}")


def _logger_of(folder: str, source: str) -> str:
    path = folder.replace(".", "/")
    if not path or not (PACKAGE / path).is_dir() or ".." in folder:
        raise ValueError(
            f"{source}: `{folder}` is no folder of the server, such as `mcp` or `models/chat`"
        )
    return f"app_server.{path.replace('/', '.')}"


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Let a command line say what is logged, and how; without that the environment does."""
    parser.add_argument(
        "--log-level",
        metavar="LEVELS",
        help="what goes to stderr besides the addresses: debug, info, warning or error, and after "
        "commas FOLDER=LEVEL for folders of the server, such as warning,mcp=debug (default: "
        f"{LEVEL_VARIABLE}, else warning)",
    )
    parser.add_argument(
        "--log-format",
        metavar="FORMAT",
        help=f"text, or json for one JSON object a line (default: {FORMAT_VARIABLE}, else text)",
    )


def set_up_logs(settings: LogSettings) -> "LogHandler":
    """Log to stderr for as long as the process lasts."""
    # Now: some programs take their credentials out of the environment when they have read them.
    handler = LogHandler(settings.format, dict(os.environ), sys.stderr)
    root = logging.getLogger()
    root.addHandler(handler)
    # Below a warning libraries log what they carry, frame by frame.
    is_quieter = logging.getLevelName(settings.level.upper()) > logging.WARNING
    root.setLevel(settings.level.upper() if is_quieter else logging.WARNING)
    logging.getLogger(OWN).setLevel(settings.level.upper())
    for name, level in settings.folders.items():
        logging.getLogger(name).setLevel(level.upper())
    atexit.register(handler.end)
    return handler


class LogHandler(logging.Handler):
    """Hands records over to a thread, which begins with the first of them."""

    def __init__(
        self,
        log_format: Literal["text", "json"],
        environ: Mapping[str, str],
        stream: TextIO,
        max_waiting: int = MAX_WAITING,
    ) -> None:
        """Write to `stream` without the secrets of `environ`.

        What comes while `max_waiting` records wait is dropped.
        """
        super().__init__()
        self._format = log_format
        self._environ = environ
        self._stream = stream
        self._waiting: queue.Queue[tuple[logging.LogRecord, Context] | None] = queue.Queue(
            max_waiting
        )
        self._thread: threading.Thread | None = None
        self._counting = threading.Lock()
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record; never waits. Called under the handler's lock."""
        try:
            # The arguments may change before the line is made.
            record.msg, record.args = _text_of(record)[:MAX_MESSAGE_CHARS], None
        except Exception:  # noqa: BLE001
            self.handleError(record)
            return
        try:
            self._waiting.put_nowait((record, copy_context()))
        except queue.Full:
            self._drop()
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="log", daemon=True)
            self._thread.start()

    def end(self) -> None:
        """Write what waits, for at most FLUSH_S; what comes afterwards is not written."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        try:
            self._waiting.put(None, timeout=FLUSH_S)
        except queue.Full:
            return
        thread.join(FLUSH_S)

    def _run(self) -> None:
        lines: LineWriter | None = None
        while (waiting := self._waiting.get()) is not None:
            lines = lines or self._line_writer()
            # Whatever a record or a stream is like, the thread has to outlive it.
            try:
                if dropped := self._take_dropped():
                    self._write(lines.render(_gap(dropped), Context()))
                self._write(lines.render(*waiting))
            except Exception:  # noqa: BLE001
                self._drop()

    def _line_writer(self) -> "LineWriter":
        """Load what makes lines; where no descriptor is left, the first lines say just that."""
        while True:
            try:
                return load_from_worker(_line_writer)(self._format, self._environ)
            except Exception:  # noqa: BLE001
                time.sleep(LOAD_AGAIN_S)

    def _write(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _drop(self) -> None:
        with self._counting:
            self._dropped += 1

    def _take_dropped(self) -> int:
        with self._counting:
            dropped, self._dropped = self._dropped, 0
        return dropped


def _text_of(record: logging.LogRecord) -> str:
    """Return the message; of a library only where in it that was logged.

    Its text may hold what the library carries: messages of users, models and servers.
    """
    if record.name.partition(".")[0] == OWN:
        return record.getMessage()
    return f"logged by {record.module}.{record.funcName}, line {record.lineno}"


def _gap(dropped: int) -> logging.LogRecord:
    text = f"{dropped} lines of the log were dropped"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


def _line_writer() -> "type[LineWriter]":
    from app_server.observability.logs.lines import LineWriter

    return LineWriter
