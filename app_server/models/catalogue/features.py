"""Features of a model, and those assumed of an unknown one. No I/O.

Source: docs/config.md, "Models".
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import resources

from pydantic_core import from_json

from app_server.models.catalogue.providers import OFFLINE_MODEL
from app_server.models.provider import Provider

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
    entry = find_entry(model)
    features = ModelFeatures(name=model) if entry is None else entry.features(model)
    return served_by(features, provider)
