"""Models as clients see them: from the catalogue, from what a provider lists, or from a name.

Source: observed behaviour of Codex's `model/list`; docs/config.md, "Models".
"""

from collections.abc import Sequence

from app_server.models.catalogue.built_in import (
    ENTRIES,
    OFFLINE_ENTRY,
    CatalogueEntry,
    find_entry,
)
from app_server.models.catalogue.features import IMAGE, TEXT
from app_server.models.catalogue.listed import ListedModel
from protocol.server.models import Model, ModelServiceTier, ModelUpgradeInfo, ReasoningEffortOption

EFFORTS = {
    "none": "no thinking",
    "minimal": "as little thinking as possible",
    "low": "quick answers",
    "medium": "a balance of speed and depth",
    "high": "thorough thinking",
    "xhigh": "very thorough thinking",
    "max": "as much thinking as it takes",
}
ASSUMED_EFFORTS = ("minimal", "low", "medium", "high")
"""What clients may offer for a model of which it is not known."""
ASSUMED_EFFORT = "medium"

TIERS = {"priority": ModelServiceTier(id="priority", name="Fast", description="Answers sooner.")}
TIER_WORDS = {"priority": "fast"}
"""The older names of tiers."""


def shown_models(
    chosen: str, provider_name: str, listed: Sequence[ListedModel] | None
) -> list[Model]:
    """Return what can be chosen of a provider; `chosen` is the model of threads that name none.

    That are the models that the provider lists, those of the catalogue first; the catalogue, if it
    lists none. The chosen one is always there, and comes first if it is in neither.
    """
    if listed is None:
        models = [_known(entry, entry.name) for entry in ENTRIES if entry is not OFFLINE_ENTRY]
    else:
        models = sorted((_listed(model, provider_name) for model in listed), key=_rank)
    if all(model.model != chosen for model in models):
        entry = find_entry(chosen)
        if entry is None or entry.name != chosen:
            models.insert(0, _unknown(chosen, provider_name))
        else:
            models.insert(0, _known(entry, chosen))
    for model in models:
        if model.model == chosen:
            model.is_default, model.hidden = True, False
    return models


def _rank(model: Model) -> int:
    names = [entry.name for entry in ENTRIES]
    return names.index(model.model) if model.model in names else len(names)


def _listed(model: ListedModel, provider_name: str) -> Model:
    entry = find_entry(model.name)
    if entry is not None and entry.name == model.name:
        shown = _known(entry, model.name)
    else:
        shown = _unknown(model.name, provider_name)
    shown.hidden = shown.hidden or model.hidden
    if model.display_name is not None:
        shown.display_name = model.display_name
    if model.inputs is not None:
        shown.input_modalities = [kind for kind in (TEXT, IMAGE, "audio") if kind in model.inputs]
    return shown


def _known(entry: CatalogueEntry, name: str) -> Model:
    return Model(
        id=name,
        model=name,
        upgrade=entry.upgrade,
        upgrade_info=None if entry.upgrade is None else ModelUpgradeInfo(model=entry.upgrade),
        display_name=entry.display_name,
        description=entry.description,
        model_specialty=entry.specialty,
        hidden=entry.hidden,
        supported_reasoning_efforts=_options(entry.efforts),
        default_reasoning_effort=entry.default_effort or ASSUMED_EFFORT,
        input_modalities=list(entry.inputs),
        additional_speed_tiers=[TIER_WORDS[tier] for tier in entry.service_tiers],
        service_tiers=[TIERS[tier] for tier in entry.service_tiers],
        default_service_tier=entry.default_service_tier,
        is_default=False,
    )


def _unknown(name: str, provider_name: str) -> Model:
    return Model(
        id=name,
        model=name,
        display_name=name,
        description=f"A model of {provider_name}.",
        hidden=False,
        supported_reasoning_efforts=_options(ASSUMED_EFFORTS),
        default_reasoning_effort=ASSUMED_EFFORT,
        is_default=False,
    )


def _options(efforts: Sequence[str]) -> list[ReasoningEffortOption]:
    return [
        ReasoningEffortOption(reasoning_effort=effort, description=EFFORTS.get(effort, effort))
        for effort in efforts
    ]
