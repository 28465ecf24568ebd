"""What is known of a server: for connections to come, and for people who ask what became of it.

No text of a server is kept, or logged, with its secrets, but for its output.

Source: docs/mcp.md, "Revisions of the protocol", "Status", "Calls"; docs/operations.md, "Secrets in
the log".
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pydantic_core import to_json

from app_server.mcp.catalog.config import HttpTransport, ServerConfig, StdioTransport
from app_server.mcp.errors import StartupFailed
from app_server.mcp.processes import ServerOutput
from app_server.mcp_wire.errors import PeerError
from app_server.observability.log_lines import MIN_VALUE_CHARS, Redactor
from app_server.runtime.cut_text import cut_middle
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

MAX_SENT = 4
"""Runs of a command that prints headers, and tokens of a sign-in, whose values are taken out of
texts; the newest count."""

MAX_FAULTS = 32
"""Of one server, that are lines of the log."""

MAX_LOG_LINE_BYTES = 4096
"""Of one message of a server's log; the middle of a longer one is cut out."""


def log_line(params: JsonObject) -> bytes:
    """Return a message of a server's log as one line: level, logger, and what it says.

    Source: MCP 2025-06-18, "Logging".
    """
    level, name, data = params.get("level"), params.get("logger"), params.get("data")
    where = f"{level} {name}" if isinstance(name, str) else f"{level}"
    text = data if isinstance(data, str) else to_json(data, inf_nan_mode="null").decode()
    whole = f"[{where}] {text}".encode(errors="replace").decode()
    return " ".join(cut_middle(whole, MAX_LOG_LINE_BYTES).splitlines()).encode() + b"\n"


@dataclass(slots=True)
class Learned:
    """What connections to a server found out; those to come begin with it."""

    protocol_version: str | None = None
    """Of MCP, as it was agreed on last; None: the server is asked."""
    keeps_session: bool = True
    """Whether it may remember what was said on a connection."""


@dataclass(slots=True)
class ServerRecord:
    """What became of a server so far; a server that takes the place of one goes on with its."""

    config: ServerConfig
    protocol_version: str | None = None
    """Of MCP, as a connection agreed on it last; None before the first."""
    started_at_ms: int | None = None
    """When it became ready last, in Unix milliseconds."""
    restarts: int = 0
    """Starts after the first one, whatever ended the server."""
    last_error: str | None = None
    """Why it did not start, ended, or was refused something, last."""
    last_fault: str | None = None
    """What it did last against MCP, as a text that begins with a verb; it went on."""
    output: ServerOutput = field(default_factory=ServerOutput)
    """What its processes wrote to stderr, and messages of its log; it may hold secrets."""
    sent: deque[Collection[str]] = field(default_factory=lambda: deque(maxlen=MAX_SENT))
    """Values of headers that its command printed, and tokens of a sign-in."""
    _said: set[str] = field(default_factory=set)
    """Faults that the log has."""
    shared_by: int = 1
    """Threads that use the process or the session, this one included."""
    tools_listed_at_ms: int | None = None
    """When an instance listed its tools last, in Unix milliseconds, also before this process ran.
    None: never, or they are those of its registration."""

    def __post_init__(self) -> None:
        if self.config.known is not None:
            self.protocol_version = self.config.known.protocol_version

    def ended(self, reason: str) -> None:
        """Note why the server ended, with the name of its command."""
        transport = self.config.transport
        command = transport.command if isinstance(transport, StdioTransport) else None
        reason = self.without_secrets(reason)
        # One that cannot be run is named in the reason.
        is_named = command is None or f" {command}: " in reason
        self.last_error = reason if is_named else f"{command}: {reason}"

    def did_not_start(self, failure: StartupFailed) -> None:
        """Note why the server did not start, with the last lines of its stderr."""
        text, lines = str(failure), failure.last_lines
        if lines:
            text = text.removesuffix(f": {lines.splitlines()[-1]}")
            text = f"{text}: {lines}"
        self.ended(text)

    def agreed(self, protocol_version: str) -> None:
        """Note which revision is spoken, and that it is another one, if it is."""
        before, self.protocol_version = self.protocol_version, protocol_version
        if before not in (None, protocol_version):
            self.misbehaved(f"speaks MCP {protocol_version}, and spoke {before} before")

    def listed(self, tools: Iterable[JsonObject]) -> None:
        """Note a tool that is listed several times; the first counts."""
        names = [name for tool in tools if isinstance(name := tool.get("name"), str)]
        if len(set(names)) < len(names):
            name, times = Counter(names).most_common(1)[0]
            self.misbehaved(f"listed the tool {name[:100]!r} {times} times")

    def misbehaved(self, what: str) -> None:
        """Note what the server did against MCP; it goes on."""
        what = self.without_secrets(what)
        self.last_fault = what
        if what not in self._said and len(self._said) < MAX_FAULTS:
            self._said.add(what)
            logger.warning("MCP server %s %s", self.config.name, what)

    def redact(self, failure: StartupFailed) -> None:
        """Put marks into the text of a failure: it goes to clients, and to the model."""
        failure.args = (self.without_secrets(str(failure)),)
        failure.last_lines = self.without_secrets(failure.last_lines)

    def without_secrets(self, text: str) -> str:
        """Return a text of the server's with marks in the place of what may be a secret."""
        return without_secrets(text, self.config, self._sent)

    def redact_error(self, error: PeerError) -> None:
        """Put marks into the error of a call: it goes to clients, and to the model; may block."""
        error.message = str(without_given(error.message, self.config, self._sent))
        error.data = without_given(error.data, self.config, self._sent)
        error.args = (error.message,)

    @property
    def _sent(self) -> list[str]:
        # A worker reads what the event loop adds to.
        return [value for values in tuple(self.sent) for value in values]


