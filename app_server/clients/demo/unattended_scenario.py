"""The demo of work that nobody watches: a build, a wake, an approval, a crash, a budget.

Clients come and go; what happens meanwhile is told by a webhook to a small receiver. The offline
model is asked no more often than there is something for it to do, and the ledger says so.
Source: docs/unattended.md.
"""

import secrets
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import TypeAlias

import anyio
from pydantic_core import to_json
from standardwebhooks import Webhook, WebhookVerificationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app_server.clients.demo.process import WAIT_S, start_server, stop_server
from app_server.clients.demo.thread import SERVER, DemoThread, configure
from app_server.clients.demo.transcript import CheckFailed, Transcript
from app_server.peer.connection import Client
from app_server.runtime.http.loopback_server import serve_on_loopback
from protocol.model import JsonObject

ASKED = "mcpServer/elicitation/request"
BUILD_S = 3
BUILD = f"sleep {BUILD_S}; echo the build is green"
LOOK = f'/tool {SERVER}.look {{"at": "the harbour"}}'
NOTE = "Look at the harbour again."
TIMER_MS = 3000
TURNS = 3
"""Of the budget: for the build, the wake by its end, and the tool."""
PRICE = Decimal("2")
"""Of a million tokens, in and out."""
COUNTED = ("inputTokens", "outputTokens", "requests")
REQUESTS = {"user": 5, "wake": 1}
"""For the build and the tool: the call, and what came back; and to go on with a larger budget."""
LINK = "http://127.0.0.1:4580/"
"""Where `app-server inspect --port 4580` would be."""
EVENTS = ("approvalRequested", "budgetReached", "turnCompleted")


class Receiver:
    """Receiver of the server's webhooks; it believes what is signed with the secret."""

    def __init__(self, secret: str) -> None:
        self.url = ""
        self._webhook = Webhook(secret)
        self._ids: set[str] = set()
        self._events: list[JsonObject] = []
        self._came = anyio.Event()

    async def receive(self, request: Request) -> Response:
        """Take one event; the same one comes again where an answer was lost."""
        try:
            event = self._webhook.verify(await request.body(), dict(request.headers))
        except WebhookVerificationError:
            return Response(status_code=401)
        if event["data"]["id"] not in self._ids:
            self._ids.add(event["data"]["id"])
            self._events.append(event)
            self._came.set()
        return Response(status_code=204)

    async def next(self, kind: str) -> JsonObject:
        """Return the data of the next event of a type; others before it are passed over.

        Raises:
            CheckFailed: none came.
        """
        with anyio.move_on_after(WAIT_S):
            while True:
                while self._events:
                    event = self._events.pop(0)
                    if event["type"] == kind:
                        data: JsonObject = event["data"]
                        return data
                self._came = anyio.Event()
                await self._came.wait()
        raise CheckFailed(f"no webhook {kind} came in {WAIT_S:g} s")


@asynccontextmanager
async def receiver(secret: str) -> AsyncIterator[Receiver]:
    """Serve a receiver on a free port of this machine while the context lasts."""
    made = Receiver(secret)
    routes = [Route("/", made.receive, methods=["POST"])]
    async with serve_on_loopback(Starlette(routes=routes)) as port:
        made.url = f"http://127.0.0.1:{port}/"
        yield made


Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Client]]


async def run(transcript: Transcript, home: Path, /) -> None:
    """Run the demo in an empty folder."""
    secret = f"whsec_{b64encode(secrets.token_bytes(32)).decode()}"
    async with receiver(secret) as webhooks:
        _configure(home, webhooks, secret)
        async with AsyncExitStack() as stack:
            with transcript.step("Start a server, and a receiver of its webhooks"):
                server = await stack.enter_async_context(start_server(home))
                transcript.say("server", f"listens on {server.url}, tells {webhooks.url}")
            thread_id = await _begin_build(transcript, server.connect)
            await _wait_for_build(transcript, webhooks, thread_id)
            await _approve(transcript, webhooks, server.connect, thread_id)
            with transcript.step("Arm a timer, and kill the server before its time"):
                async with server.connect() as client:
                    due_at = await _arm(transcript, client, thread_id)
                await server.kill()
                transcript.say("server", "was killed")
                await anyio.sleep(max(0.0, due_at - time.time()))
        async with AsyncExitStack() as stack:
            with transcript.step("Start it again: the timer fires late, and the budget stops it"):
                server = await stack.enter_async_context(start_server(home))
                reached = await webhooks.next("budgetReached")
                transcript.check("a webhook says so", reached["threadId"] == thread_id)
            async with server.connect() as client:
                thread = DemoThread(transcript, client, thread_id)
                await _raise_budget(thread)
                await _add_up(thread)
            await stop_server(transcript, server)


def _configure(home: Path, webhooks: Receiver, secret: str) -> None:
    """Write the settings: a tool that needs approval, wakes, a webhook, a price."""
    file = home / "webhook.secret"
    file.touch(0o600)
    file.write_text(secret)
    configure(
        home,
        'default_tools_approval_mode = "prompt"\n',
        f"wakes = true\nnotification_link = '{LINK}'\n",
    )
    with (home / "config.toml").open("a") as settings:
        settings.write(
            f"[[notifications]]\nevents = {list(EVENTS)}\nurl = '{webhooks.url}'\n"
            f"secret_file = '{file}'\n"
            f"[model_prices.offline]\nin = {PRICE}\nout = {PRICE}\ncurrency = 'EUR'\n"
        )


