"""Servers of one database as processes: killed, stopped and woken, and without the database."""

import json
import signal
import sys
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import anyio
import psycopg
import pytest

from tests.support.fleet.nodes import url_of
from tests.support.fleet.proxy import DatabaseProxy
from tests.support.harness import WAIT_S, WireClient, write_config
from tests.support.model import Gate, ScriptedModel, calls, says
from tests.support.postgresql import Cluster, name_of
from tests.support.processes import Running, run_cli, running
from tests.support.receiver.signals import deliver
from tests.support.turn_tools.command_questions import command
from tests.support.turns import start_turn

pytestmark = [pytest.mark.postgresql, pytest.mark.process]

LOOK_S = 0.2
LONG_S = 600
"""A lease that no test sees the end of."""
FREE = 'sandbox_mode = "danger-full-access"\napproval_policy = "never"'


@dataclass
class Database:
    """The database of the nodes, asked beside them."""

    url: str

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def owner(self, thread_id: str) -> tuple[Any, ...]:
        """Return the node and the epoch of a thread."""
        (row,) = self.ask("SELECT owner, epoch FROM threads WHERE id = %s", UUID(thread_id))
        return row

    def log(self, thread_id: str) -> list[tuple[Any, ...]]:
        """Return the rows of a log."""
        return self.ask(
            "SELECT position, epoch, body FROM records WHERE thread_id = %s ORDER BY position",
            UUID(thread_id),
        )

    def has_interrupted(self, thread_id: str) -> bool:
        """Whether the log of a thread has the end of a turn that was cut off."""
        return any(b'"interrupted"' in body for _, _, body in self.log(thread_id))

    def dead(self) -> int:
        """Count the nodes that were taken for dead."""
        return int(self.ask("SELECT count(*) FROM nodes WHERE dead")[0][0])


@asynccontextmanager
async def node(
    home: Path, model: ScriptedModel, database: Database, lease_s: int = LONG_S
) -> AsyncIterator[tuple[Running, WireClient]]:
    """Run a node with a home of its own, and a client of it."""
    write_config(home, model.url, f"{FREE}\nlease_seconds = {lease_s}")
    async with running(home, options=["--store", database.url]) as server, server.client() as one:
        yield server, one


async def until(what: Callable[[], Any]) -> Any:
    """Look until something is true, and return it."""
    with anyio.fail_after(WAIT_S):
        while not (found := await anyio.to_thread.run_sync(what)):
            await anyio.sleep(LOOK_S)
    return found


async def turns_of(client: WireClient, thread_id: str) -> list[str]:
    """Return how the turns of a thread ended."""
    read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    return [turn["status"] for turn in read["thread"]["turns"]]


async def until_turns(client: WireClient, thread_id: str, *wanted: str) -> None:
    """Wait until the turns of a thread have ended so."""
    found: list[str] = []
    with anyio.move_on_after(WAIT_S):
        while (found := await turns_of(client, thread_id)) != list(wanted):
            await anyio.sleep(LOOK_S)
    assert found == list(wanted)


async def until_signal(client: WireClient, signal_id: str, wanted: str) -> None:
    """Wait until a signal has reached a stage."""
    with anyio.fail_after(WAIT_S):
        while True:
            params = {"source": "router", "id": signal_id}
            if (await client.call("signal/read", params))["receipt"]["stage"] == wanted:
                return
            await anyio.sleep(LOOK_S)


async def held_turn(client: WireClient, model: ScriptedModel, *script: Any) -> tuple[str, Gate]:
    """Start a thread with a turn whose model waits at a gate, and goes on with `script`."""
    thread_id, gate = await client.start_thread(), Gate()
    model.scripts.append([gate, *(script or says("late"))])
    await start_turn(client, thread_id, "go")
    await gate.wait_until_reached()
    return thread_id, gate


