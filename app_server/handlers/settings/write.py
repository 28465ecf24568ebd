"""config/value/write and config/batchWrite: clients change config.toml, or the profile over it.

All edits of a request are written, or none. What would not be a usable configuration is refused.
Source: docs/config.md, "What clients write".
"""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app_server.config.editing.errors import NotRecorded
from app_server.config.editing.file import ChangedMeanwhile, ConfigFile
from app_server.config.editing.keys import (
    MAX_STEPS,
    BadEdit,
    split_key_path,
    steps_of,
    take,
    value_at,
)
from app_server.config.key_check.unknown_keys import refuse_unknown_overrides
from app_server.config.masking import refuse_marks
from app_server.config.values import Config, ConfigError, Document
from app_server.handlers.errors import settings_failures
from app_server.handlers.services import Services
from app_server.handlers.settings.check import check_settings
from app_server.handlers.settings.file_changes import config_refusal, reload_threads
from app_server.handlers.settings.hook_trust import with_parts
from app_server.handlers.settings.layers import (
    Layer,
    layers_of,
    shown_part,
    version_of,
)
from app_server.rpc.context import RequestContext, Routes
from protocol.jsonrpc.errors import internal_error
from protocol.server.config import (
    ConfigBatchWriteParams,
    ConfigEdit,
    ConfigValueWriteParams,
    ConfigWriteResponse,
    OverriddenMetadata,
    UserConfigLayerSource,
)

EDIT_S = 20.0
"""For the values of one request, without the last; a change in a file of 100 KB takes 1.3 s."""

CONFLICT = "Configuration was modified since last read. Fetch latest version and retry."


class ConfigWriteHandlers:
    """The methods that write to config.toml."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._configuration = services.configuration
        self._files = [services.config_file]
        """Those that may be written: config.toml, and a profile behind it."""
        if (profile := services.configuration.profile_file) is not None:
            self._files.append(ConfigFile(services.home, profile.name))
        self.routes: Routes = {
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
            await reload_threads(context, self._services, "new settings", refresh=True)
        return written

    async def _write(
        self, edits: Sequence[ConfigEdit], file_path: str | None, expected: str | None
    ) -> ConfigWriteResponse:
        file, path = self._file(file_path)
        try:
            edits = with_parts(edits)
            for edit in edits:
                refuse_marks(edit.value, split_key_path(edit.key_path))
        except (BadEdit, ConfigError) as exc:
            raise config_refusal(str(exc)) from exc
        with settings_failures("failed to load configuration"):
            around = await self._configuration.read()
        result: list[ConfigWriteResponse] = []

        def changed(edit: Any, found: Config) -> str:
            if expected not in (None, version_of(found.document)):
                raise config_refusal(CONFLICT, "configVersionConflict")
            text = _edited(edit, found, edits)
            documents = [source.document for source in around.sources]
            documents[self._files.index(file)] = found.document
            config = _checked(documents, around, found.document)
            layers = layers_of(config, self._configuration, documents)
            overridden = _overridden(config, layers, found.document, edits)
            result.append(
                ConfigWriteResponse(
                    status="ok" if overridden is None else "okOverridden",
                    version=version_of(found.document),
                    file_path=path,
                    overridden_metadata=overridden,
                )
            )
            return text

        try:
            with settings_failures("failed to load configuration"):
                await file.change(changed)
        except ChangedMeanwhile as exc:
            raise config_refusal(CONFLICT, "configVersionConflict") from exc
        except NotRecorded as exc:
            text = f"failed to write {file.path.name}: {exc}"
            raise internal_error(text, "storageFailed") from exc
        return result[0]

    def _file(self, chosen: str | None) -> tuple[ConfigFile, str]:
        """Return what is written, and the path to answer with; only the user's files are."""
        if chosen is None:
            return self._files[-1], str(self._files[-1].path)
        for file in self._files if "\0" not in chosen and Path(chosen).is_absolute() else ():
            if os.path.realpath(chosen) == os.path.realpath(file.path):
                return file, os.path.normpath(chosen)
        raise config_refusal("Only writes to the user config are allowed", "configLayerReadonly")


def _edited(edit: Any, found: Config, edits: Sequence[ConfigEdit]) -> str:
    """Return the new text of a file; changes `found.document`."""
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
    except BadEdit as exc:
        raise config_refusal(str(exc)) from exc
    return text


def _checked(documents: Sequence[Document], around: Config, changed: Document) -> Config:
    """Return the configuration in force with these files; one of them was changed."""
    config = Config(documents[0], requirements=around.requirements)
    try:
        if changed is documents[0]:
            check_settings(config)
        for document in documents[1:]:
            config = config.with_profile(Config(document))
        if around.is_strict:
            # It would end the next start, and be refused by every request until then.
            refuse_unknown_overrides(changed, "the file")
        config = config.with_layers(around.layers)
        check_settings(config)
    except ConfigError as exc:
        raise config_refusal(f"Invalid configuration: {exc}") from exc
    return config


def _overridden(
    config: Config, layers: Sequence[Layer], written: Document, edits: Sequence[ConfigEdit]
) -> OverriddenMetadata | None:
    """Find the first setting that was written and has no effect."""
    for edit in edits:
        path = split_key_path(edit.key_path)
        value = value_at(config.document, path)
        if value is not None and value != value_at(written, path):
            # Of a table the highest layer with a part of it decides.
            over = next(one for one in layers if value_at(one.document, path) is not None)
            what = "profile" if isinstance(over.source, UserConfigLayerSource) else "session flags"
            return OverriddenMetadata(
                message=f"Overridden by {what}",
                overriding_layer=over.metadata,
                effective_value=value_at(shown_part(config.document), path),
            )
    return None