async def _begin_build(transcript: Transcript, connect: Connect) -> str:
    with transcript.step(f"A thread starts a build of {BUILD_S} s, and ends its turn"):
        async with connect() as client:
            chosen = {"sandbox": "workspace-write", "budget": {"turns": TURNS}}
            started = await client.call("thread/start", chosen)
            thread = DemoThread(transcript, client, started["thread"]["id"])
            transcript.say("server", f"thread {thread.id}, may have {TURNS} turns")
            await thread.wait_for_servers({SERVER})
            call = {"cmd": BUILD, "yield_time_ms": 250, "wake_on_exit": True}
            await thread.begin(f"/tool exec_command {to_json(call).decode()}")
            turn = await thread.end()
            transcript.check("the turn has ended", turn["status"] == "completed")
            params = {"threadId": thread.id}
            running = (await client.call("thread/backgroundTerminals/list", params))["data"]
            transcript.check("the build goes on", len(running) == 1)
        transcript.say("user", "goes home")
    return thread.id


async def _wait_for_build(transcript: Transcript, webhooks: Receiver, thread_id: str) -> None:
    with transcript.step("Nobody looks. The build ends"):
        ended = [await webhooks.next("turnCompleted") for _ in range(2)]
        turns = len({event["turnId"] for event in ended})
        transcript.check("the thread was woken: a webhook tells of another turn", turns == 2)
        transcript.check("it is of this thread", ended[1]["threadId"] == thread_id)


async def _approve(
    transcript: Transcript, webhooks: Receiver, connect: Connect, thread_id: str
) -> None:
    with transcript.step(
        "A tool needs an approval; a webhook tells so, and another client gives it"
    ):
        async with connect() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            await DemoThread(transcript, client, thread_id).begin(LOOK)
        asked = await webhooks.next("approvalRequested")
        transcript.say("webhook", f"approvalRequested: {asked['kind']}, see {asked['link']}")
        transcript.check("it names the thread", asked["threadId"] == thread_id)
        async with connect() as client:
            await client.call("thread/resume", {"threadId": thread_id})
            request_id, question = await client.asked(ASKED)
            transcript.say("server", question["message"])
            transcript.say("user", "accept")
            await client.reply(request_id, {"action": "accept", "content": {}})
        resolved = await webhooks.next("resolved")
        same = (resolved["questionId"], resolved["outcome"]) == (asked["questionId"], "answered")
        transcript.check("a webhook says that it was answered", same)
        ended = await webhooks.next("turnCompleted")
        transcript.check("the turn has ended", ended["turnId"] == asked["turnId"])


async def _arm(transcript: Transcript, client: Client, thread_id: str) -> float:
    """Arm a timer; returns when it is due, in seconds of Unix time."""
    due_ms = time.time_ns() // 1_000_000 + TIMER_MS
    source = {"type": "timer", "atMs": due_ms}
    params = {"threadId": thread_id, "source": source, "note": NOTE}
    wake = (await client.call("thread/wake/set", params))["wake"]
    transcript.check("it is on disk", wake["state"] == "armed")
    return due_ms / 1000


async def _raise_budget(thread: DemoThread) -> None:
    with thread.transcript.step("Raise the budget"):
        await thread.client.call("thread/resume", {"threadId": thread.id})
        stopped = (await thread.turns())[-1]
        error = stopped["error"] or {}
        ended = (stopped["status"], error.get("codexErrorInfo"))
        thread.transcript.check("its turn was ended", ended == ("interrupted", "budgetExceeded"))
        budget = {"threadId": thread.id, "budget": {"turns": 2 * TURNS}}
        await thread.client.call("thread/budget/set", budget)
        text = (await thread.items("agentMessage"))[-1]["text"]
        thread.transcript.say("model", text)
        thread.transcript.check("the thread goes on with what had waited", NOTE in text)
        await thread.end()


async def _add_up(thread: DemoThread) -> None:
    with thread.transcript.step("The ledger adds up"):
        by_turn, by_origin = [
            await thread.client.call("usage/read", {"threadId": thread.id, "groupBy": group})
            for group in ("turn", "origin")
        ]
        for row in by_origin["data"]:
            usage = row["usage"]
            tokens = usage["inputTokens"] + usage["outputTokens"]
            thread.transcript.say(row["group"], f"{usage['requests']} requests, {tokens} tokens")
        total = by_origin["total"]
        sums = [
            {name: sum(row["usage"][name] for row in read["data"]) for name in COUNTED}
            for read in (by_turn, by_origin)
        ]
        counted = {name: total[name] for name in COUNTED}
        thread.transcript.check("turns and origins have the same sums", sums == [counted] * 2)
        requests = {row["group"]: row["usage"]["requests"] for row in by_origin["data"]}
        thread.transcript.check(
            "no model was asked while there was nothing to do", requests == REQUESTS
        )
        cost = (total["inputTokens"] + total["outputTokens"]) * PRICE / 1_000_000
        (amount,) = total["cost"]
        exact = (Decimal(amount["amount"]), amount["currency"]) == (cost, "EUR")
        thread.transcript.say("ledger", f"{amount['amount']} {amount['currency']}")
        thread.transcript.check("the cost is the price of the tokens", exact)