async def queue(client: WireClient, thread_id: str, text: str) -> None:
    """Put input into the queue of a thread."""
    entry = {"input": [{"type": "text", "text": text}], "clientUserMessageId": text}
    await client.call("thread/queue/add", {"threadId": thread_id, **entry})


async def test_threads_at_work_of_a_killed_node_go_on_in_another(
    tmp_path: Path, database_url: str
) -> None:
    database = Database(database_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "b", model, database, lease_s=3) as (_, other),
    ):
        async with node(tmp_path / "a", model, database) as (server, client):
            at_rest = await client.start_thread()
            await client.turn(at_rest, "hello")
            thread_id, gate = await held_turn(client, model)
            await queue(client, thread_id, "queued")
            await deliver(client, thread_id, mode="wake")
            before = database.owner(at_rest), database.log(at_rest)
            server.process.send_signal(signal.SIGKILL)
            began_s = time.monotonic()
            await until(lambda: database.owner(thread_id)[1] == 2)
            sys.stdout.write(f"taken over after {time.monotonic() - began_s:.1f} s\n")
        gate.opened.set()
        # Nobody had asked for it; the one at rest waits until somebody does.
        await until_turns(other, thread_id, "interrupted", "completed", "completed")
        await until_signal(other, "s1", "answered")
        assert (database.owner(at_rest), database.log(at_rest)) == before
        await other.call("thread/resume", {"threadId": at_rest})
        assert (await other.turn(at_rest, "again"))["status"] == "completed"
        assert [epoch for _, epoch, _ in database.log(at_rest)][-1] == 2


async def test_a_killed_node_that_starts_again_has_its_threads_at_once(
    tmp_path: Path, database_url: str
) -> None:
    database = Database(database_url)
    async with ScriptedModel().serve() as model:
        async with node(tmp_path, model, database) as (server, client):
            thread_id = await client.start_thread()
            await client.turn(thread_id, "hello")
            server.process.send_signal(signal.SIGKILL)
        async with node(tmp_path, model, database, lease_s=3) as (_, client):
            # Until it is certain that the process has died, the request waits.
            await client.call("thread/resume", {"threadId": thread_id})
            assert (await client.turn(thread_id, "again"))["status"] == "completed"


async def test_a_node_that_was_stopped_and_replaced_writes_and_begins_nothing_more(
    tmp_path: Path, database_url: str
) -> None:
    database, made = Database(database_url), tmp_path / "made"
    touch = calls({"name": "exec_command", "arguments": {"cmd": f"touch {made}"}})
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database, lease_s=3) as (server, client),
        node(tmp_path / "b", model, database, lease_s=3) as (_, other),
    ):
        thread_id, gate = await held_turn(client, model, *touch)
        idle = await client.start_thread()
        await client.turn(idle, "hello")
        server.process.send_signal(signal.SIGSTOP)
        began_s = time.monotonic()
        await until(lambda: database.has_interrupted(thread_id))
        sys.stdout.write(f"taken over after {time.monotonic() - began_s:.1f} s; a lease of 3 s\n")
        log = database.log(thread_id)
        # The model answers while it stands still: what it wants done is read when it wakes.
        gate.opened.set()
        server.process.send_signal(signal.SIGCONT)
        # The two come in either order.
        heard = await client.until("thread/closed") + await client.until("thread/closed")
        closed = {m["params"]["threadId"] for m in heard if m["method"] == "thread/closed"}
        assert closed == {thread_id, idle}
        ends = [m["params"]["turn"] for m in heard if m["method"] == "turn/completed"]
        assert [turn["status"] for turn in ends] == ["interrupted"]
        assert database.log(thread_id) == log
        assert not made.exists()
        # It goes on as another node.
        await client.call("thread/resume", {"threadId": idle})
        assert (await client.turn(idle, "again"))["status"] == "completed"
        await other.call("thread/resume", {"threadId": thread_id})
        assert (await other.turn(thread_id, "again"))["status"] == "completed"


