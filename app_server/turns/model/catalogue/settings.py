"""What the configuration says of a thread's models.

Source: docs/config.md, "Models".
"""

from app_server.config.values import Config
from app_server.turns.model.catalogue.providers import read_providers
from app_server.turns.model.catalogue.thread_model import ModelSettings

VERBOSITIES = ("low", "medium", "high")


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
