"""What the service of apps publishes."""

from pydantic import SecretStr

from tests.support.apps.service import Apps


async def published(apps: Apps) -> tuple[str, SecretStr]:
    """Return where a connector's route is, and its bearer."""
    await apps.service.prepare_mcp_servers(apps.config)
    apps.contribute("current")
    shown = apps.service.shown_to("thread")
    assert shown is not None
    server = "codex_apps__cal"
    return shown.generation.url(server), shown.generation.bearer(server)
