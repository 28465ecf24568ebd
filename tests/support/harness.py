"""What tests share: a server in this process, and a client with a transcript.

Every wait has a deadline; a failing test prints what was said on every connection
(`tests/support/pytest_plugins/transcripts.py`). A message of the server's that does not fit its
wire type fails the test.
"""

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest

# Imported here so that no test waits for them, or has its event loop slowed by them.
from app_server.config.editing.file import ConfigFile
from app_server.config.unchanged import QUIET_S, is_settled, stamp_of
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.handlers.integrations.apps_port import AppsPort
from app_server.handlers.services import Services
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from app_server.transport.address import Address, TcpAddress
from app_server.turns.approval.persistent import PersistentApprovals
from tests.support.model import ScriptedModel
from tests.support.paths import MCP_PEER
from tests.support.pytest_plugins.transcripts import TRANSCRIPTS
from tests.support.wire.pipes import Pipe, SocketPipe, socket_pipe
from tests.support.wire.schema_check import MessageCheck

WAIT_S = 120.0
"""The longest that a test waits for what must happen: a busy machine is no failure."""
REQUIREMENTS = "requirements.toml"
"""In the home folder of a server under test, so that no test sees those of the machine."""


Function = TypeVar("Function", bound=Callable[..., Any])

CLAIMS: dict[str, list[str]] = {}
"""Claim id to the tests that prove it; filled by `claim` at import."""


def claim(*ids: str) -> Callable[[Function], Function]:
    """Mark a test as proof of claims in docs/wire.md."""

    def mark(function: Function) -> Function:
        for claim_id in ids:
            CLAIMS.setdefault(claim_id, []).append(function.__qualname__)
        return function

    return mark


# The client.


class WireError(Exception):
    """The server answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")


class WireClient:
    """One connection, with everything that was said on it."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self._check = MessageCheck()
        self._next_id = 0
        self._kept: list[dict[str, Any]] = []
        self.transcript: list[str] = []
        TRANSCRIPTS.append(self.transcript)

    async def initialize(
        self, name: str = "test", *, experimental: bool = True, **capabilities: Any
    ) -> Any:
        """Shake hands."""
        result = await self.call(
            "initialize",
            {
                "clientInfo": {"name": name, "title": None, "version": "1"},
                "capabilities": {"experimentalApi": experimental, **capabilities},
            },
        )
        await self.send({"method": "initialized"})
        return result

    async def send(self, message: Any) -> None:
        """Send a JSON value, or text as it is."""
        text = message if isinstance(message, str) else json.dumps(message)
        self.transcript.append(f"> {text[:2000]}")
        self._check.sent(text)
        await self.pipe.send(text)

    async def receive(self) -> Any:
        """Return the next message of the server."""
        if self._kept:
            return self._kept.pop(0)
        with anyio.fail_after(WAIT_S):
            text = await self.pipe.receive()
        self.transcript.append(f"< {text[:2000]}")
        message = json.loads(text)
        self._check.received(message)
        return message

    async def request(self, method: str, params: Any = None) -> int:
        """Send a request and return its id."""
        self._next_id += 1
        message = {"id": self._next_id, "method": method}
        await self.send(message if params is None else {**message, "params": params})
        return self._next_id

    async def answer(self, request_id: Any) -> Any:
        """Return the answer to a request; what comes before it is kept for later."""
        kept: list[dict[str, Any]] = []
        while True:
            message = await self.receive()
            if "method" not in message and message.get("id") == request_id:
                self._kept = kept + self._kept
                return message
            kept.append(message)

    async def call(self, method: str, params: Any = None) -> Any:
        """Call a method and return its result, or raise WireError."""
        message = await self.answer(await self.request(method, params))
        if "error" in message:
            raise WireError(message["error"])
        return message["result"]

    async def refusal(self, method: str, params: Any = None) -> WireError:
        """Call a method that must fail and return the error."""
        with pytest.raises(WireError) as caught:
            await self.call(method, params)
        return caught.value

    async def wait_for(
        self, method: str, matches: Callable[[Any], bool] = lambda params: True
    ) -> Any:
        """Return the first notification or request that matches; drop what comes before it."""
        while True:
            message = await self.receive()
            if message.get("method") == method and matches(message["params"]):
                return message

    async def until(self, method: str) -> list[dict[str, Any]]:
        """Return all messages up to and with the first of this method."""
        messages = []
        while True:
            messages.append(await self.receive())
            if messages[-1].get("method") == method:
                return messages

    def take_kept(self) -> list[dict[str, Any]]:
        """Return and drop what came before answers, and what nobody has waited for."""
        kept, self._kept = self._kept, []
        return kept

    async def turn(self, thread_id: str, text: str, **options: Any) -> Any:
        """Run a turn of text and return its `turn/completed`."""
        user_input = [{"type": "text", "text": text}]
        await self.call("turn/start", {"threadId": thread_id, "input": user_input, **options})
        message = await self.wait_for("turn/completed", lambda p: p["threadId"] == thread_id)
        return message["params"]["turn"]

    async def start_thread(self, **params: Any) -> str:
        """Start a thread, wait until it was announced, and return its id."""
        result = await self.call("thread/start", params)
        thread_id: str = result["thread"]["id"]
        await self.wait_for("thread/started", lambda p: p["thread"]["id"] == thread_id)
        return thread_id


