"""Policies of apps, their tools, and what is registered for them."""

import json
import tomllib
from collections.abc import Sequence
from typing import Any

from pydantic import SecretStr

from app_server.apps.inventory.inventory import AppTool, Connector, build_inventory
from app_server.apps.inventory.names import Route, allocate_routes
from app_server.apps.policy import AppsPolicy, Use, registrations
from app_server.apps.presentation import ApprovalTemplates, PresentedTools
from app_server.extensions.contract.registration import Owner, Registration
from tests.support.apps.inventories import listed
from tests.support.mcp_peers.shelf import Generation as CountingOwner

ORIGIN = "https://chatgpt.com"
NO_TEMPLATES = ApprovalTemplates()


def policy(config: str = "", requirements: str | None = None) -> AppsPolicy:
    demands = None if requirements is None else tomllib.loads(requirements)
    return AppsPolicy.read(tomllib.loads(config), demands)


def one(**members: Any) -> tuple[Connector, AppTool]:
    """Make a connector `gmail` with one tool `send`."""
    (connector,) = build_inventory([listed("send", **members)]).connectors
    return connector, connector.tools[0]


class Served:
    """A generation without a listener."""

    def __init__(self, *tools: dict[str, Any], id_: str = "1") -> None:
        self._owner = CountingOwner(id_)
        self._routes = allocate_routes(build_inventory(tools))

    @property
    def routes(self) -> Sequence[Route]:
        return self._routes

    @property
    def owner(self) -> Owner:
        return self._owner

    def url(self, server: str) -> str:
        return f"http://127.0.0.1:9/mcp/{server}"

    def bearer(self, server: str) -> SecretStr:
        return SecretStr(f"bearer of {server}")


def project(
    served: Served,
    config: str = "",
    plugins: dict[str, list[str]] | None = None,
    templates: ApprovalTemplates = NO_TEMPLATES,
) -> dict[str, Registration]:
    presented = {route.server: PresentedTools(route, templates) for route in served.routes}
    made = registrations(served, Use(policy(config), ORIGIN, plugins or {}), presented, {})
    assert len({registration.name for registration in made}) == len(made)
    return {registration.name: registration for registration in made}


SEND = listed("Gmail send", title="Gmail_Send", meta={"connector_description": "Mail."})


def templates(**members: Any) -> bytes:
    template = {
        "connector_id": "gmail",
        "server_name": "codex_apps",
        "tool_title": "Send",
        "template": "Let {connector_name} send it?",
        "template_params": [{"name": "to", "label": "To"}],
    }
    return json.dumps({"schema_version": 4, "templates": [template | members]}).encode()