async def until_gone(pid: int) -> None:
    """Wait until a process has ended."""
    with anyio.fail_after(WAIT_S):
        while Path(f"/proc/{pid}").exists():
            await anyio.sleep(0.1)


async def test_a_node_that_is_cut_off_ends_what_it_runs_and_is_replaced(
    tmp_path: Path, database_url: str, cluster: Cluster
) -> None:
    database, pid = Database(database_url), tmp_path / "pid"
    gate = Gate()
    async with (
        ScriptedModel().serve() as model,
        DatabaseProxy(cluster.folder).listening() as proxy,
    ):
        write_config(tmp_path / "a", model.url, f"{FREE}\nlease_seconds = 3")
        write_config(tmp_path / "b", model.url, f"{FREE}\nlease_seconds = 3")
        cut_off = ["--store", url_of([proxy], name_of(database_url))]
        async with (
            running(tmp_path / "a", options=cut_off) as server,
            server.client() as client,
            running(tmp_path / "b", options=["--store", database_url]) as other_server,
            other_server.client() as other,
        ):
            runs = command(f"echo $$ > {pid}; exec sleep 600", yield_time_ms=250)
            model.scripts += [calls(runs), [gate, *says("late")]]
            thread_id = await client.start_thread()
            await start_turn(client, thread_id, "go")
            await gate.wait_until_reached()
            await queue(client, thread_id, "queued")
            waiting, at_model = await held_turn(client, model)
            proxy.silence()
            began_s = time.monotonic()
            await until(lambda: database.owner(thread_id)[1] == 2)
            await until(lambda: database.has_interrupted(waiting))
            taken_s = time.monotonic() - began_s
            sys.stdout.write(f"taken over after {taken_s:.1f} s; a lease of 3 s\n")
            # Its own clients are told, and its command ends, although it hears of nobody.
            ended: dict[str, str] = {}
            while len(ended) < 2:
                params = (await client.wait_for("turn/completed"))["params"]
                ended[params["threadId"]] = params["turn"]["status"]
            assert ended == {thread_id: "interrupted", waiting: "interrupted"}
            await until_gone(int(pid.read_text()))
            refused = await client.refusal("thread/start", {})
            assert (refused.data["code"], refused.data["retriable"]) == ("storageFailed", True)
            # By whether a connection was open or had to be.
            assert refused.data["reason"] in ("databaseUnavailable", "databaseBusy")
            # The queue goes on at the node that took over.
            gate.opened.set()
            at_model.opened.set()
            await until_turns(other, thread_id, "interrupted", "completed")
            log = database.log(thread_id), database.log(waiting)
            proxy.heal()
            closed = {(await client.wait_for("thread/closed"))["params"]["threadId"] for _ in "ab"}
            assert closed == {thread_id, waiting}
            assert (database.log(thread_id), database.log(waiting)) == log
            assert (await client.turn(await client.start_thread(), "again"))["status"] == (
                "completed"
            )


async def test_an_answer_to_a_question_of_a_node_that_was_replaced_begins_nothing(
    tmp_path: Path, database_url: str
) -> None:
    database, made = Database(database_url), tmp_path / "made"
    touch = calls({"name": "exec_command", "arguments": {"cmd": f"touch {made}"}})
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database, lease_s=3) as (server, client),
        node(tmp_path / "b", model, database, lease_s=3),
    ):
        thread_id = await client.start_thread(approvalPolicy="untrusted")
        model.scripts.append(touch)
        await start_turn(client, thread_id, "go")
        question = await client.wait_for("item/commandExecution/requestApproval")
        server.process.send_signal(signal.SIGSTOP)
        await until(lambda: database.has_interrupted(thread_id))
        log = database.log(thread_id)
        await client.send({"id": question["id"], "result": {"decision": "accept"}})
        server.process.send_signal(signal.SIGCONT)
        ended = await client.wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"
        await client.wait_for("thread/closed")
        assert (database.log(thread_id), made.exists()) == (log, False)


