"""The model that a thread's next request goes to: what it can do, and how much it may be sent.

Source: docs/config.md, "Models"; docs/compaction.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from app_server.config.values import Config
from app_server.models.catalogue.features import ModelFeatures
from app_server.models.catalogue.lists import ModelLists
from app_server.models.catalogue.providers import read_providers
from app_server.models.provider import Provider
from app_server.threads.log.live import LiveThread

VERBOSITIES = ("low", "medium", "high")

WINDOW_SHARE = 0.9
"""Of the model's context, which a request may fill before the thread is compacted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """Settings of a thread's models, from the configuration."""

    providers: Mapping[str, Provider] = field(default_factory=dict)
    context_window: int | None = None
    """Tokens that the model can take; None: what is known of the model counts."""
    compact_limit: int | None = None
    """Tokens from which on the thread is compacted; 0: never for what is known of the model."""
    verbosity: str | None = None
    """Of the model's answers; None: what is usual for the model."""


def read_model_settings(config: Config) -> ModelSettings:
    """Read the providers, the context, and when a thread is compacted.

    Raises:
        ConfigError: a value has the wrong type.
    """
    view = config.view()
    return ModelSettings(
        providers=read_providers(config),
        context_window=view.integer("model_context_window"),
        compact_limit=view.integer("model_auto_compact_token_limit"),
        verbosity=view.choice("model_verbosity", VERBOSITIES),
    )


@dataclass(slots=True)
class ThreadModel:
    """The model of one loaded thread."""

    thread: LiveThread
    settings: ModelSettings
    lists: ModelLists
    _has_warned: bool = field(default=False, init=False)

    @property
    def provider(self) -> Provider | None:
        """The provider in force; None: there is none of this name."""
        return self.settings.providers.get(self.thread.state.in_force.model_provider)

    @property
    def features(self) -> ModelFeatures:
        """Features of the model in force."""
        features = self.lists.features(self.thread.state.in_force.model, self.provider)
        verbosity = self.settings.verbosity
        return features if verbosity is None else replace(features, verbosity=verbosity)

    @property
    def context_window(self) -> int:
        """Tokens that clients are shown as the context."""
        return self.settings.context_window or self.features.context_window

    @property
    def compact_at(self) -> int | None:
        """Tokens from which on a request is made only after a compaction; None: never."""
        settings, limit = self.settings, self.settings.compact_limit
        window = settings.context_window
        if window is None and limit != 0 and (features := self.features).is_known:
            window = features.context_window
        share = int(window * WINDOW_SHARE) if window else None
        return min((each for each in (limit, share) if each), default=None)

    async def prepare(self) -> str | None:
        """Before a turn's first request: ask the provider about a model that is not known.

        Returns a warning for clients, once, of a model of which nothing is known, neither here nor
        there, and of whose context the settings say nothing.
        """
        provider = self.provider
        if provider is None or self.features.is_known:
            return None
        await self.lists.models(provider)
        known = self.features.is_known or self.settings.context_window is not None
        if known or self._has_warned:
            return None
        self._has_warned = True
        return (
            f"Nothing is known of the model `{self.thread.state.in_force.model}`: it is treated "
            f"like one with a context of {self.context_window} tokens that takes text and images. "
            "Set `model_context_window` to what it can take."
        )
