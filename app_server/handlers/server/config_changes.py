"""Changes of config.toml by requests: refusals, and the reload of loaded threads."""

import logging
from collections.abc import Callable
from typing import Any

import anyio

from app_server.config.editing.file import ChangedMeanwhile, ConfigFile
from app_server.config.values import Config, ConfigError, NotRecorded
from app_server.handlers.errors import settings_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext
from protocol.jsonrpc.errors import INVALID_REQUEST, RpcError, internal_error

logger = logging.getLogger(__name__)


def config_refusal(message: str, word: str = "configValidationError") -> RpcError:
    """Refuse to write settings; clients of Codex switch on a member of their own."""
    return RpcError(INVALID_REQUEST, message, word, config_write_error_code=word)


async def reload_threads(
    context: RequestContext, services: Services, changed: str, *, refresh: bool = False
) -> None:
    """Reload the settings in force in loaded threads, after the answer.

    `changed` says for the log of what they would not learn else. `refresh`: extensions look anew.
    """
    try:
        base = await services.configuration.read()
    except ConfigError as exc:
        # It was readable a moment ago; the next reload takes over what is there then.
        logger.warning("loaded threads do not learn of %s: %s", changed, exc)
        return
    if refresh:
        await services.sessions.refresh_extensions(base)
    context.after_answer(services.sessions.reload_servers, base)


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
