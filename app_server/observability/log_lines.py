"""Format records of the log as lines of text or JSON, without secrets.

JSON has the members that Codex writes with LOG_FORMAT=json (`timestamp`, `level`, `target`,
`fields.message`), and the ids beside them.

Taking secrets out is the second wall: the first is that nobody logs them. A secret is known by its
name (`api_key=…`, `Authorization: …`), by its shape (`sk-…`, a JSON Web Token), by its place in a
URL (user, password, query, fragment), or as the value of a variable of the environment whose name
says that it is one.
Source: docs/operations.md, "Log", "Secrets in the log".
"""

import errno
import json
import logging
import os
import re
import traceback
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Literal, TypeAlias

from app_server.observability.log_context import ids_of
from app_server.runtime.exception_groups import only_member
from app_server.runtime.files.disk import FULL_OR_READ_ONLY
from app_server.runtime.standard_streams import CONTROLS

REDACTED = "***"

MIN_VALUE_CHARS = 8
"""Of the value of a variable that is looked for: shorter ones are words that mean other things."""
MAX_VALUES = 256
"""Of variables that are looked for, the longest first."""

SECRET_NAME = (
    r"(?:api[_-]?key|access[_-]?key|private[_-]?key|client[_-]?key|token(?!s)|secret(?!s)|passw(?:or)?d|"
    r"passphrase|authorization|cookie|credential(?!s))"
)
"""Part of the name of what is a secret; `tokens` and the like are counts and lists."""

_NAME = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTHORIZATION|COOKIE", re.IGNORECASE)

