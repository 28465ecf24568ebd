"""Model lists of providers: the answer to `GET BASE_URL/models`, in the forms in use.

The field that they share is a name; the size of the context has another name with each server.
Source: the public API references of OpenAI ("List models"), llama.cpp's server (`meta.n_ctx_train`,
`capabilities`), vLLM (`max_model_len`) and OpenRouter (`context_length`, `architecture`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic_core import from_json

from app_server.models.catalogue.features import IMAGE, TEXT, ModelFeatures
from protocol.model import Json, JsonObject

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