async def let_stand(client: WireClient, file: Path) -> None:
    """Make requests until the server has seen a file that nobody has written for QUIET_S.

    Only such a version of config.toml stands in for one that an edit breaks: tests are quicker.
    """
    is_seen = False
    while not is_seen:
        is_seen = is_settled(stamp_of(file), time.time_ns(), QUIET_S)
        await client.call("config/read", {})


def methods_of(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the methods of messages; answers count as `answer`."""
    return [str(message.get("method", "answer")) for message in messages]


# The server.


@dataclass
class Served:
    """A server in this process."""

    app: AppServer
    urls: Sequence[str]
    model: ScriptedModel
    home: Path

    @property
    def services(self) -> Services:
        """What its handlers work with."""
        assert self.app.services is not None, "it runs"
        return self.app.services

    @asynccontextmanager
    async def pipe(self, url: str | None = None, **more: Any) -> AsyncIterator[SocketPipe]:
        """Connect without a handshake; `more` is for the WebSocket."""
        async with socket_pipe(url or self.urls[0], WAIT_S, **more) as pipe:
            yield pipe

    @asynccontextmanager
    async def client(
        self, *, experimental: bool = True, **capabilities: Any
    ) -> AsyncIterator[WireClient]:
        """Connect and shake hands."""
        async with self.pipe() as pipe:
            client = WireClient(pipe)
            await client.initialize(experimental=experimental, **capabilities)
            yield client


@asynccontextmanager
async def serve(
    home: Path,
    *,
    config: str = "",
    model: ScriptedModel | None = None,
    listen: Sequence[Address] = (TcpAddress("127.0.0.1", 0),),
    extensions: ExtensionRegistry | None = None,
    with_apps: bool = False,
    apps: AppsPort | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """Run a server on `home` while the context lasts; `config` is added to its config.toml.

    It has no extensions but the given ones; the apps of ChatGPT only `with_apps`. With
    `watches_files` idle threads follow edits of files, too; a `clock` stands in for the machine's.
    """
    clock = settings.pop("clock", None)
    async with (model or ScriptedModel()).serve() as scripted:
        write_config(home, scripted.url, config)
        requirements = home / REQUIREMENTS
        options = Settings(
            home=home,
            requirements=requirements,
            listen=listen,
            cwd=home,
            user_home=home,
            **{"watches_files": False, **settings},
        )
        if extensions is None and not with_apps:
            extensions = ExtensionRegistry()
        app = AppServer(options, extensions=extensions, apps=apps, clock=clock)
        ready: asyncio.Future[Sequence[str]] = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(app.run(ready.set_result))
        try:
            waiting: list[asyncio.Future[Any]] = [task, ready]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
            await app.loaded.wait()
            if app.services is None:
                await task
            yield Served(app, ready.result(), scripted, home)
        finally:
            app.stop()
            app.stop()
            with anyio.CancelScope(shield=True), anyio.fail_after(WAIT_S):
                await task


def approvals_in(home: Path) -> PersistentApprovals:
    """Return where the approvals of a home without extensions are written down."""
    return PersistentApprovals(ConfigFile(home), ExtensionRegistry())


def write_config(home: Path, model_url: str, config: str = "") -> None:
    """Write a config.toml that points at a scripted model."""
    home.mkdir(parents=True, exist_ok=True)
    tables = config.find("\n[")
    plain, rest = (config, "") if tables < 0 else (config[:tables], config[tables:])
    if config.startswith("["):
        plain, rest = "", config
    (home / "config.toml").write_text(
        f'model = "scripted"\nmodel_provider = "scripted"\n{plain}\n'
        f'[model_providers.scripted]\nname = "scripted"\nbase_url = "{model_url}"\n'
        f"request_max_retries = 0\nstream_max_retries = 0\n{rest}\n"
    )


def stdio_server(name: str, *arguments: str, **keys: str) -> str:
    """Write the table of an MCP server: that of MCP_PEER, with the given arguments."""
    lines = [f"[mcp_servers.{name}]", f"command = {json.dumps(sys.executable)}"]
    lines.append(f"args = {json.dumps([str(MCP_PEER), *arguments])}")
    lines.extend(f"{key} = {value}" for key, value in keys.items())
    return "\n".join(lines) + "\n"


def environment_without(*names: str) -> dict[str, str]:
    """Return this process's environment without some variables and without proxies."""
    return {
        key: value
        for key, value in os.environ.items()
        if key not in names and not re.search("proxy", key, re.IGNORECASE)
    }
