"""config/value/write and config/batchWrite: clients change config.toml.

All edits of a request are written, or none. What would not be a usable configuration is refused.
Source: docs/config.md, "What clients write".
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from app_server.config.errors import NotRecorded
from app_server.config.file import ChangedMeanwhile
from app_server.config.keys import (
    MAX_STEPS,
    BadEdit,
    split_key_path,
    steps_of,
    take,
    value_at,
)
from app_server.config.unknown_keys import refuse_unknown_overrides
from app_server.config.values import Config, ConfigError, Document
from app_server.handlers.services import Services
from app_server.handlers.settings.check import check_settings
from app_server.handlers.settings.layers import SHOWN_TABLES, Layer, layers_of, plain, version_of
from app_server.rpc.context import Handler, RequestContext
from protocol.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    OverriddenMetadata,
)
from protocol.errors import INVALID_REQUEST, RpcError, internal_error

logger = logging.getLogger(__name__)

FREE_TABLES = (*SHOWN_TABLES, "features")
"""Of these a value in force is shown; others may hold secrets that came another way."""

WriteError = Literal["configLayerReadonly", "configValidationError", "configVersionConflict"]

EDIT_S = 20.0
"""For the values of one request, without the last; a change in a file of 100 KB takes 1.3 s."""

CONFLICT = "Configuration was modified since last read. Fetch latest version and retry."


class ConfigWriteHandlers:
    """The methods that write to config.toml."""

    def __init__(self, services: Services) -> None:
        self._configuration = services.configuration
        self._file = services.config_file
        self._sessions = services.sessions

    @property
    def routes(self) -> Mapping[str, Handler]:
        """Method to handler."""
        return {
            "config/batchWrite": self.write_batch,
            "config/value/write": self.write_value,
        }

    async def write_value(
        self, context: RequestContext, params: ConfigValueWriteParams
    ) -> ConfigWriteResponse:
        """Write one setting."""
        edit = ConfigEdit(
            key_path=params.key_path, value=params.value, merge_strategy=params.merge_strategy
        )
        return await self._write([edit], params.file_path, params.expected_version)

    async def write_batch(
        self, context: RequestContext, params: ConfigBatchWriteParams
    ) -> ConfigWriteResponse:
        """Write settings, and hand them to loaded threads after the answer if that is wanted."""
        written = await self._write(params.edits, params.file_path, params.expected_version)
        if params.reload_user_config:
            context.after_answer(await self._take_effect())
        return written

    async def _take_effect(self) -> Callable[[], None]:
        """Return what hands the settings to loaded threads."""
        try:
            base = await self._configuration.read()
        except ConfigError as exc:
            # It was written and readable a moment ago; the next reload takes over what is there.
            logger.warning("loaded threads do not learn of new settings: %s", exc)
            return _nothing
        await self._sessions.refresh_extensions(base)
        return partial(self._sessions.reload_servers, base)

    async def _write(
        self, edits: Sequence[ConfigEdit], file_path: str | None, expected: str | None
    ) -> ConfigWriteResponse:
        path = self._path(file_path)
        try:
            around = await self._configuration.read()
        except ConfigError as exc:
            raise internal_error(
                f"failed to load configuration: {exc}", "configInvalid", detail=str(exc)
            ) from exc
        result: list[ConfigWriteResponse] = []

        def changed(edit: Any, found: Config) -> str:
            if expected not in (None, version_of(found.document)):
                raise _refusal("configVersionConflict", CONFLICT)
            text, config = _edited(edit, found, edits, around)
            result.append(_answer(path, config, found.document, edits))
            return text

        try:
            await self._file.change(changed)
        except ConfigError as exc:
            raise internal_error(
                f"failed to load configuration: {exc}", "configInvalid", detail=str(exc)
            ) from exc
        except ChangedMeanwhile as exc:
            raise _refusal("configVersionConflict", CONFLICT) from exc
        except NotRecorded as exc:
            raise internal_error(f"failed to write config.toml: {exc}", "storageFailed") from exc
        return result[0]

    def _path(self, chosen: str | None) -> str:
        """Return the path to answer with; only the user's own file may be named."""
        own = str(self._file.path)
        if chosen is None:
            return own
        named = "\0" not in chosen and Path(chosen).is_absolute()
        if named and os.path.realpath(chosen) == os.path.realpath(own):
            return os.path.normpath(chosen)
        raise _refusal("configLayerReadonly", "Only writes to the user config are allowed")


def _nothing() -> None:
    pass


def _edited(
    edit: Any, found: Config, edits: Sequence[ConfigEdit], around: Config
) -> tuple[str, Config]:
    """Return the new text, and the configuration in force with it; changes `found.document`."""
    text, steps, give_up = found.text, 0, time.monotonic() + EDIT_S
    try:
        for wanted in edits:
            for step in list(steps_of(found.document, wanted)):
                steps += 1
                if steps > MAX_STEPS:
                    raise BadEdit(f"a request writes at most {MAX_STEPS} values")
                if time.monotonic() > give_up:
                    raise BadEdit(f"so many values in so large a file take over {EDIT_S:g} s")
                take(found.document, step)
                if step.value is None:
                    text = edit.remove(text, step.path)
                else:
                    text = edit.set_value(text, step.path, step.value)
        alone = Config(found.document, requirements=around.requirements)
        check_settings(alone)
        if around.is_strict:
            # It would end the next start, and be refused by every request until then.
            refuse_unknown_overrides(found.document, "config.toml")
        config = alone.with_layers(around.layers)
        check_settings(config)
    except BadEdit as exc:
        raise _refusal("configValidationError", str(exc)) from exc
    except ConfigError as exc:
        raise _refusal("configValidationError", f"Invalid configuration: {exc}") from exc
    return text, config


def _answer(
    path: str, config: Config, document: Document, edits: Sequence[ConfigEdit]
) -> ConfigWriteResponse:
    layers = layers_of(config, path, document)
    overridden = _overridden(config, layers, edits)
    return ConfigWriteResponse(
        status="ok" if overridden is None else "okOverridden",
        version=version_of(document),
        file_path=path,
        overridden_metadata=overridden,
    )


def _overridden(
    config: Config, layers: Sequence[Layer], edits: Sequence[ConfigEdit]
) -> OverriddenMetadata | None:
    """Find the first setting that was written and has no effect."""
    flags, user = layers[0], layers[-1]
    for edit in edits:
        path = split_key_path(edit.key_path)
        value = value_at(config.document, path)
        if value is not None and value != value_at(user.document, path):
            shown = plain(value) if path[0] in FREE_TABLES else None
            return OverriddenMetadata(
                message="Overridden by session flags",
                overriding_layer=flags.metadata,
                effective_value=shown,
            )
    return None


def _refusal(word: WriteError, message: str) -> RpcError:
    # Clients of Codex switch on a member of their own.
    return RpcError(INVALID_REQUEST, message, word, config_write_error_code=word)
