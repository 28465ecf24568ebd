"""Read the settings of the log, and write it on a thread: no caller waits for a disk or a pipe.

Light, as every start imports it. The formatter of lines is imported with the first of them.
Source: docs/operations.md, "Log".
"""

import argparse
import logging
import os
import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from logging.handlers import QueueHandler, QueueListener
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TextIO

from app_server.observability.log_context import add_ids
from app_server.runtime.loader import load_from_worker
from app_server.runtime.standard_streams import STDERR

if TYPE_CHECKING:
    from app_server.observability.log_lines import LineFormatter

logger = logging.getLogger(__name__)

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

PACKAGE = Path(__file__).parents[1]
OWN = PACKAGE.name
"""Loggers of this name and below it are ours; all others are those of libraries."""


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Levels and format of the log."""

    level: str = "warning"
    folders: Mapping[str, str] = field(default_factory=dict)
    """Levels of folders of the server, by the names of their loggers."""
    format: Literal["text", "json"] = "text"
    warnings: Sequence[str] = ()
    """Of folders that the server does not have; `set_up_logs` logs them."""


def read_log_settings(
    environ: Mapping[str, str], levels: str | None = None, log_format: str | None = None
) -> LogSettings:
    """Read the settings of the command line, else of the environment, else the defaults.

    A folder that the server does not have is a warning: other versions may have it.

    Raises:
        ValueError: a value breaks a rule, which the text names.
    """
    source = "--log-level"
    if levels is None:
        source, levels = LEVEL_VARIABLE, environ.get(LEVEL_VARIABLE) or "warning"
    general, folders, warnings = "warning", dict[str, str](), list[str]()
    for part in levels.split(","):
        folder, separator, level = part.strip().rpartition("=")
        if level.strip().lower() not in LEVELS:
            raise ValueError(f"{source}: `{level.strip()}` is none of {', '.join(LEVELS)}")
        if not separator:
            general = level.strip().lower()
        elif (name := _logger_of(folder.strip())) is None:
            warnings.append(
                f"{source}: `{folder.strip()}` is no folder of the server, which are"
                f" {', '.join(_folders())}, and those in them such as `models/prompt`"
            )
        else:
            folders[name] = level.strip().lower()
    source = "--log-format"
    if log_format is None:
        source, log_format = FORMAT_VARIABLE, environ.get(FORMAT_VARIABLE) or "text"
    for known in FORMATS:
        if log_format.lower() == known:
            return LogSettings(general, folders, known, tuple(warnings))
    raise ValueError(f"{source}: `{log_format}` is none of {', '.join(FORMATS)}")


def _logger_of(folder: str) -> str | None:
    path = folder.replace(".", "/")
    if not path or ".." in folder or not (PACKAGE / path / "__init__.py").is_file():
        return None
    return f"app_server.{path.replace('/', '.')}"


def _folders() -> list[str]:
    return sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def add_log_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the log to a command line; they win over the environment."""
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
    # A stream of its own: a write that nobody reads holds the lock of sys.stderr, which the end of
    # the program flushes.
    stream = open(STDERR, "w", encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    handler = LogHandler(settings.format, dict(os.environ), stream)
    root = logging.getLogger()
    root.addHandler(handler)
    # Below a warning libraries log what they carry, frame by frame.
    is_quieter = logging.getLevelName(settings.level.upper()) > logging.WARNING
    root.setLevel(settings.level.upper() if is_quieter else logging.WARNING)
    logging.getLogger(OWN).setLevel(settings.level.upper())
    for name, level in settings.folders.items():
        logging.getLogger(name).setLevel(level.upper())
    for warning in settings.warnings:
        logger.warning("%s", warning)
    return handler


class LogHandler(QueueHandler):
    """Queue records for a `QueueListener`, whose thread begins with the first of them."""

    def __init__(
        self,
        log_format: Literal["text", "json"],
        environ: Mapping[str, str],
        stream: TextIO,
        max_waiting: int = MAX_WAITING,
        *,
        flush_s: float = FLUSH_S,
        load_again_s: float = LOAD_AGAIN_S,
    ) -> None:
        """Write to `stream` without the secrets of `environ`.

        What comes while `max_waiting` records wait is dropped, and so is what `close` has not
        written within `flush_s`. A formatter that cannot be loaded is tried every `load_again_s`.
        """
        self._flush_s = flush_s
        self._records: queue.Queue[logging.LogRecord | None] = queue.Queue(max_waiting)
        super().__init__(self._records)
        self.addFilter(add_ids)
        self._writer = _Writer(log_format, environ, stream, load_again_s)
        self._listener: _Listener | None = None

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Make the message of a record: its arguments may change before its line is made."""
        record.msg, record.args = _text_of(record)[:MAX_MESSAGE_CHARS], None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a record; never waits. Called under the handler's lock."""
        try:
            self._records.put_nowait(record)
        except queue.Full:
            self._writer.drop()
            return
        if self._listener is None:
            listener = _Listener(self._records, self._writer)
            listener.start()
            self._listener = listener

    def close(self) -> None:
        """Flush for at most `flush_s`, then drop records.

        `logging.shutdown` does this at the end of the process.
        """
        super().close()
        if self._listener is None or self._listener.has_ended.is_set():
            return
        ends_at_s = time.monotonic() + self._flush_s
        try:
            self._records.put(None, timeout=self._flush_s)
        except queue.Full:
            return
        self._listener.has_ended.wait(max(ends_at_s - time.monotonic(), 0.0))


class _Listener(QueueListener):
    """Set `has_ended` at the end of the queue: `stop` waits for a thread without a bound."""

    def __init__(self, records: "queue.Queue[logging.LogRecord | None]", writer: "_Writer") -> None:
        super().__init__(records)
        self.has_ended = threading.Event()
        self._writer = writer

    def handle(self, record: logging.LogRecord) -> None:
        self._writer.write(record)

    def dequeue(self, block: bool) -> logging.LogRecord:
        record: logging.LogRecord | None = super().dequeue(block)
        if record is None:
            self.has_ended.set()
        return record  # type: ignore[return-value]


class _Writer:
    """Write lines to a stream, on the listener's thread; whatever fails, the thread goes on.

    No `logging.Handler`: `logging.shutdown` would wait for the lock of one whose stream is stuck.
    """

    def __init__(
        self,
        log_format: Literal["text", "json"],
        environ: Mapping[str, str],
        stream: TextIO,
        load_again_s: float,
    ) -> None:
        self._load_again_s = load_again_s
        self._format = log_format
        self._environ = environ
        self._stream = stream
        self._formatter: LineFormatter | None = None
        self._counting = threading.Lock()
        self._dropped = 0

    def write(self, record: logging.LogRecord) -> None:
        """Write a record, behind a line with the count of dropped ones."""
        if self._formatter is None:
            self._formatter = self._load_formatter()
        try:
            if dropped := self._take_dropped():
                self._write_line(self._formatter.format(_gap(dropped)))
            self._write_line(self._formatter.format(record))
        except Exception:  # noqa: BLE001
            self.drop()

    def drop(self) -> None:
        """Count a line that is not written; safe on any thread."""
        with self._counting:
            self._dropped += 1

    def _take_dropped(self) -> int:
        with self._counting:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def _write_line(self, line: str) -> None:
        self._stream.write(f"{line}\n")
        self._stream.flush()

    def _load_formatter(self) -> "LineFormatter":
        """Load the formatter; without a free descriptor the first lines say so."""
        while True:
            try:
                return load_from_worker(_line_formatter)(self._format, self._environ)
            except Exception:  # noqa: BLE001
                time.sleep(self._load_again_s)


def _text_of(record: logging.LogRecord) -> str:
    """Return the message; of a library only where in it that was logged.

    Its text may hold what the library carries: messages of users, models and servers.
    """
    place = f"logged by {record.module}.{record.funcName}, line {record.lineno}"
    if record.name.partition(".")[0] != OWN:
        return place
    try:
        return record.getMessage()
    except Exception:  # noqa: BLE001
        # Its arguments do not fit; `logging` would print them.
        return place


def _gap(dropped: int) -> logging.LogRecord:
    text = f"{dropped} lines of the log were dropped"
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


def _line_formatter() -> "type[LineFormatter]":
    from app_server.observability.log_lines import LineFormatter

    return LineFormatter
