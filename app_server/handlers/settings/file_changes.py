"""How requests change config.toml, and are refused to."""

from collections.abc import Callable
from typing import Any

import anyio

from app_server.config.editing.errors import NotRecorded
from app_server.config.editing.file import ChangedMeanwhile, ConfigFile
from app_server.config.values import Config
from app_server.handlers.errors import settings_failures
from protocol.errors import INVALID_REQUEST, RpcError, internal_error


def config_refusal(message: str, word: str = "configValidationError") -> RpcError:
    """Refuse to write settings; clients of Codex switch on a member of their own."""
    return RpcError(INVALID_REQUEST, message, word, config_write_error_code=word)


async def change_config(file: ConfigFile, changed: Callable[[Any, Config], str]) -> None:
    """Put the text in place that `changed` makes, which is called again if the file has changed.

    Raises:
        RpcError: the file cannot be read or written, or `changed` refuses.
    """
    try:
        with settings_failures("failed to load configuration"), anyio.CancelScope(shield=True):
            try:
                await file.change(changed)
            except ChangedMeanwhile:
                # An editor saved the file between the reading and the writing.
                await file.change(changed)
    except NotRecorded as exc:
        raise internal_error(f"failed to write config.toml: {exc}", "storageFailed") from exc
