"""Apps of a server whose settings cannot be used when it is started."""

from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.accounts.account_settings import AccountSettings
from app_server.accounts.accounts import Accounts
from app_server.apps.lazy import LazyApps
from app_server.config.effective import ConfigSources, Configuration
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.server import core
from tests.support.harness import REQUIREMENTS, WAIT_S


class Watched(LazyApps):
    """Says when apps are given up, and when they are served; serves none."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.given_up = anyio.Event()
        self.served = anyio.Event()

    def give_up(self, failure: Exception | None = None) -> None:
        super().give_up(failure)
        self.given_up.set()

    async def run(self, auth: Any, registry: Any, base_url: str | None = None) -> None:
        self.served.set()
        await anyio.sleep_forever()


async def test_apps_are_served_once_the_settings_are_corrected(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    demands = tmp_path / REQUIREMENTS
    demands.write_text("= 1")
    configuration = Configuration(ConfigSources(tmp_path, tmp_path, demands))

    async def settings() -> AccountSettings:
        return AccountSettings()

    watched = Watched(tmp_path, None, None)
    with anyio.fail_after(WAIT_S):
        async with anyio.create_task_group() as tasks:
            accounts = Accounts(tmp_path, settings, lambda: 0)
            soon = partial(core.serve_apps, retry_first_s=0.01)
            tasks.start_soon(soon, watched, ExtensionRegistry(), accounts, configuration)
            await watched.given_up.wait()
            demands.unlink()
            await watched.served.wait()
            tasks.cancel_scope.cancel()
    # The check of the configuration says what is wrong.
    assert caplog.messages == []
