"""notifications: what a crash or a full disk kept out of the outbox, with real processes."""

from pathlib import Path

import anyio
import pytest

from app_server.config.values import Config
from app_server.notifications.settings import read_notifications
from app_server.threads.files.outbox import FileOutbox
from app_server.threads.outbox import OutboxEntry
from tests.support.harness import WAIT_S, WireClient, claim, serve, write_config
from tests.support.model import ScriptedModel, calls, says
from tests.support.notifications.receiver import Receiver, rendered, verified
from tests.support.notifications.serving import notifying, settled
from tests.support.processes import running
from tests.support.turn_tools.turn_commands import command
from tests.support.wire.pipes import socket_pipe

ENDS = ("turnCompleted", "turnFailed")


class NotingEnds(FileOutbox):
    """An outbox that notes how many entries it had when a run was forgotten."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.at_end = dict[str, int]()

    def end_run(self, run: str) -> None:
        self.at_end[run] = sum(self.counts().values())
        super().end_run(run)


@claim("notifications:crash")
async def test_ends_of_turns_that_a_dead_run_could_not_put_are_put(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = NotingEnds(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served, served.client() as client:
            early = await client.start_thread()
            await client.turn(early, "before")
            now_ms = served.services.clock.now_ms()
            outbox.put([], "dead", now_ms)
            # Its moment may be that of the last sign of life.
            await anyio.sleep(1.1)
            outbox.put([], "dead", served.services.clock.now_ms())
            turns = [(await client.turn(early, text))["id"] for text in "ab"]
            other = await client.start_thread()
            turns.append((await client.turn(other, "c"))["id"])
            async with notifying(served, document, outbox):
                await settled(outbox, delivered=3)
            # It may live: its mark goes once it has given no sign of life for a while.
            assert outbox.runs().keys() == {"dead"}
            async with notifying(served, document, outbox, look_s=0.1):
                with anyio.fail_after(WAIT_S):
                    while "dead" in outbox.runs():
                        await anyio.lowlevel.checkpoint()
            assert outbox.runs() == {}
            assert outbox.at_end["dead"] == 3
        outbox.close()
        sent = [body["data"]["turnId"] for body in await receiver.distinct(3)]
    assert sorted(sent) == sorted(turns)
    assert [turn for turn in sent if turn in turns[:2]] == turns[:2]


@claim("notifications:crash", "notifications:resolved")
async def test_a_question_of_a_thread_that_was_deleted_is_withdrawn(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, "approvalRequested")]}
        (target,) = read_notifications(Config(document)).targets
        outbox = FileOutbox(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served:
            thread_id, now_ms = served.services.clock.new_id(), served.services.clock.now_ms()
            asked = OutboxEntry(
                target=target.id,
                id="msg_a",
                label=target.label,
                thread_id=thread_id,
                event="approvalRequested",
                subject="dead:1",
                body="",
                run="dead",
                created_at_ms=now_ms,
                is_open=True,
                state="delivered",
                ended_at_ms=now_ms,
            )
            outbox.put([asked], "dead", now_ms)
            async with notifying(served, document, outbox):
                await settled(outbox, delivered=2)
            assert (outbox.open_questions(), outbox.runs()) == ([], {"dead": now_ms})
        outbox.close()
        (request,) = receiver.requests
    body = verified(request)
    facts = {"questionId": "dead:1", "outcome": "withdrawn", "threadId": thread_id}
    assert (body["type"], body["data"].items() & facts.items()) == ("resolved", facts.items())


@claim("notifications:crash")
async def test_the_end_of_a_turn_by_a_budget_has_the_same_id_after_a_crash(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, "budgetReached", *ENDS)]}
        live, later = (FileOutbox(tmp_path / name / "outbox") for name in ("live", "later"))
        async with serve(tmp_path / "home") as served, served.client() as client:
            thread_id = await client.start_thread(budget={"turns": 1})
            await client.turn(thread_id, "all")
            await anyio.sleep(1.1)
            later.put([], "dead", served.services.clock.now_ms())
            async with notifying(served, document, live):
                turn = await client.turn(thread_id, "more")
                await settled(live, delivered=1)
            # As if the server had died before it was put.
            async with notifying(served, document, later):
                await settled(later, delivered=1)
        live.close()
        later.close()
    first, second = map(verified, receiver.requests)
    facts = {"turnId": turn["id"], "exceeded": True, "name": None}
    for body, scope in ((first, "thread"), (second, None)):
        assert body["type"] == "budgetReached"
        assert body["data"].items() >= {**facts, "scope": scope}.items()
    assert first["data"]["id"] == second["data"]["id"]


@claim("notifications:restart", "notifications:at-least-once")
@pytest.mark.process
async def test_a_receiver_that_was_away_while_its_server_was_killed_is_sent_what_waits(
    tmp_path: Path,
) -> None:
    async with Receiver().serve() as receiver, ScriptedModel().serve() as model:
        receiver.answers = [503]
        config = rendered(**receiver.entry(tmp_path, *ENDS))
        home = tmp_path / "home"
        write_config(home, model.url, config)
        async with running(home) as server, server.client() as client:
            turn = await client.turn(await client.start_thread(), "go")
            await receiver.wait_for(1)
            server.process.kill()
            await server.process.wait()
        async with running(home):
            first, second = await receiver.wait_for(2)
    assert verified(first)["data"]["turnId"] == turn["id"]
    assert first.headers["webhook-id"] == second.headers["webhook-id"]


async def killed_at(home: Path, model: ScriptedModel, config: str, method: str) -> str:
    """Run a turn in a process that is killed when its client is sent a message; gives its id."""
    write_config(home, model.url, config)
    async with running(home) as server, socket_pipe(server.urls[0], 120) as pipe:
        client = WireClient(pipe)
        await client.initialize()
        thread_id = await client.start_thread(
            cwd=str(home), sandbox="read-only", approvalPolicy="on-request"
        )
        params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
        turn_id: str = (await client.call("turn/start", params))["turn"]["id"]
        await client.until(method)
        server.process.kill()
        await server.process.wait()
    return turn_id


@claim("notifications:crash")
@pytest.mark.process
async def test_a_kill_at_the_end_of_a_turn_loses_no_notification(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver, ScriptedModel().serve() as model:
        config = rendered(**receiver.entry(tmp_path, *ENDS))
        turn_id = await killed_at(tmp_path / "home", model, config, "turn/completed")
        async with running(tmp_path / "home"):
            (request,) = await receiver.wait_for(1)
    body = verified(request)
    assert (body["type"], body["data"]["turnId"]) == ("turnCompleted", turn_id)


@claim("notifications:crash", "notifications:resolved")
@pytest.mark.process
async def test_turn_and_question_that_die_with_their_server_have_notifications(
    tmp_path: Path,
) -> None:
    events = ("approvalRequested", *ENDS)
    async with Receiver().serve() as receiver, ScriptedModel().serve() as model:
        escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
        model.scripts = [calls({"call_id": "c", **command("true", **escalated)}), says("done")]
        config = rendered(**receiver.entry(tmp_path, *events))
        home = tmp_path / "home"
        write_config(home, model.url, config)
        async with running(home) as server, socket_pipe(server.urls[0], 120) as pipe:
            client = WireClient(pipe)
            await client.initialize()
            thread_id = await client.start_thread(
                cwd=str(home), sandbox="read-only", approvalPolicy="on-request"
            )
            params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
            turn_id = (await client.call("turn/start", params))["turn"]["id"]
            await receiver.wait_for(1)
            server.process.kill()
            await server.process.wait()
        async with running(home):
            asked, *rest = await receiver.distinct(3)
    question = asked["data"]["questionId"]
    by_type = {body["type"]: body["data"] for body in rest}
    assert asked["type"] == "approvalRequested"
    failed, resolved = by_type["turnFailed"], by_type["resolved"]
    assert (failed["turnId"], failed["error"]) == (turn_id, "serverStopped")
    assert (resolved["questionId"], resolved["outcome"]) == (question, "withdrawn")


def limit_pages(outbox: FileOutbox, count: int) -> None:
    """Let the file of an outbox grow to so many pages, as a full disk would."""
    with outbox._open() as database:
        database.execute(f"PRAGMA max_page_count = {count}")


@claim("notifications:disk")
async def test_a_full_disk_fails_no_turn_and_events_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, *ENDS, content=True)]}
        outbox = FileOutbox(tmp_path / "outbox")
        limit_pages(outbox, 1)
        async with (
            serve(tmp_path / "home") as served,
            served.client() as client,
            notifying(served, document, outbox) as notifications,
        ):
            thread_id = await client.start_thread()
            # Each has a body that needs pages of its own.
            served.model.scripts += [says("long " * 2_000)] * 2
            turns = [await client.turn(thread_id, text) for text in "ab"]
            assert [turn["status"] for turn in turns] == ["completed"] * 2
            while "notifications cannot be written" not in caplog.text:
                await anyio.lowlevel.checkpoint()
            assert (notifications.unwritten, outbox.counts()) == (2, {})
            assert outbox.page(None, None, 10).entries == []
            limit_pages(outbox, 1 << 20)
            await settled(outbox, delivered=2)
            assert notifications.unwritten == 0
        outbox.close()
    sent = [verified(request)["data"]["turnId"] for request in receiver.requests]
    assert sent == [turn["id"] for turn in turns]
