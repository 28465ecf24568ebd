"""How much of a model's context a thread may fill before it is compacted."""

import pytest

from app_server.config.values import Config, ConfigError
from app_server.models.catalogue.models import ModelLists, ThreadModel, read_model_settings
from app_server.models.interface import Provider
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import begin
from tests.support.threads.stores import created


class NobodyIsAsked:
    """A client that must not be used."""

    async def prepare(self) -> None:
        raise AssertionError

    async def list_models(self, provider: Provider) -> bytes:
        raise AssertionError(provider)


@pytest.mark.parametrize(
    ("settings", "model", "limit"),
    [
        ({}, "unknown", None),
        ({"model_context_window": 1000}, "unknown", 900),
        ({"model_context_window": 1000}, "gpt-5.5", 900),
        ({"model_auto_compact_token_limit": 500}, "unknown", 500),
        ({"model_auto_compact_token_limit": 500, "model_context_window": 1000}, "unknown", 500),
        ({"model_auto_compact_token_limit": 5000, "model_context_window": 1000}, "unknown", 900),
        ({"model_auto_compact_token_limit": 0}, "unknown", None),
        ({}, "gpt-5.5", 232_560),
        ({"model_auto_compact_token_limit": 500}, "gpt-5.5", 500),
        ({"model_auto_compact_token_limit": 0}, "gpt-5.5", None),
    ],
)
def test_the_limit_is_the_smaller_of_what_is_configured_and_most_of_the_window(
    settings: dict[str, int], model: str, limit: int | None
) -> None:
    state = begin(created())
    state.settings = state.settings.model_copy(update={"model": model})
    thread = LiveThread(state, None, lambda _: None)
    read = read_model_settings(Config(settings))
    lists = ModelLists(NobodyIsAsked())
    assert ThreadModel(thread, read, lists).in_force().compact_at == limit


def test_a_verbosity_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown variant `loud`"):
        read_model_settings(Config({"model_verbosity": "loud"}))