async def test_a_node_that_stops_gives_its_threads_back(tmp_path: Path, database_url: str) -> None:
    database = Database(database_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "b", model, database) as (_, other),
    ):
        async with node(tmp_path / "a", model, database) as (server, client):
            at_rest = await client.start_thread()
            await client.turn(at_rest, "hello")
            thread_id, gate = await held_turn(client, model)
            await queue(client, thread_id, "queued")
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGTERM)
            await server.ended()
        gate.opened.set()
        await until_turns(other, thread_id, "interrupted", "completed")
        assert (database.owner(at_rest), database.dead()) == ((None, 1), 0)


async def test_turns_go_on_over_a_restart_of_the_database(
    tmp_path: Path, synced_cluster: Cluster, synced_url: str
) -> None:
    database = Database(synced_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database) as (_, client),
        node(tmp_path / "b", model, database) as (_, other),
    ):
        thread_id, gate = await held_turn(client, model)
        other_id, other_gate = await held_turn(other, model)
        owners = [database.owner(one) for one in (thread_id, other_id)]
        await anyio.to_thread.run_sync(synced_cluster.stop)
        gate.opened.set()
        other_gate.opened.set()
        synced_cluster.start()
        for one in (client, other):
            ended = await one.wait_for("turn/completed")
            assert ended["params"]["turn"]["status"] == "completed"
        assert [database.owner(one) for one in (thread_id, other_id)] == owners
        assert (await client.turn(thread_id, "again"))["status"] == "completed"
        assert database.dead() == 0


async def test_a_node_without_the_database_ends_its_turns_and_keeps_its_threads(
    tmp_path: Path, synced_cluster: Cluster, synced_url: str
) -> None:
    database = Database(synced_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database, lease_s=3) as (_, client),
        # It waits for a lease of its own before it takes anybody for dead.
        node(tmp_path / "b", model, database),
    ):
        thread_id, gate = await held_turn(client, model)
        owner = database.owner(thread_id)
        await anyio.to_thread.run_sync(synced_cluster.stop)
        ended = await client.wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "no"}]}
        refused = await client.refusal("turn/start", params)
        assert (refused.data["code"], refused.data["reason"], refused.data["retriable"]) == (
            "storageFailed",
            "databaseUnavailable",
            True,
        )
        gate.opened.set()
        synced_cluster.start()
        # The end is written once there is a lease, although nobody asks for anything.
        await until(lambda: database.has_interrupted(thread_id))
        assert (await client.turn(thread_id, "again"))["status"] == "completed"
        assert await turns_of(client, thread_id) == ["interrupted", "completed"]
        assert (database.owner(thread_id), database.dead()) == (owner, 0)


async def test_a_thread_with_an_append_that_was_written_and_not_answered_stays_where_it_is(
    tmp_path: Path, database_url: str, cluster: Cluster
) -> None:
    database = Database(database_url)
    async with (
        ScriptedModel().serve() as model,
        DatabaseProxy(cluster.folder).listening() as proxy,
        # It waits for a lease of its own before it takes anybody for dead.
        node(tmp_path / "b", model, database) as (_, other),
    ):
        behind = Database(url_of([proxy], name_of(database_url)))
        async with node(tmp_path / "a", model, behind, lease_s=3) as (_, client):
            thread_id, gate = await held_turn(client, model)
            await queue(client, thread_id, "queued")
            owner, _ = database.owner(thread_id)
            proxy.swallows_answers = True
            name = {"threadId": thread_id, "name": "unanswered"}
            refused = await client.refusal("thread/name/set", name)
            assert (refused.data["code"], refused.data["retriable"]) == ("storageFailed", True)
            await client.wait_for("turn/completed")
            assert b"unanswered" in database.log(thread_id)[-1][2]
            gate.opened.set()
            proxy.heal()
            # Its log is read again, with what nobody was told of, and nobody else takes it.
            await until_turns(other, thread_id, "interrupted", "completed")
            assert (database.owner(thread_id), database.dead()) == ((owner, 2), 0)
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            assert resumed["thread"]["name"] == "unanswered"
            assert (await client.turn(thread_id, "again"))["status"] == "completed"


