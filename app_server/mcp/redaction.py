"""Texts of MCP servers without secrets: what a server wrote, why it ended, why a call failed.

Source: docs/mcp.md, "Status", "Calls"; docs/operations.md, "Secrets in the log".
"""

import os
from collections.abc import Iterable

from app_server.mcp.catalog.config import HttpTransport, ServerConfig, StdioTransport
from app_server.observability.log_lines import MIN_VALUE_CHARS, Redactor
from protocol.model import Json

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
