"""Which model provider threads have that name none.

Source: docs/config.md, "Models".
"""

import os
from dataclasses import replace

from app_server.config.values import Config

OPENAI = "openai"
OFFLINE = "offline"

OPENAI_KEY = "OPENAI_API_KEY"


def default_provider_id(config: Config) -> str:
    """Choose the provider of threads that name none.

    That is `model_provider`, else OpenAI if there is a key for it, else the offline stand-in; who
    reads the configuration of a server with an account finds `model_provider` set.
    """
    chosen = config.view().string("model_provider")
    return chosen or (OPENAI if os.environ.get(OPENAI_KEY) else OFFLINE)


def chooses_no_provider(config: Config) -> bool:
    """Whether only a sign-in could make OpenAI the default."""
    return config.document.get("model_provider") is None and not os.environ.get(OPENAI_KEY)


def with_openai(config: Config) -> Config:
    """Make OpenAI the default of a configuration that chooses none."""
    return replace(config, document={**config.document, "model_provider": OPENAI})