MIN_WORD_CHARS = 6
"""Of a header's value, and of a word in it, that is looked for."""

SCHEMES = frozenset(("bearer", "basic", "digest", "negotiate"))
"""Words before a credential that are none."""


def without_secrets(text: str, config: ServerConfig, sent: Iterable[str] = ()) -> str:
    """Return a text of a server's with marks in the place of what may be a secret.

    Values of its variables and headers count as secrets, whatever their names, and so do its bearer
    tokens, and each word of a header's value. `sent` are values that were had at the time: of
    headers from a command, of tokens from a sign-in.
    """
    return _redactor(config, sent).redact(text)


def without_given(value: Json, config: ServerConfig, sent: Iterable[str] = ()) -> Json:
    """Return what a server says of a call with marks in the place of what it was given.

    Keys of objects stay. The rest of its texts is the server's to say, as in its results.
    """
    return _marked(value, _redactor(config, sent))


def _marked(value: Json, redactor: Redactor) -> Json:
    match value:
        case str():
            return redactor.redact_values(value)
        case list():
            return [_marked(one, redactor) for one in value]
        case dict():
            return {key: _marked(one, redactor) for key, one in value.items()}
    return value


def _redactor(config: ServerConfig, sent: Iterable[str]) -> Redactor:
    transport = config.transport
    if isinstance(transport, HttpTransport):
        secrets = _of_headers(transport, sent)
    else:
        secrets = _of_variables(transport)
    return Redactor(os.environ, secrets)


def _of_headers(transport: HttpTransport, sent: Iterable[str]) -> set[str]:
    variables = [*transport.env_http_headers.values(), transport.bearer_token_env_var or ""]
    values = [*transport.http_headers.values(), *(os.environ.get(name, "") for name in variables)]
    values += sent
    if transport.bearer is not None:
        values.append(transport.bearer.get_secret_value())
    words = {word for value in values for word in (value, *value.split())}
    return {word for word in words if len(word) >= MIN_WORD_CHARS and word.lower() not in SCHEMES}


def _of_variables(transport: StdioTransport) -> set[str]:
    ours = (os.environ.get(name, "") for name in transport.env_vars)
    return {value for value in (*transport.env.values(), *ours) if len(value) >= MIN_VALUE_CHARS}
