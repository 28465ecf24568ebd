"""Token of a server, from the file that the server writes it to or reads it from.

It is read before each connection: a server that starts again has a new one.
Source: docs/listeners.md, "The token file".
"""

import os
from collections.abc import Mapping
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.runtime.files.opening import without_waiting
from app_server.runtime.user_paths import expand_user

TOKEN_FILE_VARIABLE = "APP_SERVER_TOKEN_FILE"
"""Names the file where no option does."""

MAX_TOKEN_BYTES = 4096
RULE = f"1 to {MAX_TOKEN_BYTES} printable ASCII characters on one line"

TOKEN_FILE_HELP = (
    f"a file with the token that the server wants (default: the one that {TOKEN_FILE_VARIABLE} "
    "names, if it is set)"
)


class NoToken(OSError):
    """The file cannot be read, or holds no token; the text names the file."""


class TokenWanted(ConnectionError):
    """A server refuses a client that shows no token, or a wrong one; the text says what to do."""

    def __init__(self, url: str, file: Path | None = None) -> None:
        """`file` has the token that was shown; None: none was."""
        super().__init__(
            f"the server at {url} wants a token: name the file that has it with --token-file or "
            f"{TOKEN_FILE_VARIABLE}"
            if file is None
            else f"the server at {url} refuses the token of {file}: a server that makes one itself "
            "makes another with each start; app-server status says which file has it"
        )


def chosen_token_file(option: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file of the option, else of the environment; None: no token is shown."""
    named = option or environ.get(TOKEN_FILE_VARIABLE)
    return expand_user(named).absolute() if named else None


async def token_headers(file: Path | None) -> dict[str, str]:
    """Return the headers that show the token to a server; none without a file.

    Raises:
        NoToken
    """
    if file is None:
        return {}
    return {"Authorization": f"Bearer {await anyio.to_thread.run_sync(read_token, file)}"}


def read_token(file: Path) -> str:
    """Read a token; white space around it is left out.

    Raises:
        NoToken
    """
    token = _plain(_content("token", file))
    if token is None:
        raise NoToken(f"{file} holds no token: {RULE}")
    return token


def take_token(what: str, variable: str, file: Path | None) -> str | None:
    """Read a token from a file, else from a variable; None: it is in neither.

    The environment forgets the variable: processes that run here need not see it. White space
    around the token is left out.

    Raises:
        ValueError: it is no text of a header; `what` it is stands in the text, and it does not.
        NoToken: the file cannot be read.
    """
    content = os.environ.pop(variable, None)
    if file is None and content is None:
        return None
    # Not `encode`: bytes that are no text are surrogates in it.
    found = os.fsencode(content or "")
    if file is not None:
        found = _content(what, expand_user(file))
    token = _plain(found)
    if token is None:
        raise ValueError(f"the {what} must be {RULE}")
    return token


def _content(what: str, file: Path) -> bytes:
    try:
        with open(file, "rb", opener=without_waiting) as opened:
            return opened.read(MAX_TOKEN_BYTES + 1)
    except OSError as exc:
        raise NoToken(f"the {what} file cannot be read: {file}: {exc.strerror}") from exc


def _plain(content: bytes) -> str | None:
    token = content.decode("ascii", errors="replace").strip()
    is_plain = token.isascii() and token.isprintable() and len(content) <= MAX_TOKEN_BYTES
    return token if token and is_plain else None