_RULES: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?"
            r"(?:-----END [A-Z ]{0,32}PRIVATE KEY-----|\Z)",
            re.DOTALL,
        ),
        REDACTED,
    ),
    # User and password, query and fragment of a URL.
    (
        re.compile(r"(\b[a-z][a-z0-9+.-]{1,15}://)[^/\s@\"']{1,1024}@", re.IGNORECASE),
        rf"\1{REDACTED}@",
    ),
    (
        re.compile(r"(\b(?:https?|wss?)://[^\s?#\"'<>]{1,2048})[?#][^\s\"'<>)\]}]*", re.IGNORECASE),
        rf"\1?{REDACTED}",
    ),
    # `name: value`, `"name": "value"`, `name=value`, and a scheme before the value.
    (
        re.compile(
            rf"({SECRET_NAME}[\w.-]{{0,64}}\\?[\"']?\]?\s{{0,4}}[:=]\s{{0,4}}"
            r"(?:(?:Bearer|Basic)\s{1,4})?)"
            r"(?:b?\\?\"[^\"]*\"?|b?'[^']*'?|[^\s,;&\"'}\])]+)",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    # Pairs of a header as Python writes them.
    (
        re.compile(
            rf"(b?['\"][\w-]{{0,64}}{SECRET_NAME}[\w-]{{0,64}}['\"],\s?)b?(?:'[^']*'|\"[^\"]*\")",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    (
        re.compile(r"\b(Bearer|Basic)\s{1,4}[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE),
        rf"\1 {REDACTED}",
    ),
    # Shapes that nothing else has.
    (
        re.compile(
            r"\b(?:sk|rk|pk)-[A-Za-z0-9_-]{8,}"
            r"|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_\w{16,}|\bglpat-[\w-]{16,}"
            r"|\bxox[abeoprs]-[A-Za-z0-9-]{8,}|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bAIza[\w-]{30,}"
            r"|\beyJ[\w-]{8,}\.[\w-]{8,}\.?[\w-]*"
        ),
        REDACTED,
    ),
)


class Redactor:
    """Replaces secrets in texts; safe on any thread."""

    def __init__(self, environ: Mapping[str, str], secrets: Collection[str] = ()) -> None:
        """Collect the values of environment variables with names of secrets.

        `secrets` are looked for before them, whatever their length.
        """
        found = {
            value
            for name, value in environ.items()
            if _NAME.search(name) and len(value) >= MIN_VALUE_CHARS
        }
        kept = sorted(filter(None, secrets), key=len, reverse=True)
        kept += sorted(found, key=len, reverse=True)
        values = sorted(kept[:MAX_VALUES], key=len, reverse=True)
        self._values = re.compile("|".join(map(re.escape, values))) if values else None

    def redact(self, text: str) -> str:
        """Return the text with `***` in the place of each secret."""
        text = self.redact_values(text)
        for pattern, replacement in _RULES:
            text = pattern.sub(replacement, text)
        return text

    def redact_values(self, text: str) -> str:
        """Return the text with `***` in the place of each secret whose value is known."""
        return text if self._values is None else self._values.sub(REDACTED, text)


LogFormat: TypeAlias = Literal["text", "json"]

MAX_CHARS = 16 * 1024
"""Of a message, and of a traceback; what is longer is cut."""
MAX_FAILURES = 64
"""Exceptions that one line shows, what led to them and those of groups included."""
LEVELS = {"WARNING": "WARN", "CRITICAL": "ERROR"}
"""Names of levels in JSON, where they are other than ours."""

_JSON_CONTROLS = {code: f"\\u{code:04x}" for code in CONTROLS if code >= 127}
"""Control characters that JSON lets stand in a string, as escapes of JSON."""


class LineFormatter(logging.Formatter):
    """Format records as lines; blocks, as a traceback shows lines of source files."""

    def __init__(self, log_format: LogFormat, environ: Mapping[str, str]) -> None:
        """Mask the secrets of `environ`, the environment of the process."""
        super().__init__()
        self._format = log_format
        self._redactor = Redactor(environ)

    def format(self, record: logging.LogRecord) -> str:
        """Return one line of text, more with a traceback; or one line of JSON.

        The ids are those that `add_ids` put into the record.
        """
        at = f"{datetime.fromtimestamp(record.created, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
        message = self._clean(record.getMessage())
        failure = self._failure(record)
        ids = {
            name: self._redactor.redact(value) if isinstance(value, str) else value
            for name, value in ids_of(record).items()
        }
        if self._format == "json":
            fields = {"message": message} | ({} if failure is None else {"exception": failure})
            line = {
                "timestamp": at,
                "level": LEVELS.get(record.levelname, record.levelname),
                "target": record.name,
                "fields": fields,
                **ids,
            }
            text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
            return text.translate(_JSON_CONTROLS)
        words = "".join(f" {name}={_word(value)}" for name, value in ids.items())
        text = f"{at} {record.levelname} {record.name}:{words} {message}"
        return _shown(text if failure is None else f"{text}\n{failure}")

    def _failure(self, record: logging.LogRecord) -> str | None:
        if not record.exc_info or record.exc_info[1] is None:
            return None
        failure = only_member(record.exc_info[1])
        if isinstance(failure, OSError) and failure.errno in FULL_OR_READ_ONLY:
            return self._clean(_name_of(failure))
        return self._clean("\n".join(_failure_lines(record.exc_info[1], set())))

    def _clean(self, text: str) -> str:
        # Cut first: a bound for the search too. A secret that the cut divides is looked for whole.
        cut = text if len(text) <= 2 * MAX_CHARS else text[: 2 * MAX_CHARS]
        clean = self._redactor.redact(cut)
        return clean if len(clean) <= MAX_CHARS else f"{clean[: MAX_CHARS - 1]}…"


def _failure_lines(failure: BaseException, seen: set[int]) -> list[str]:
    """Return tracebacks and classes of an exception and its causes, the first cause first.

    Its text is left out, as it may hold what users, models and servers sent; what the system says
    of a number of an error holds nothing of that.
    """
    if id(failure) in seen or len(seen) >= MAX_FAILURES:
        return []
    seen.add(id(failure))
    before = failure.__cause__
    if before is None and not failure.__suppress_context__:
        before = failure.__context__
    lines = [] if before is None else _failure_lines(before, seen)
    if lines:
        lines.append("which led to:")
    if failure.__traceback__ is not None:
        lines.append("Traceback (most recent call last):")
        lines += "".join(traceback.format_tb(failure.__traceback__)).splitlines()
    lines.append(_name_of(failure))
    if isinstance(failure, BaseExceptionGroup):
        for one in failure.exceptions:
            lines += [f"  | {line}" for line in _failure_lines(one, seen)]
    return lines


def _name_of(failure: BaseException) -> str:
    """Return the class of an exception, and the system's words for its `errno`."""
    kind = type(failure)
    is_builtin = kind.__module__ == "builtins"
    name = kind.__qualname__ if is_builtin else f"{kind.__module__}.{kind.__qualname__}"
    number = failure.errno if isinstance(failure, OSError) else None
    is_known = number in errno.errorcode
    return f"{name}: [Errno {number}] {os.strerror(number or 0)}" if is_known else name


def _shown(text: str) -> str:
    """Escape control characters, and begin further lines with a tab."""
    return "\n\t".join(text.split("\n")).translate(CONTROLS)


def _word(value: str | int) -> str:
    """Quote an id that has blanks or characters that are not printed."""
    text = str(value)
    return text if text.isprintable() and " " not in text else json.dumps(text)
