"""Models: the features of each, the lists that providers give, and the model of a thread.

From top to bottom: features of a model, and those assumed of an unknown one; the lists of models
that providers give, asked for when they are needed, and kept for a while (one that cannot be had is
no failure); the model that a thread's next request goes to, what it can do, and how much it may be
sent. Does not know: HTTP.
Source: docs/config.md, "Models"; docs/compaction.md.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib import resources
from typing import Protocol, TypeAlias

import anyio.to_thread
from pydantic_core import from_json

from app_server.config.effective import OFFLINE
from app_server.config.values import Config
from app_server.models.catalogue.providers import OFFLINE_MODEL, read_providers
from app_server.models.interface import ModelFailure, Provider
from app_server.runtime.http.ttl_cache import TtlCache
from app_server.runtime.loader import LoadFailed
from app_server.threads.log.live import LiveThread
from protocol.model import Json, JsonObject

logger = logging.getLogger(__name__)

UNKNOWN_WINDOW = 258_400
"""Tokens that clients are shown as the context of a model of which nothing is known.

It is the reference's figure. Nothing is compacted because of it: that is for who knows the model.
"""

TEXT, IMAGE = "text", "image"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFeatures:
    """Features of one model with the provider that serves it."""

    name: str = ""
    is_known: bool = False
    """Whether this comes from the catalogue or from the provider, and is not assumed."""
    context_window: int = UNKNOWN_WINDOW
    """Tokens that a thread may fill."""
    efforts: tuple[str, ...] = ()
    """Reasoning efforts that the model can be asked for; none: it is not known which."""
    default_effort: str | None = None
    """Effort of requests for which none is set; None: the request names none."""
    verbosity: str | None = None
    """Verbosity of requests for which none is set; None: the request names none."""
    inputs: frozenset[str] = frozenset({TEXT, IMAGE})
    """Kinds of input: `text`, `image`, `audio`."""
    freeform_patch: bool = False
    """Whether a tool may take plain text by a grammar instead of JSON arguments."""
    parallel_calls: bool = True
    """Whether one answer may hold several calls."""
    web_search: bool = False
    """Whether the provider is known to search the web for the model."""
    hosted_tools: bool = True
    """Whether the API has a form for tools that the provider runs."""

    @property
    def images(self) -> bool:
        """Whether the model takes images as input."""
        return IMAGE in self.inputs


def served_by(features: ModelFeatures, provider: Provider | None) -> ModelFeatures:
    """Leave out what the provider's API has no form for; without a provider there is no model.

    Who searches the web is OpenAI: other servers are asked only where the settings say so.
    """
    if provider is None:
        return features
    if provider.wire_api == "chat":
        return replace(features, freeform_patch=False, web_search=False, hosted_tools=False)
    return replace(features, web_search=features.web_search and provider.requires_openai_auth)


# The models that are known: a file of this package.
#
# The file holds facts that were observed, so a model that is not in it is no error: it gets the
# features of one whose name its own begins with, else those that are assumed of every model.
# Source: docs/config.md, "Models".


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """One model of the file."""

    name: str
    display_name: str
    description: str
    specialty: str | None = None
    hidden: bool = False
    """Not shown in lists unless asked for."""
    upgrade: str | None = None
    """The model that is recommended in its place."""
    context_window: int = UNKNOWN_WINDOW
    """Tokens that a thread may fill."""
    efforts: Sequence[str] = ()
    default_effort: str | None = None
    verbosity: str | None = None
    """`low`, `medium` or `high`."""
    inputs: Sequence[str] = ("text", "image")
    freeform_patch: bool = False
    parallel_calls: bool = True
    web_search: bool = False
    service_tiers: Sequence[str] = ()
    default_service_tier: str | None = None

    def features(self, name: str) -> ModelFeatures:
        """Return the features of a model of this name, with any provider."""
        return ModelFeatures(
            name=name,
            is_known=True,
            context_window=self.context_window,
            efforts=tuple(self.efforts),
            default_effort=self.default_effort,
            verbosity=self.verbosity,
            inputs=frozenset(self.inputs),
            freeform_patch=self.freeform_patch,
            parallel_calls=self.parallel_calls,
            web_search=self.web_search,
        )


_CONTENT = resources.files(__package__).joinpath("built_in.json").read_bytes()

ENTRIES = tuple(CatalogueEntry(**entry) for entry in from_json(_CONTENT))
"""In the order in which clients show them; the first is the default."""


OFFLINE_ENTRY = next(entry for entry in ENTRIES if entry.name == OFFLINE_MODEL)
"""Of the model that is part of this server; no other is like it."""


def find_entry(model: str) -> CatalogueEntry | None:
    """Find a model by its name, else by the longest name that its own begins with.

    A name like `vendor/model` is looked up without its first part too, as routers write it so.
    """
    if model == OFFLINE_MODEL:
        return OFFLINE_ENTRY
    names = [model]
    vendor, slash, rest = model.partition("/")
    if slash and vendor and "/" not in rest:
        names.append(rest)
    for name in names:
        found = [
            entry for entry in ENTRIES if name.startswith(entry.name) and entry is not OFFLINE_ENTRY
        ]
        if found:
            return max(found, key=lambda entry: len(entry.name))
    return None


def features_of(model: str, provider: Provider | None) -> ModelFeatures:
    """Return what a model can do at a provider; of an unknown one, what is safe to assume."""
    return served_by(_catalogued(model), provider)


@lru_cache(maxsize=64)
def _catalogued(model: str) -> ModelFeatures:
    entry = find_entry(model)
    return ModelFeatures(name=model) if entry is None else entry.features(model)


# Model lists of providers: the answer to `GET BASE_URL/models`, in the forms in use.
# The field that they share is a name; the size of the context has another name with each server.
# Source: the public API references of OpenAI ("List models"), llama.cpp's server
# (`meta.n_ctx_train`, `capabilities`), vLLM (`max_model_len`) and OpenRouter (`context_length`,
# `architecture`).


MAX_MODELS = 2_000
"""Of one list; what comes after them is left out."""
MAX_NAME_CHARS = 256
"""Of a model; one with a longer name is left out."""

_WINDOWS = ("context_window", "max_model_len", "context_length", "max_context_length")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One model of a provider's list; None: the list does not say."""

    name: str
    display_name: str | None = None
    context_window: int | None = None
    """Tokens."""
    inputs: frozenset[str] | None = None
    hidden: bool = False

    def over(self, features: ModelFeatures) -> ModelFeatures:
        """Put what the list says in the place of what was known or assumed."""
        if self.context_window is not None:
            features = replace(features, is_known=True, context_window=self.context_window)
        if self.inputs is not None:
            features = replace(features, inputs=self.inputs)
        return features


