"""The hosted endpoint of the demo, as tests want it: it notes what comes, waits, answers wrong."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
from pydantic import SecretStr
from pydantic_core import from_json
from starlette.responses import Response

from app_server.apps.upstream.endpoint import UpstreamTarget, upstream_target
from app_server.clients.demo.hosted.endpoint import MCP_PATH, READS, HostedConnector, Run
from protocol.model import JsonObject
from tests.support.accounts.issuer_peer import make_jwt
from tests.support.apps.hooked_endpoint import Arrival, HookedEndpoint
from tests.support.changes import Changes

A_YEAR_3000 = 32_500_000_000


@dataclass
class Script:
    """What the endpoint is to do, and what it was asked.

    A request goes by the name of its MCP method, `answer` if it is one to the endpoint, or else by
    its HTTP method and path.
    """

    arrivals: list[tuple[str, Arrival]] = field(default_factory=list)
    answers: dict[str, list[Response]] = field(default_factory=dict)
    """Given, in order, before requests of a name are served."""
    holds: dict[str, anyio.Event] = field(default_factory=dict)
    """Requests of a name are served once this is set."""
    reached: dict[str, anyio.Event] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)
    """Noted with each request."""

    async def __call__(self, arrival: Arrival) -> Response | None:
        name = _name_of(arrival)
        self.arrivals.append((name, arrival))
        self.when(name).set()
        self.changes.note()
        if name in self.holds:
            await self.holds[name].wait()
        waiting = self.answers.get(name)
        return waiting.pop(0) if waiting else None

    def when(self, name: str) -> anyio.Event:
        """Return what is set when a request of a name comes."""
        return self.reached.setdefault(name, anyio.Event())

    def names(self) -> list[str]:
        """Return what came, in order."""
        return [name for name, _ in self.arrivals]

    def messages(self, name: str) -> list[JsonObject]:
        """Return the messages of requests of a name."""
        return [from_json(arrival.body) for found, arrival in self.arrivals if found == name]

    def headers(self, name: str) -> list[Any]:
        """Return the headers of requests of a name."""
        return [arrival.headers for found, arrival in self.arrivals if found == name]


def _name_of(arrival: Arrival) -> str:
    if arrival.path == MCP_PATH and arrival.body:
        method: str = from_json(arrival.body).get("method", "answer")
        return method
    return f"{arrival.method} {arrival.path}"


@dataclass
class Hosted:
    """An endpoint that is being served."""

    endpoint: HookedEndpoint
    script: Script

    def target(self, **options: Any) -> UpstreamTarget:
        """Describe its account."""
        return upstream_target(self.endpoint.base_url, self.endpoint.token, **options)


@asynccontextmanager
async def serve_hosted(
    connectors: Sequence[HostedConnector] | None = None,
) -> AsyncIterator[Hosted]:
    """Serve the apps of the demo, or others."""
    script = Script()
    endpoint = HookedEndpoint(connectors, script)
    async with endpoint.serve():
        yield Hosted(endpoint, script)


def connector(*runs: tuple[str, Run], id_: str = "test") -> HostedConnector:
    """Make an app with read-only tools that do what is given."""
    bare = HostedConnector(id_, id_.title(), "An app of a test.")
    tools = tuple(bare.tool(name, name, {}, READS, run) for name, run in runs)
    return HostedConnector(id_, bare.name, bare.description, tools)


def sign_in(home: Path, hosted: Hosted) -> str:
    """Store a sign-in that the endpoint takes; gives the settings that lead there."""
    claims = {"chatgpt_account_id": "acct-1", "chatgpt_user_id": "user-1"}
    token = make_jwt(exp=A_YEAR_3000, **{"https://api.openai.com/auth": claims})
    hosted.endpoint.token, hosted.endpoint.account_id = SecretStr(token), "acct-1"
    tokens = {"id_token": token, "access_token": token, "refresh_token": "r"}
    stored = {"tokens": {**tokens, "account_id": "acct-1"}, "last_refresh": "2026-11-21T06:52:10Z"}
    (home / "auth.json").write_text(json.dumps(stored))
    return f'chatgpt_base_url = "{hosted.endpoint.base_url}"\n'
