"""The check of the configuration that ends a start: `--strict-config`.

Source: docs/config.md, "Unknown keys".
"""

import anyio.to_thread

from app_server.config.effective import Configuration
from app_server.handlers.server.config_check import check_settings
from app_server.handlers.threads.configured import config_for
from app_server.models.catalogue.providers import chosen_provider
from app_server.server.settings import Settings


async def check_strictly(settings: Settings) -> None:
    """Check the files, the command line, and the project that the server is started in.

    Raises:
        ConfigError: a key is unknown, a value does not fit, or there is no provider of the name
            that is chosen; the first that is found.
    """
    configuration = Configuration(settings.sources, is_strict=True)
    config, _ = await config_for(configuration, None, str(settings.cwd))
    await anyio.to_thread.run_sync(check_settings, config)
    chosen_provider(config)
