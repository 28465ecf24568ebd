"""The lists of models that providers give, asked for when somebody needs one, and kept for a while.

A provider that gives none costs nobody a failure: it is as if it had said nothing.
Knows: providers, and who fetches. Does not know: HTTP, threads.
Source: docs/config.md, "Models".
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from typing import TypeAlias

import anyio.to_thread
from pydantic_core import from_json

from app_server.config.default_provider import OFFLINE
from app_server.models.catalogue.features import IMAGE, TEXT, ModelFeatures, features_of
from app_server.models.catalogue.providers import OFFLINE_MODEL
from app_server.models.interface import ModelFailure
from app_server.models.provider import Provider
from app_server.runtime.http.ttl_cache import TtlCache
from app_server.runtime.loader import LoadFailed
from protocol.model import Json, JsonObject

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


logger = logging.getLogger(__name__)

FETCH_S = 2.0
"""For an answer; a turn may wait for it."""
KEPT_S = 300.0
"""Until a list is fetched again by who needs it."""
FAILED_S = 60.0
"""Until a provider that gave none is asked again."""
MAX_KEPT = 64
"""Lists, of which the oldest goes first."""


async def _nothing() -> None:
    pass


_Key: TypeAlias = tuple[str, str | None]


@dataclass(frozen=True, slots=True)
class _Answer:
    models: Mapping[str, ListedModel] | None = None
    """By name; None: the provider gave no list."""


class ModelLists:
    """Cache of the model lists of providers."""

    def __init__(
        self,
        fetch: Callable[[Provider], Awaitable[bytes]],
        prepare: Callable[[], Awaitable[None]] = _nothing,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch` asks a provider, and may raise ModelFailure.

        `prepare` loads what that needs, which is no wait for a provider; it may raise LoadFailed.
        """
        self._fetch = fetch
        self._prepare = prepare
        self._kept: TtlCache[_Key, _Answer] = TtlCache(MAX_KEPT, now)
        self._asking: dict[_Key, asyncio.Task[None]] = {}

    def features(self, model: str, provider: Provider | None) -> ModelFeatures:
        """Return what a model can do, by the catalogue and by what is known of its provider."""
        features = features_of(model, provider)
        # A list that is too old by now is better than none.
        last = None if provider is None else self._kept.last(_key(provider))
        listed = None if last is None or last.models is None else last.models.get(model)
        return features if listed is None else listed.over(features)

    async def models(self, provider: Provider) -> Sequence[ListedModel] | None:
        """Return a provider's list, at most KEPT_S old; None: it gives none.

        Waits at most FETCH_S for the provider. All who ask at once wait for one answer.
        """
        if provider.id == OFFLINE:
            return [ListedModel(name=OFFLINE_MODEL)]
        if provider.requires_openai_auth:
            # Its list has all that was ever served and says nothing of any: the catalogue counts.
            return None
        key = _key(provider)
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
            await self._prepare()
            async with asyncio.timeout(FETCH_S):
                content = await self._fetch(provider)
            listed = await anyio.to_thread.run_sync(parse_models, content)
            answer = _Answer({model.name: model for model in listed})
        except (LoadFailed, ModelFailure, TimeoutError, ValueError) as exc:
            logger.info("provider %s gives no list of models: %s", provider.id, exc)
        finally:
            del self._asking[key]
        self._kept.put(key, answer, FAILED_S if answer.models is None else KEPT_S)


def _key(provider: Provider) -> _Key:
    return provider.id, provider.base_url