def parse_models(content: bytes) -> list[ListedModel]:
    """Read a list, in its order; entries that make no sense are left out, and repeated names.

    Raises:
        ValueError: it is no list of models.
    """
    document = from_json(content)
    if not isinstance(document, dict):
        raise ValueError("a list of models must be an object")
    entries = document.get("data", document.get("models"))
    if not isinstance(entries, list):
        raise ValueError("a list of models must have `data` or `models`")
    # Beside `data`, llama.cpp's server says in `models` what each of them can take.
    others = document.get("models")
    beside = (
        {_name(entry): entry for entry in others if isinstance(entry, dict)}
        if (isinstance(others, list))
        else {}
    )
    found: dict[str, ListedModel] = {}
    for entry in entries:
        name = _name(entry)
        if isinstance(entry, dict) and name and len(name) <= MAX_NAME_CHARS:
            found.setdefault(name, _listed(name, {**beside.get(name, {}), **entry}))
        if len(found) == MAX_MODELS:
            break
    return list(found.values())


def _name(entry: Json) -> str | None:
    if not isinstance(entry, dict):
        return None
    for key in ("id", "slug", "model", "name"):
        if isinstance(name := entry.get(key), str):
            return name
    return None


def _listed(name: str, entry: JsonObject) -> ListedModel:
    shown = entry.get("display_name")
    return ListedModel(
        name=name,
        display_name=shown if isinstance(shown, str) and shown else None,
        context_window=_window(entry),
        inputs=_inputs(entry),
        hidden=entry.get("visibility") in ("hide", "none"),
    )


def _window(entry: JsonObject) -> int | None:
    meta = entry.get("meta")
    values = [entry.get(key) for key in _WINDOWS]
    if isinstance(meta, dict):
        # What the server was started with, where it says so, is less than the model was made for.
        values += [meta.get("n_ctx"), meta.get("n_ctx_train")]
    return next((value for value in values if type(value) is int and value > 0), None)


def _inputs(entry: JsonObject) -> frozenset[str] | None:
    architecture = entry.get("architecture")
    named = entry.get("input_modalities")
    if isinstance(architecture, dict):
        named = architecture.get("input_modalities", named)
    if isinstance(named, list):
        return frozenset({TEXT, *(kind for kind in named if isinstance(kind, str))})
    abilities = entry.get("capabilities")
    if isinstance(abilities, Sequence) and "completion" in abilities:
        return frozenset({TEXT, IMAGE} if "multimodal" in abilities else {TEXT})
    return None


FETCH_S = 2.0
"""For an answer; a turn may wait for it."""
KEPT_S = 300.0
"""Until a list is fetched again by who needs it."""
FAILED_S = 60.0
"""Until a provider that gave none is asked again."""
MAX_KEPT = 64
"""Lists, of which the oldest goes first."""


_Key: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class _Answer:
    models: Mapping[str, ListedModel] | None = None
    """By name; None: the provider gave no list."""


class ListSource(Protocol):
    """Client that asks providers for their lists."""

    async def prepare(self) -> None:
        """Load what asking needs, which is no wait for a provider.

        Raises:
            LoadFailed: it cannot be imported now.
        """

    async def list_models(self, provider: Provider) -> bytes:
        """Ask a provider for its models.

        Raises:
            ModelFailure: it gives none.
        """


