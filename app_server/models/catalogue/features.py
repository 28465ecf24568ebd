"""Features of a model, and those assumed of an unknown one. No I/O.

Source: docs/config.md, "Models".
"""

from dataclasses import dataclass, replace

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
