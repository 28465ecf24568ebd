"""How nodes let one another in, and what becomes of addresses and secrets that are wrong."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import jwt
import psycopg
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

from app_server.config.node import GroupSettings, read_node
from app_server.config.values import Config, ConfigError
from app_server.fleet.routing import UNREACHABLE_S
from app_server.transport.node_tokens import ISSUER, LIFE_S
from app_server.transport.websocket import NODE_SUBPROTOCOL
from tests.support.harness import WAIT_S, write_config
from tests.support.model import ScriptedModel, says
from tests.support.processes import Running, run_cli, running, started
from tests.support.threads.nodes import SECRET, running_nodes

pytestmark = pytest.mark.postgresql


async def refused(url: str, token: str | None, protocol: str = NODE_SUBPROTOCOL) -> tuple[int, str]:
    """Return how a connection is refused: status and text."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with pytest.raises(InvalidStatus) as caught:
        async with connect(
            url, proxy=None, additional_headers=headers, subprotocols=[Subprotocol(protocol)]
        ):
            pass
    response = caught.value.response
    return response.status_code, (response.body or b"").decode()


async def test_whoever_shows_no_good_token_gets_one_answer(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url, 1) as nodes:
        (url,) = nodes.all[0].urls
        # Clients of this machine need none, as before.
        async with nodes.all[0].client() as client:
            await client.call("model/list", {})
        me, now_s = await asyncio.to_thread(_node_and_clock, database_url)
        good = {"iss": ISSUER, "sub": "a", "aud": me, "exp": now_s + LIFE_S, "jti": "c"}

        def signed(secret: str = SECRET, **claims: object) -> str:
            return jwt.encode({**good, **claims}, secret, "HS256")

        shown = signed(jti="shown before")
        headers = {"Authorization": f"Bearer {shown}"}
        subprotocols = [Subprotocol(NODE_SUBPROTOCOL)]
        async with connect(url, proxy=None, additional_headers=headers, subprotocols=subprotocols):
            pass
        tokens = [
            None,
            "no-token",
            shown,
            signed(exp=now_s - LIFE_S),
            signed(SECRET + " of another group"),
            signed(aud="another node"),
            signed(sub=me),
        ]
        answers = [await refused(url, token) for token in tokens]
        assert answers == [(401, "A bearer token is needed.\n")] * len(tokens)


def _node_and_clock(database_url: str) -> tuple[str, int]:
    """Return the id of the one node, and the time of the database."""
    with psycopg.connect(database_url) as connection:
        statement = "SELECT id::text, extract(epoch FROM clock_timestamp())::int FROM nodes"
        (row,) = connection.execute(statement).fetchall()
    return row[0], row[1]


@contextlib.asynccontextmanager
async def node(
    folder: Path, name: str, database_url: str, model: ScriptedModel, config: str
) -> AsyncIterator[Running]:
    write_config(folder / name, model.url, config)
    async with running(folder / name, options=["--store", database_url]) as server:
        yield server


