"""notifications: webhooks of what threads wait for and how they end, over real sockets."""

import asyncio
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.config.values import Config
from app_server.notifications.delivery import MAX_OF_TARGET
from app_server.notifications.service import Notifications
from app_server.notifications.settings import broken_rule, read_notifications
from app_server.threads.files.outbox import FileOutbox
from app_server.threads.outbox import EXPIRE_MS, OutboxEntry
from protocol.signals.wakes import ThreadWakeChangedNotification
from tests.support.harness import WireClient, claim, serve
from tests.support.model import Refusal
from tests.support.notifications.receiver import SECRET, Receiver, rendered, verified, write_secret
from tests.support.notifications.serving import FAST_S, notifying, ports_of, settled
from tests.support.paths import ROOT
from tests.support.turn_tools.turn_commands import command, desk

ENDS = ("turnCompleted", "turnFailed")


def types_of(receiver: Receiver) -> list[tuple[str, str]]:
    """Return type and subject of what came, each once, in the order of its first coming."""
    found: dict[str, tuple[str, str]] = {}
    for request in receiver.requests:
        body = verified(request)
        subject = body["data"].get("turnId") or body["data"].get("questionId")
        found.setdefault(request.headers["webhook-id"], (body["type"], subject))
    return list(found.values())


@claim("notifications:body")
async def test_the_end_of_a_turn_is_sent_signed(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        config = rendered(**receiver.entry(tmp_path, *ENDS))
        config = f'notification_link = "http://127.0.0.1:1/"\n{config}'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread(cwd=str(tmp_path))
            await client.call("thread/name/set", {"threadId": thread_id, "name": "the build"})
            turn = await client.turn(thread_id, "hello")
            (request,) = await receiver.wait_for(1)
    body = verified(request)
    assert (request.method, request.target) == ("POST", "/hook")
    assert body.pop("timestamp").endswith("Z")
    assert body == {
        "type": "turnCompleted",
        "data": {
            "id": request.headers["webhook-id"],
            "threadId": thread_id,
            "threadName": "the build",
            "cwd": str(tmp_path),
            "link": f"http://127.0.0.1:1/#/threads/{thread_id}",
            "turnId": turn["id"],
            "status": "completed",
        },
    }


@claim("notifications:content")
async def test_texts_are_sent_to_who_asks_for_them_alone(tmp_path: Path) -> None:
    async with Receiver().serve() as plain, Receiver().serve() as full:
        config = rendered(**plain.entry(tmp_path, *ENDS))
        config += rendered(**full.entry(tmp_path, *ENDS, content=True))
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread(cwd=str(tmp_path))
            await client.turn(thread_id, "hello")
            (without,) = await plain.wait_for(1)
            (with_text,) = await full.wait_for(1)
    assert verified(with_text)["data"]["text"] == "ok"
    assert "text" not in verified(without)["data"]
    assert with_text.headers["webhook-id"] == without.headers["webhook-id"]


@claim("notifications:filter")
async def test_receivers_are_sent_what_they_ask_for(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    (one / "inner").mkdir(parents=True)
    two.mkdir()
    async with (
        Receiver().serve() as of_folder,
        Receiver().serve() as of_name,
        Receiver().serve() as failures,
        Receiver().serve() as every,
    ):
        config = rendered(**of_folder.entry(tmp_path, *ENDS, cwd=str(one)))
        config += rendered(**of_name.entry(tmp_path, *ENDS, threads=["second"]))
        config += rendered(**failures.entry(tmp_path, "turnFailed"))
        config += rendered(**every.entry(tmp_path, *ENDS))
        async with serve(tmp_path, config=config) as served, served.client() as client:
            first = await client.start_thread(cwd=str(one / "inner"))
            second = await client.start_thread(cwd=str(two))
            await client.call("thread/name/set", {"threadId": second, "name": "second"})
            await client.turn(first, "hello")
            await client.turn(second, "hello")
            served.model.scripts.append(Refusal(400))
            await client.turn(second, "fail")
            await every.wait_for(3)
            await failures.wait_for(1)
            await of_name.wait_for(2)
            await of_folder.wait_for(1)
    seen = [[verified(one)["data"]["threadId"] for one in r.requests] for r in (of_folder, of_name)]
    assert seen == [[first], [second, second]]
    (failed,) = map(verified, failures.requests)
    assert (failed["type"], failed["data"]["status"]) == ("turnFailed", "failed")
    assert failed["data"]["error"] == "badRequest"


@claim("notifications:resolved")
async def test_an_approval_that_was_answered_is_followed_by_resolved(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, "approvalRequested", content=True)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with (
            desk(tmp_path / "home", "read-only", "on-request") as at,
            notifying(at.served, document, outbox),
        ):
            escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
            await at.start(command("true", **escalated))
            asked = await at.client.until("item/commandExecution/requestApproval")
            (question,) = await receiver.wait_for(1)
            answer = {"id": asked[-1]["id"], "result": {"decision": "accept"}}
            await at.client.send(answer)
            await at.client.until("turn/completed")
            _, end = await receiver.wait_for(2)
            await settled(outbox, delivered=2)
        outbox.close()
    first, second = verified(question)["data"], verified(end)["data"]
    assert (first["kind"], first["turnId"]) == ("command", asked[-1]["params"]["turnId"])
    assert "true" in first["text"]
    assert (verified(end)["type"], second["outcome"]) == ("resolved", "answered")
    assert first["questionId"] == second["questionId"]


@claim("notifications:at-least-once", "notifications:order")
async def test_a_receiver_that_fails_is_tried_again_in_order(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [500, 503, 302, 404, 429]
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with (
            serve(tmp_path / "home") as served,
            served.client() as client,
            notifying(served, document, outbox),
        ):
            thread_id = await client.start_thread()
            turns = [(await client.turn(thread_id, text))["id"] for text in "abc"]
            await settled(outbox, delivered=3)
        outbox.close()
    assert types_of(receiver) == [("turnCompleted", turn) for turn in turns]
    assert [request.headers["webhook-id"] for request in receiver.requests[:6]] == [
        receiver.requests[0].headers["webhook-id"]
    ] * 6
    assert len(receiver.requests) == 8


@claim("notifications:gone")
async def test_a_receiver_that_is_gone_is_sent_nothing_more(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [410]
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served, served.client() as client:
            thread_id = await client.start_thread()
            async with notifying(served, document, outbox) as notifications:
                await client.turn(thread_id, "a")
                await settled(outbox, dead=1)
                await client.turn(thread_id, "b")
            (dead,) = outbox.page("dead", None, 10).entries
            assert (dead.error, dead.label) == ("answered 410", "webhook 127.0.0.1")
            assert list(outbox.disabled().values()) == ["answered 410"]
            # Without the entry, and with it again.
            async with notifying(served, {}, outbox, look_s=0.01):
                while outbox.disabled():
                    await asyncio.sleep(0)
            async with notifying(served, document, outbox):
                await client.turn(thread_id, "c")
                await settled(outbox, dead=1, delivered=1)
        outbox.close()
    assert notifications.unwritten == 0
    assert len(receiver.requests) == 2


@claim("notifications:restart")
async def test_what_waits_is_sent_after_a_restart(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        config = rendered(**receiver.entry(tmp_path, *ENDS))
        receiver.answers = [500]
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            turn = await client.turn(thread_id, "a")
            await receiver.wait_for(1)
        async with serve(tmp_path, config=config) as served:
            await receiver.wait_for(2)
    assert types_of(receiver) == [("turnCompleted", turn["id"])]


@claim("notifications:addresses")
@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://127.0.0.1:1/x", None),
        ("https://localhost/x", None),
        ("http://[::1]:80/", None),
        ("https://hooks.example.org/x?y=1", None),
        ("https://HOOKS.example.org/x", None),
        ("http://hooks.example.org/x", "must be https, but for this machine"),
        (
            "https://evil.example.org/",
            "must lead to this machine, or to a host that `notification_hosts` lists",
        ),
        (
            "https://hooks.example.org.evil.net/",
            "must lead to this machine, or to a host that `notification_hosts` lists",
        ),
        (
            "http://169.254.169.254/",
            "must lead to this machine, or to a host that `notification_hosts` lists",
        ),
        (
            "http://0.0.0.0/",
            "must lead to this machine, or to a host that `notification_hosts` lists",
        ),
        ("https://me@hooks.example.org/", "must have no user, password or fragment"),
        ("https://127.0.0.1@evil.org/", "must have no user, password or fragment"),
        ("https://hooks.example.org/#x", "must have no user, password or fragment"),
        ("https://hooks.example.org:x/", "must be an address such as https://host/path"),
        ("ftp://127.0.0.1/", "must be an https address of at most 2048 characters"),
        ("/x", "must be an https address of at most 2048 characters"),
        ("https://127.0.0.1/" + "x" * 2048, "must be an https address of at most 2048 characters"),
        ("https://127.0.0.1/ x", "must be ASCII without spaces and control characters"),
    ],
)
def test_addresses_lead_to_this_machine_or_a_listed_host(url: str, rule: str | None) -> None:
    assert broken_rule(url, frozenset({"hooks.example.org"})) == rule


async def test_localhost_is_this_machine_whatever_a_resolver_says(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        url = f"http://sub.localhost:{receiver.port}/hook"
        config = rendered(**receiver.entry(tmp_path, *ENDS, url=url))
        async with serve(tmp_path, config=config) as served, served.client() as client:
            await client.turn(await client.start_thread(), "a")
            (request,) = await receiver.wait_for(1)
    assert request.headers["host"] == f"sub.localhost:{receiver.port}"


async def test_each_of_several_secrets_signs(tmp_path: Path) -> None:
    other = "whsec_" + "REVG" * 8
    async with Receiver().serve() as receiver:
        entry = receiver.entry(tmp_path, *ENDS)
        write_secret(tmp_path, other, SECRET)
        async with serve(tmp_path, config=rendered(**entry)) as served, served.client() as client:
            await client.turn(await client.start_thread(), "a")
            (request,) = await receiver.wait_for(1)
    assert verified(request, other) == verified(request, SECRET)


async def hanging(client: WireClient, receiver: Receiver, outbox: FileOutbox) -> Any:
    thread_id = await client.start_thread()
    await client.turn(thread_id, "a")
    await receiver.wait_for(1)
    return outbox.page("waiting", None, 1).entries


async def test_an_attempt_that_is_cut_off_is_made_again_by_the_next_run(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [None]
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served, served.client() as client:
            async with notifying(served, document, outbox):
                (waiting,) = await hanging(client, receiver, outbox)
            assert (waiting.attempts, waiting.state) == (0, "waiting")
            async with notifying(served, document, outbox):
                await settled(outbox, delivered=1)
        outbox.close()
    first, second = (request.headers["webhook-id"] for request in receiver.requests)
    assert first == second


async def test_a_run_that_begins_again_makes_attempts_again(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [None]
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served, served.client() as client:
            ports = ports_of(served)
            settings = read_notifications(Config(document))
            notifications = Notifications(outbox, ports, settings, retry_s=FAST_S)
            served.services.hub.observers.append(notifications)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(notifications.run)
                await hanging(client, receiver, outbox)
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(notifications.run)
                await settled(outbox, delivered=1)
                tasks.cancel_scope.cancel()
            await ports.senders.aclose()
        outbox.close()


async def test_a_receiver_that_hangs_keeps_no_other_waiting(tmp_path: Path) -> None:
    """However many threads wait for it, and although what waits for others came later."""
    async with Receiver().serve() as slow, Receiver().serve() as quick:
        slow.answers = [None] * 100
        document = {
            "notifications": [one.entry(tmp_path, "turnCompleted") for one in (slow, quick)]
        }
        first, second = read_notifications(Config(document)).targets
        outbox = FileOutbox(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served:
            entry = OutboxEntry(
                target=first.id,
                id="",
                label=first.label,
                thread_id="",
                event="turnCompleted",
                subject="s",
                body='{"data": {"id": "msg"}}',
                run="before",
                created_at_ms=served.services.clock.now_ms(),
            )
            waiting = [replace(entry, id=f"m{n}", thread_id=f"t{n}") for n in range(100)]
            outbox.put([*waiting, replace(waiting[0], target=second.id)], "before", 0)
            outbox.end_run("before")
            async with notifying(served, document, outbox):
                await quick.wait_for(1)
            assert len(slow.requests) <= MAX_OF_TARGET
        outbox.close()


@claim("notifications:at-least-once")
async def test_a_receiver_that_hangs_is_given_up_and_tried_again(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [None, None]
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with serve(tmp_path / "home") as served, served.client() as client:
            ports = ports_of(served, answer_s=0.2)
            async with notifying(served, document, outbox, ports):
                thread_id = await client.start_thread()
                turns = [(await client.turn(thread_id, text))["id"] for text in "ab"]
                await settled(outbox, delivered=2)
            first = outbox.page("delivered", None, 2).entries[1]
        outbox.close()
    assert types_of(receiver) == [("turnCompleted", turn) for turn in turns]
    assert (len(receiver.requests), first.attempts) == (4, 3)


@claim("notifications:at-least-once")
async def test_a_receiver_that_was_killed_is_sent_what_it_missed(tmp_path: Path) -> None:
    receiver = Receiver()
    outbox = FileOutbox(tmp_path / "outbox")
    async with serve(tmp_path / "home") as served, served.client() as client:
        async with receiver.serve():
            document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        async with notifying(served, document, outbox):
            thread_id = await client.start_thread()
            turns = [(await client.turn(thread_id, text))["id"] for text in "ab"]
            found = outbox.page("waiting", None, 2).entries
            while len(found) < 2 or not found[1].attempts:
                await asyncio.sleep(0)
                found = outbox.page("waiting", None, 2).entries
            assert found[1].error == "cannot be reached: ConnectError"
            async with receiver.serve():
                await settled(outbox, delivered=2)
    outbox.close()
    assert types_of(receiver) == [("turnCompleted", turn) for turn in turns]


@claim("notifications:at-least-once")
async def test_what_could_not_be_delivered_in_time_is_a_dead_letter(tmp_path: Path) -> None:
    async with Receiver().serve() as receiver:
        receiver.answers = [500]
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox = FileOutbox(tmp_path / "outbox")
        three_days_s = EXPIRE_MS / 1000
        async with serve(tmp_path / "home") as served, served.client() as client:
            async with notifying(served, document, outbox, retry_s=(2 * three_days_s,)):
                thread_id = await client.start_thread()
                await client.turn(thread_id, "a")
                await settled(outbox, dead=1)
                second = await client.turn(thread_id, "b")
                await settled(outbox, dead=1, delivered=1)
            (dead,) = outbox.page("dead", None, 2).entries
        outbox.close()
    assert dead.error == "not delivered within 3 days: answered 500"
    assert types_of(receiver)[-1] == ("turnCompleted", second["id"])


async def test_two_servers_send_each_entry_once(tmp_path: Path) -> None:
    """What one server puts the other one leaves alone, as long as that one lives."""
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, *ENDS)]}
        outbox, other = FileOutbox(tmp_path / "outbox"), FileOutbox(tmp_path / "outbox")
        async with (
            serve(tmp_path / "one") as one,
            serve(tmp_path / "two") as two,
            one.client() as client,
            two.client() as second,
            notifying(one, document, outbox),
            notifying(two, document, other),
        ):
            threads = [await client.start_thread(), await second.start_thread()]
            for number in range(5):
                await client.turn(threads[0], str(number))
                await second.turn(threads[1], str(number))
            await settled(outbox, delivered=10)
        outbox.close()
        other.close()
    assert len(receiver.requests) == 10


async def test_the_receiver_of_the_documentation_verifies_and_counts_once(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "notifications.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    secret = write_secret(tmp_path)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, str(secret), "0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    port = (await process.stdout.readline()).split()[-1].decode()
    outbox = FileOutbox(tmp_path / "outbox")
    url = f"http://127.0.0.1:{port}/"
    entry = {"events": ["turnCompleted"], "url": url, "secret_file": str(secret)}
    try:
        async with (
            serve(tmp_path / "home") as served,
            served.client() as client,
            notifying(served, {"notifications": [entry]}, outbox),
        ):
            await client.turn(await client.start_thread(), "a")
            line = await process.stdout.readline()
            await settled(outbox, delivered=1)
    finally:
        process.kill()
        await process.wait()
    outbox.close()
    assert line == b"turnCompleted None None\n"


async def test_dead_signals_lost_wakes_and_budgets_have_notifications(tmp_path: Path) -> None:
    events = ("signalDead", "wakeLost", "budgetReached")
    async with Receiver().serve() as receiver:
        document = {"notifications": [receiver.entry(tmp_path, *events)]}
        outbox = FileOutbox(tmp_path / "outbox")
        async with (
            serve(tmp_path / "home") as served,
            served.client() as client,
            notifying(served, document, outbox),
        ):
            thread_id = await client.start_thread(budget={"turns": 1})
            signal = {
                "source": "s",
                "id": "1",
                "type": "Question",
                "sender": "ann",
                "summary": "?",
                "payload": None,
                "createdAt": 1,
                "ttlSeconds": 1,
            }
            target = {"threadId": thread_id}
            delivery = {"signal": signal, "target": target, "mode": "passive"}
            await client.call("signal/deliver", delivery)
            turn = await client.turn(thread_id, "a")
            for state in ("armed", "lost"):
                wake = ThreadWakeChangedNotification(
                    thread_id=thread_id, wake_id="w", state=state, at_ms=1
                )
                served.services.hub.emit(thread_id, wake)
            found = {body["type"]: body["data"] for body in await receiver.distinct(3)}
            await settled(outbox, delivered=3)
        outbox.close()
    common = {"id", "threadId", "threadName", "cwd", "link"}
    of_event = {
        kind: {name: value for name, value in data.items() if name not in common}
        for kind, data in found.items()
    }
    assert of_event == {
        "signalDead": {"source": "s", "signalId": "1", "stage": "expired", "error": None},
        "budgetReached": {
            "turnId": turn["id"],
            "scope": "thread",
            "name": None,
            "exceeded": False,
        },
        "wakeLost": {"wakeId": "w", "error": None},
    }
