"""Texts of MCP servers without secrets: what a server wrote, and why it did not start or ended.

Source: docs/mcp.md, "Status"; docs/operations.md, "Secrets in the log".
"""

import os
from collections.abc import Iterable

from app_server.mcp.catalog.config import HttpTransport, ServerConfig, StdioTransport
from app_server.observability.log_lines import MIN_VALUE_CHARS, Redactor

MIN_WORD_CHARS = 6
"""Of a header's value, and of a word in it, that is looked for."""

SCHEMES = frozenset(("bearer", "basic", "digest", "negotiate"))
"""Words before a credential that are none."""


def without_secrets(text: str, config: ServerConfig, printed: Iterable[str] = ()) -> str:
    """Return a text of a server's with marks in the place of what may be a secret.

    Values of its variables and headers count as secrets, whatever their names, and so do its bearer
    tokens, and each word of a header's value. `printed` are values of headers from a command.
    """
    transport = config.transport
    if isinstance(transport, HttpTransport):
        secrets = _of_headers(transport, printed)
    else:
        secrets = _of_variables(transport)
    return Redactor(os.environ, secrets).redact(text)


def _of_headers(transport: HttpTransport, printed: Iterable[str]) -> set[str]:
    variables = [*transport.env_http_headers.values(), transport.bearer_token_env_var or ""]
    values = [*transport.http_headers.values(), *(os.environ.get(name, "") for name in variables)]
    values += printed
    if transport.bearer is not None:
        values.append(transport.bearer.get_secret_value())
    words = {word for value in values for word in (value, *value.split())}
    return {word for word in words if len(word) >= MIN_WORD_CHARS and word.lower() not in SCHEMES}


def _of_variables(transport: StdioTransport) -> set[str]:
    ours = (os.environ.get(name, "") for name in transport.env_vars)
    return {value for value in (*transport.env.values(), *ours) if len(value) >= MIN_VALUE_CHARS}