async def test_addresses_that_lead_elsewhere_are_noticed(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "one").write_text(SECRET)
    (tmp_path / "two").write_text(SECRET + " of another group")
    secret = f'node_secret_file = "{tmp_path}/one"\n'
    async with ScriptedModel().serve() as model, contextlib.AsyncExitStack() as stack:
        model.scripts = [says("hi")]

        async def opened(name: str, config: str) -> Running:
            return await stack.enter_async_context(
                node(tmp_path, name, database_url, model, config)
            )

        asked = await opened("asked", secret)
        (url,) = asked.urls
        third = await opened("third", secret)
        wrong = {
            # One leads to the node that is asked, one to a third, one to a closed door.
            "itself": f'node_address = "{url}/x"\n{secret}',
            "elsewhere": f'node_address = "{third.urls[0]}/x"\n{secret}',
            "foreign": f'node_secret_file = "{tmp_path}/two"\n',
        }
        client = await stack.enter_async_context(asked.client())
        asked_for: dict[str, list[int]] = {}
        for name, config in wrong.items():
            owner = await opened(name, config)
            at_owner = await stack.enter_async_context(owner.client())
            thread_id = await at_owner.start_thread()
            # Requests wait one behind the other, and not each for as long.
            asked_for[thread_id] = [
                await client.request("thread/resume", {"threadId": thread_id}) for _ in range(4)
            ]
        started_s = anyio.current_time()
        for thread_id, request_ids in asked_for.items():
            for request_id in request_ids:
                assert (await client.answer(request_id))["error"]["data"] == {
                    "code": "ownerUnreachable",
                    "threadId": thread_id,
                    "retriable": True,
                }
            # What is read comes from the database all the same.
            read = await client.call("thread/read", {"threadId": thread_id})
            assert read["thread"]["id"] == thread_id
        assert anyio.current_time() - started_s < 3 * UNREACHABLE_S


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"node_address": "ws://a:1"}, "needs node_secret_file"),
        ({"node_address": "http://a:1", "node_secret_file": "s"}, "must be ws://HOST:PORT"),
        ({"node_address": "ws://u@a:1", "node_secret_file": "s"}, "must be ws://HOST:PORT"),
        ({"node_address": "ws://a:0", "node_secret_file": "s"}, "must be ws://HOST:PORT"),
        ({"node_address": "ws://a:99999", "node_secret_file": "s"}, "must be ws://HOST:PORT"),
        ({"node_address": "ws://a/?b", "node_secret_file": "s"}, "must be ws://HOST:PORT"),
        ({"node_address": "", "node_secret_file": "s"}, "must be ws://HOST:PORT"),
        ({"node_secret_file": ""}, "must name a file"),
        ({"node_secret_file": 7}, "string"),
    ],
)
def test_settings_that_make_no_sense_are_refused(keys: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_node(Config(keys).view(), Path("/home"))


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_a_node_that_listens_on_all_addresses_names_one(
    tmp_path: Path, database_url: str, host: str
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    (tmp_path / "config.toml").write_text('node_secret_file = "secret"\n')
    (tmp_path / "token").write_text("a token of thirty-two bytes, or more")
    auth = ["--ws-auth", "capability-token", "--ws-token-file", str(tmp_path / "token")]
    words = ["--home", str(tmp_path), "--store", database_url, "--listen", f"ws://{host}:0"]
    ended = run_cli(*words, *auth)
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if "listening on" not in line]
    assert f"node_address: must be set where a node listens at ws://{host}:" in line


async def test_a_node_without_an_address_passes_on_and_is_passed_nothing(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url, 1) as nodes:
        home = nodes.home(1)
        write_config(home, nodes.model.url, f'node_secret_file = "{tmp_path}/secret"\n')
        options = ["--store", database_url]
        async with (
            running(home, f"unix://{home}/socket", options=options) as hidden,
            hidden.client() as there,
            nodes.all[0].client() as here,
        ):
            thread_id = await there.start_thread()
            failed = await here.refusal("thread/resume", {"threadId": thread_id})
            assert failed.data["code"] == "ownerUnreachable"
            resumed = await there.call("thread/resume", {"threadId": await here.start_thread()})
            assert resumed["thread"]["status"] == {"type": "idle"}


def test_settings_of_a_node() -> None:
    assert read_node(Config({}).view(), Path("/home")) is None
    keys = {"node_secret_file": "secret", "node_address": "wss://a.example/nodes"}
    read = read_node(Config(keys).view(), Path("/home"))
    assert read == GroupSettings(Path("/home/secret"), "wss://a.example/nodes")


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "cannot be read"), ("short", "at least 32 bytes")]
)
def test_a_secret_that_is_none_ends_the_start(
    tmp_path: Path, database_url: str, content: str | None, problem: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_text(content)
    (tmp_path / "config.toml").write_text('node_secret_file = "secret"\n')
    ended = run_cli(
        "--home", str(tmp_path), "--store", database_url, "--listen", "ws://127.0.0.1:0"
    )
    assert ended.returncode == 1
    assert problem in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


DAY_S = 86_400
CLOCK = """
import time

REAL, REAL_NS = time.time, time.time_ns
time.time = lambda: REAL() + {step_s}
time.time_ns = lambda: REAL_NS() + {step_s} * 10**9
"""
"""A module that Python imports at its start, in a folder of PYTHONPATH."""
LEASES = "SELECT min(extract(epoch FROM expires_at)), count(*) FILTER (WHERE NOT dead) FROM nodes"


@pytest.mark.parametrize("step_s", [DAY_S, -DAY_S])
async def test_a_node_whose_clock_is_wrong_by_a_day_is_one_like_the_others(
    tmp_path: Path, database_url: str, step_s: int
) -> None:
    (tmp_path / "clock").mkdir()
    (tmp_path / "clock" / "sitecustomize.py").write_text(CLOCK.format(step_s=step_s))
    config = "lease_seconds = 3\n"
    async with running_nodes(tmp_path, database_url, 1, config=config) as nodes:
        home = nodes.home(1)
        secret = f'node_secret_file = "{tmp_path}/secret"\n'
        write_config(home, nodes.model.url, secret + config)
        options = ["--store", database_url]
        async with (
            started(home, options=options, PYTHONPATH=str(tmp_path / "clock")) as wrong,
            wrong.client() as there,
            nodes.all[0].client() as here,
        ):
            begun: list[str] = []
            created: list[int] = []
            for owner, client in ((here, there), (there, here)):
                thread = (await owner.call("thread/start", {}))["thread"]
                begun.append(thread["id"])
                created.append(thread["createdAt"])
                # Through the hop, with a token of the one for the other.
                await client.call("thread/resume", {"threadId": thread["id"]})
                assert (await client.turn(thread["id"], "hi"))["status"] == "completed"
            assert abs(created[1] - created[0] - step_s) < DAY_S / 2
            # Both renew their leases, and neither is taken for dead.
            (ends_s, _) = await asyncio.to_thread(_leases, database_url)
            with anyio.fail_after(WAIT_S):
                while (now := await asyncio.to_thread(_leases, database_url))[0] < ends_s + 4:
                    await anyio.sleep(0.2)
            assert now[1] == 2
            os.kill(wrong.process.pid, signal.SIGKILL)
            # It is taken for dead as any other is.
            await here.call("thread/resume", {"threadId": begun[1]})
            assert (await here.turn(begun[1], "again"))["status"] == "completed"
            listed = (await here.call("thread/list", {}))["data"]
            assert {one["id"] for one in listed} == set(begun)


def _leases(database_url: str) -> tuple[float, int]:
    """Return when the first lease ends, and how many nodes live."""
    with psycopg.connect(database_url) as connection:
        (row,) = connection.execute(LEASES.encode()).fetchall()
    return float(row[0]), row[1]