def status_of(url: str, path: str) -> int:
    """Return the status of a GET at the address of a server."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        target = url.replace("ws://", "http://") + path
        with closing(opener.open(target, timeout=WAIT_S)) as response:
            return int(response.status)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code


async def test_a_node_is_not_ready_without_its_lease(
    tmp_path: Path, synced_cluster: Cluster, synced_url: str
) -> None:
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path, model, Database(synced_url), lease_s=3) as (server, client),
    ):
        (address,) = server.urls
        thread_id = await client.start_thread()
        await until(lambda: status_of(address, "/readyz") == 200)
        await anyio.to_thread.run_sync(synced_cluster.stop)
        await until(lambda: status_of(address, "/readyz") == 503)
        # It lives, and is not to be started again for that.
        assert status_of(address, "/healthz") == 200
        synced_cluster.start()
        await until(lambda: status_of(address, "/readyz") == 200)
        assert (await client.turn(thread_id, "again"))["status"] == "completed"


async def test_nodes_whose_settings_differ_are_named(tmp_path: Path, database_url: str) -> None:
    def differing() -> list[str]:
        """Ask `app-server doctor` which nodes have other settings, by their home folders."""
        looked = run_cli(
            *("doctor", "--home", str(tmp_path / "a"), "--only", "database", "--json"),
            APP_SERVER_STORE=database_url,
        )
        details = json.loads(looked.stdout)["checks"][0]["details"]
        return [
            name
            for name, server in servers.items()
            for line in details
            if f"process {server.process.pid}," in line and "not those of the other" in line
        ]

    def shown() -> list[str]:
        return [digest for (digest,) in database.ask("SELECT settings_digest FROM nodes")]

    database = Database(database_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database) as (a, _),
        node(tmp_path / "b", model, database) as (b, _),
        node(tmp_path / "c", model, database) as (c, client),
    ):
        servers = {"a": a, "b": b, "c": c}
        await until(lambda: "" not in shown())
        assert (len(set(shown())), await anyio.to_thread.run_sync(differing)) == (1, [])
        change = {"keyPath": "model_verbosity", "value": "low", "mergeStrategy": "replace"}
        await client.call("config/value/write", change)
        await until(lambda: len(set(shown())) == 2)
        assert await anyio.to_thread.run_sync(differing) == ["c"]
        (tmp_path / "c" / "config.toml").write_text((tmp_path / "a" / "config.toml").read_text())
        await until(lambda: len(set(shown())) == 1)
        assert await anyio.to_thread.run_sync(differing) == []
        (tmp_path / "a" / "AGENTS.md").write_text("Answer in French.")
        await until(lambda: len(set(shown())) == 2)
        assert await anyio.to_thread.run_sync(differing) == ["a"]


async def test_commands_that_end_with_the_lease_have_an_end(
    tmp_path: Path, synced_cluster: Cluster, synced_url: str
) -> None:
    waits = calls(command("echo begun; sleep 600", yield_time_ms=250))
    database = Database(synced_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database, lease_s=3) as (_, client),
    ):
        # One goes on behind its turn, and one while its turn waits for it.
        model.scripts += [waits, says("it goes on")]
        thread_id = await client.start_thread()
        await client.turn(thread_id, "go")
        model.scripts.append(calls(command("echo begun; sleep 600", yield_time_ms=600_000)))
        await start_turn(client, thread_id, "and wait")
        await client.wait_for("item/commandExecution/outputDelta")
        await anyio.to_thread.run_sync(synced_cluster.stop)
        heard = await client.until("turn/completed")
        ended = [m["params"] for m in heard if m["method"] == "item/completed"]
        while len(ended) < 2:
            ended.append((await client.wait_for("item/completed"))["params"])
        assert {params["item"]["status"] for params in ended} == {"failed"}
        synced_cluster.start()
        await until(lambda: database.has_interrupted(thread_id))
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        shown = [
            (turn["id"], item["id"], item["status"])
            for turn in read["thread"]["turns"]
            for item in turn["items"]
            if item["type"] == "commandExecution"
        ]
        told = [(one["turnId"], one["item"]["id"], one["item"]["status"]) for one in ended]
        assert sorted(shown) == sorted(told)
        # In the log, and not in memory alone.
        ends = [body for _, _, body in database.log(thread_id) if b'"failed"' in body]
        assert b"".join(ends).count(b'"commandExecution"') == 2


async def test_status_lists_the_nodes_of_a_database(tmp_path: Path, database_url: str) -> None:
    def status() -> Any:
        listed = run_cli(
            *("status", "--home", str(tmp_path / "a"), "--store", database_url, "--json")
        )
        assert (listed.returncode, listed.stderr) == (0, "")
        return json.loads(listed.stdout)

    database = Database(database_url)
    async with (
        ScriptedModel().serve() as model,
        node(tmp_path / "a", model, database, lease_s=3) as (a, client),
        node(tmp_path / "b", model, database, lease_s=3) as (b, _),
    ):
        await client.start_thread()
        listed = await anyio.to_thread.run_sync(status)
        assert [one["pid"] for one in listed["servers"]] == [a.process.pid]
        assert [
            (one["pid"], one["address"], one["state"], one["threads"]) for one in listed["nodes"]
        ] == [
            (a.process.pid, a.urls[0], "running", 1),
            (b.process.pid, b.urls[0], "running", 0),
        ]
        assert 0 < listed["nodes"][1]["leaseLeftSeconds"] <= 3
        b.process.send_signal(signal.SIGSTOP)
        # It is taken for dead then, and has no threads to be remembered for.
        await until(lambda: len(database.ask("SELECT FROM nodes")) == 1)
        assert len((await anyio.to_thread.run_sync(status))["nodes"]) == 1
        b.process.send_signal(signal.SIGCONT)


async def test_figures_and_lines_of_the_log_are_of_the_node(
    tmp_path: Path, database_url: str
) -> None:
    async def store_figures(client: WireClient) -> dict[str, int]:
        gauges = (await client.call("server/diagnostics", {}))["gauges"]
        found = {gauge["name"]: gauge["value"] for gauge in gauges}
        return {name: value for name, value in found.items() if name.startswith("store.")}

    database = Database(database_url)
    async with ScriptedModel().serve() as model:
        async with node(tmp_path / "a", model, database) as (server, client):
            thread_id, _ = await held_turn(client, model)
            before = await store_figures(client)
            server.process.send_signal(signal.SIGKILL)
        assert before["store.appends"] > 0
        assert before["store.appends.synced_p99_us"] >= before["store.appends.synced_p50_us"] > 0
        assert 0 < before["store.lease.left_ms"] <= LONG_S * 1000
        assert (before["store.threads.written"], before["store.threads.taken_over"]) == (1, 0)
        write_config(tmp_path / "b", model.url, f"{FREE}\nlease_seconds = 3")
        options = ["--store", database.url, "--log-level", "info", "--log-format", "json"]
        async with running(tmp_path / "b", options=options) as other, other.client() as client:
            await until(lambda: database.owner(thread_id)[1] == 2)
            await until_turns(client, thread_id, "interrupted")
            after = await store_figures(client)
            assert after.keys() == before.keys()
            assert (after["store.threads.written"], after["store.threads.taken_over"]) == (1, 1)
            assert other.process.stderr is not None
            text = (
                f"this node writes thread {thread_id}, "
                "that another one left or died with, in epoch 2"
            )
            with anyio.fail_after(WAIT_S):
                while True:
                    line = json.loads(await other.process.stderr.readline())
                    if line["fields"]["message"] == text:
                        break
            assert UUID(line["nodeId"]) == database.owner(thread_id)[0]
