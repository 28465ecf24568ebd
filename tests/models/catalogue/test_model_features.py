"""What is known of models, and what is assumed of others."""

import pytest

from app_server.models.catalogue.models import (
    ENTRIES,
    UNKNOWN_WINDOW,
    ModelFeatures,
    features_of,
    find_entry,
)
from app_server.models.catalogue.providers import DEFAULT_MODEL
from app_server.models.interface import Provider

OPENAI = Provider("openai", "OpenAI", "http://127.0.0.1/v1", requires_openai_auth=True)
CUSTOM = Provider("p", "p", "http://127.0.0.1/v1")
CHAT = Provider("c", "c", "http://127.0.0.1/v1", wire_api="chat")


def test_the_default_model_is_the_first_of_the_catalogue() -> None:
    assert ENTRIES[0].name == DEFAULT_MODEL


def test_the_catalogue_is_consistent() -> None:
    names = [entry.name for entry in ENTRIES]
    assert len(set(names)) == len(names)
    for entry in ENTRIES:
        assert entry.default_effort is None or entry.default_effort in entry.efforts
        assert entry.upgrade is None or entry.upgrade in names
        assert entry.context_window > 0
        assert set(entry.inputs) <= {"text", "image", "audio"}
        assert entry.default_service_tier in (None, *entry.service_tiers)


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("gpt-5.5", "gpt-5.5"),
        ("gpt-5.5-2026-01-01", "gpt-5.5"),
        ("gpt-6.1-sol-next", "gpt-6.1-sol"),
        ("router/gpt-5.5", "gpt-5.5"),
        ("/gpt-5.5", None),
        ("a/b/gpt-5.5", None),
        ("my-gpt-5.5", None),
        ("offline", "offline"),
        ("offline-llama", None),
        ("router/offline", None),
        ("llama", None),
        ("", None),
    ],
)
def test_a_model_is_found_by_the_beginning_of_its_name(model: str, entry: str | None) -> None:
    found = find_entry(model)
    assert (None if found is None else found.name) == entry


def test_an_unknown_model_gets_what_is_safe() -> None:
    assert features_of("llama", CUSTOM) == ModelFeatures(
        name="llama",
        is_known=False,
        context_window=UNKNOWN_WINDOW,
        efforts=(),
        default_effort=None,
        verbosity=None,
        inputs=frozenset({"text", "image"}),
        freeform_patch=False,
        parallel_calls=True,
        web_search=False,
    )


def test_a_known_model_can_do_what_its_provider_has_a_form_for() -> None:
    at_openai, elsewhere, by_chat = (
        features_of("gpt-5.5", provider) for provider in (OPENAI, CUSTOM, CHAT)
    )
    assert at_openai == ModelFeatures(
        name="gpt-5.5",
        is_known=True,
        context_window=258_400,
        efforts=("low", "medium", "high", "xhigh"),
        default_effort="medium",
        verbosity="low",
        freeform_patch=True,
        web_search=True,
    )
    assert (elsewhere.freeform_patch, elsewhere.web_search) == (True, False)
    assert (by_chat.freeform_patch, by_chat.web_search) == (False, False)
    assert at_openai.images