class ModelLists:
    """Cache of the model lists of providers."""

    def __init__(
        self,
        source: ListSource,
        now: Callable[[], float] = time.monotonic,
        *,
        fetch_s: float = FETCH_S,
    ) -> None:
        """Cache the lists of `source`, which has `fetch_s` seconds to answer."""
        self._source = source
        self._fetch_s = fetch_s
        self.failed_s = FAILED_S
        """Seconds until a provider that gave no list is asked again."""
        self._kept: TtlCache[_Key, _Answer] = TtlCache(MAX_KEPT, now)
        self._asking: dict[_Key, asyncio.Task[None]] = {}

    def features(self, model: str, provider: Provider | None) -> ModelFeatures:
        """Return what a model can do, by the catalogue and by what is known of its provider."""
        features = features_of(model, provider)
        # A list that is too old by now is better than none.
        last = None if provider is None else self._kept.last((provider.id, provider.base_url))
        listed = None if last is None or last.models is None else last.models.get(model)
        return features if listed is None else listed.over(features)

    async def models(self, provider: Provider) -> Sequence[ListedModel] | None:
        """Return a provider's list, at most KEPT_S old; None: it gives none.

        Waits at most `fetch_s` for the provider. All who ask at once wait for one answer.
        """
        if provider.id == OFFLINE:
            return [ListedModel(name=OFFLINE_MODEL)]
        if provider.requires_openai_auth:
            # Its list has all that was ever served and says nothing of any: the catalogue counts.
            return None
        key = provider.id, provider.base_url
        kept = self._kept.get(key)
        if kept is None:
            task = self._asking.get(key)
            if task is None:
                work = self._ask(key, provider)
                task = self._asking[key] = asyncio.create_task(work, context=Context())
            # Who is cancelled takes nothing from the others.
            await asyncio.shield(task)
            kept = self._kept.last(key)
        return None if kept is None or kept.models is None else list(kept.models.values())

    async def aclose(self) -> None:
        """Stop asking."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, key: _Key, provider: Provider) -> None:
        answer = _Answer()
        try:
            await self._source.prepare()
            async with asyncio.timeout(self._fetch_s):
                content = await self._source.list_models(provider)
            listed = await anyio.to_thread.run_sync(parse_models, content)
            answer = _Answer({model.name: model for model in listed})
        except (LoadFailed, ModelFailure, TimeoutError, ValueError) as exc:
            logger.info("provider %s gives no list of models: %s", provider.id, exc)
        finally:
            del self._asking[key]
        self._kept.put(key, answer, self.failed_s if answer.models is None else KEPT_S)


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


@dataclass(frozen=True, slots=True)
class ModelInForce:
    """The model that a thread's next request goes to."""

    provider: Provider | None
    """None: there is none of the name that the settings have."""
    features: ModelFeatures
    context_window: int
    """Tokens that clients are shown as the context."""
    compact_at: int | None
    """Tokens from which on a request is made only after a compaction; None: never."""


@dataclass(slots=True)
class ThreadModel:
    """The models of one loaded thread, of which one is in force."""

    thread: LiveThread
    settings: ModelSettings
    lists: ModelLists
    _has_warned: bool = field(default=False, init=False)

    def in_force(self) -> ModelInForce:
        """Look up the model that the settings name now."""
        settings, chosen = self.settings, self.thread.state.in_force
        provider = settings.providers.get(chosen.model_provider)
        if provider is not None:
            provider = _with_originator(provider, self.thread.state.created.originator)
        features = self.lists.features(chosen.model, provider)
        if settings.verbosity is not None:
            features = replace(features, verbosity=settings.verbosity)
        window, limit = settings.context_window, settings.compact_limit
        if window is None and limit != 0 and features.is_known:
            window = features.context_window
        share = int(window * WINDOW_SHARE) if window else None
        return ModelInForce(
            provider,
            features,
            context_window=settings.context_window or features.context_window,
            compact_at=min((each for each in (limit, share) if each), default=None),
        )

    async def prepare(self) -> str | None:
        """Before a turn's first request: ask the provider about a model that is not known.

        Returns a warning for clients, once, of a model of which nothing is known, neither here nor
        there, and of whose context the settings say nothing.
        """
        model = self.in_force()
        if model.provider is None or model.features.is_known:
            return None
        await self.lists.models(model.provider)
        model = self.in_force()
        known = model.features.is_known or self.settings.context_window is not None
        if known or self._has_warned:
            return None
        self._has_warned = True
        return (
            f"Nothing is known of the model `{self.thread.state.in_force.model}`: it is treated "
            f"like one with a context of {model.context_window} tokens that takes text and images. "
            "Set `model_context_window` to what it can take."
        )


def _with_originator(provider: Provider, client: str | None) -> Provider:
    """Let requests say which client began the thread, as those of Codex do."""
    if not client or not (client.isascii() and client.isprintable()):
        # No text of a header (RFC 9110, section 5.5).
        return provider
    headers = {"originator": client.strip(), **provider.http_headers}
    return replace(provider, http_headers=headers)
