"""Problems of the configuration files, as clients see them: misspelt keys, wrong values.

Source: docs/config.md, "Unknown keys".
"""

import logging
from collections.abc import Sequence
from typing import NamedTuple

import anyio
import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.config.key_check import (
    ignored_text,
    keys_without_effect,
    shown_path,
    unknown_in_file,
    unknown_in_overrides,
    unknown_keys,
    without_effect_text,
)
from app_server.config.positions import Position
from app_server.config.values import Config, ConfigError
from app_server.handlers.server.config_check import REFUSED, wrong_values
from app_server.models.catalogue.providers import chosen_provider
from protocol.server.lifecycle import ConfigWarningNotification, TextPosition, TextRange

logger = logging.getLogger(__name__)

OVERRIDES = "-c/--config"
"""Source of settings on the command line, as warnings name it."""

OWN_PROVIDER_ALONE = "threads start with a provider of their own alone"

KEPT = "the last configuration that could be used holds"


class ConfigWarnings(NamedTuple):
    """Warnings of what is wrong with the files of settings."""

    all: Sequence[ConfigWarningNotification]
    new: Sequence[ConfigWarningNotification]
    """Problems that the look before did not find."""


class ConfigProblems:
    """The problems of the files as they are now, looked for again when a file has changed."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._looking = anyio.Lock()
        self._found_in = -1
        """`_found` is about the files after so many changes, or more."""
        self._found: Sequence[ConfigWarningNotification] = ()
        self._was_looked_for = False

    async def find_at_start(self) -> None:
        """Log the problems, unless somebody has asked for them."""
        if not self._was_looked_for:
            await self.find()

    async def find(self) -> ConfigWarnings:
        """Return a notification for each problem. What is new is logged too."""
        self._was_looked_for = True
        async with self._looking:
            found, change = await self._look()
            new = [problem for problem in found if problem not in self._found]
            for problem in new:
                logger.warning("%s", " ".join(filter(None, (problem.summary, problem.details))))
            self._found, self._found_in = found, change
            return ConfigWarnings(found, new)

    async def _look(self) -> tuple[Sequence[ConfigWarningNotification], int]:
        # From before: while this reads, another request may find the next change.
        change = self._configuration.changes
        try:
            config = await self._configuration.read_as_is()
        except ConfigError as exc:
            instead = KEPT if self._configuration.has_good_files else REFUSED
            summary = f"The configuration cannot be used; {instead}."
            return [_warning(summary, exc.position, str(exc))], -1
        if self._configuration.changes == self._found_in:
            return self._found, self._found_in
        kept = self._configuration.has_good_files
        return await anyio.to_thread.run_sync(_problems, config, kept), change


def _problems(config: Config, kept: bool) -> Sequence[ConfigWarningNotification]:
    found: list[ConfigWarningNotification] = []
    wrong = wrong_values(config)
    found.extend(
        _wrong(error, KEPT if kept and instead == REFUSED else instead) for error, instead in wrong
    )
    if not wrong:
        try:
            chosen_provider(config)
        except ConfigError as exc:
            # It may be added later: who writes settings is not refused for that.
            found.append(_wrong(exc, KEPT if kept else OWN_PROVIDER_ALONE))
    for file in config.sources:
        if unknown := unknown_in_file(file):
            first = next(unknown_keys(file.document)).path
            found.append(_warning(ignored_text(unknown), file.position_of_key(first)))
        if paths := list(keys_without_effect(file.document)):
            positions = [f"{file.position_of_key(path)}: `{'.'.join(path)}`" for path in paths]
            found.append(_warning(without_effect_text(positions), file.position_of_key(paths[0])))
    on_top = [text for layer in config.layers for text in unknown_in_overrides(layer, OVERRIDES)]
    if on_top:
        found.append(_warning(ignored_text(on_top), None))
    return found


def _wrong(error: ConfigError, instead: str) -> ConfigWarningNotification:
    what = f"The setting `{shown_path(error.path)}`" if error.path else "A setting"
    return _warning(f"{what} cannot be used; {instead}.", error.position, str(error))


def _warning(
    summary: str, position: Position | None, details: str | None = None
) -> ConfigWarningNotification:
    at = None if position is None else TextPosition(line=position.line, column=position.column)
    return ConfigWarningNotification(
        summary=summary,
        details=details,
        path=None if position is None else str(position.file),
        range=None if at is None else TextRange(start=at, end=at),
    )
