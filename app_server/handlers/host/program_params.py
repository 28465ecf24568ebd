"""From the parameters of command/exec and process/spawn to what is to be run.

Source: docs/tools.md, "Host methods".
"""

import base64
import binascii
import os
from collections.abc import Mapping
from typing import Protocol

from app_server.host.commands.local_command import TerminalSize
from app_server.permissions.environment import CREDENTIALS
from protocol.jsonrpc.errors import RpcError, invalid_params, invalid_request

DEFAULT_TIMEOUT_S = 10.0
DEFAULT_CAP = 1024 * 1024
"""Bytes of each stream."""


class Size(Protocol):
    """Of a terminal, as clients give it."""

    rows: int
    cols: int


def program_environment(changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Lay a client's variables over those of this process, without the server's own credentials.

    Raises:
        RpcError: a name or a value cannot be that of a variable.
    """
    result = {name: value for name, value in os.environ.items() if name not in CREDENTIALS}
    for name, value in (changes or {}).items():
        if not name or "=" in name or "\0" in name:
            raise _wrong("env", "names of variables are not empty and have no `=` and no NUL")
        if value is None:
            result.pop(name, None)
        elif "\0" in value:
            raise _wrong("env", f"the value of `{name}` has a NUL")
        else:
            result[name] = value
    return result


def terminal_size(size: Size | None, *, tty: bool, method: str, of: str) -> TerminalSize | None:
    """Return the size of the terminal that is to be had, None for no terminal.

    Raises:
        RpcError: there is a size and no terminal, or it has no rows or columns.
    """
    if size is None:
        return TerminalSize() if tty else None
    if not tty:
        raise invalid_params(f"{method} size requires tty: true", field="size")
    return checked_size(size, of)


def checked_size(size: Size, of: str) -> TerminalSize:
    """Return a size.

    Raises:
        RpcError: it has no rows or columns.
    """
    if size.rows < 1 or size.cols < 1:
        raise invalid_params(f"{of} size rows and cols must be greater than 0", field="size")
    return TerminalSize(size.rows, size.cols)


def checked_command(command: list[str]) -> list[str]:
    """Return program and arguments.

    Raises:
        RpcError: there is nothing to run.
    """
    if not command:
        raise invalid_request("command must not be empty", "invalidCommand")
    if not command[0] or any("\0" in word for word in command):
        raise _wrong("command", "the program is not empty, and no argument has a NUL")
    return command


def timeout_s(timeout_ms: int | None, method: str) -> float | None:
    """Return a time limit in seconds.

    Raises:
        RpcError: it is negative.
    """
    if timeout_ms is None:
        return None
    if timeout_ms < 0:
        raise invalid_params(
            f"{method} timeoutMs must be non-negative, got {timeout_ms}", field="timeoutMs"
        )
    return timeout_ms / 1000


def input_bytes(delta_base64: str | None, *, close: bool, method: str) -> bytes:
    """Return what is to be written.

    Raises:
        RpcError: it is no base64, or there is nothing to do.
    """
    if delta_base64 is None and not close:
        raise invalid_params(f"{method} requires deltaBase64 or closeStdin", field="deltaBase64")
    try:
        return base64.b64decode(delta_base64 or "", validate=True)
    except (ValueError, binascii.Error) as exc:
        raise invalid_params(f"invalid deltaBase64: {exc}", field="deltaBase64") from exc


def _wrong(field: str, rule: str) -> RpcError:
    return invalid_params(f"Invalid params: `{field}`: {rule}", field=field, rule=rule)
