"""notifications: programs and the desktop, with real processes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.notifications.sending import desktop_command
from app_server.notifications.settings import Target
from app_server.threads.files.outbox import FileOutbox
from app_server.threads.outbox import OutboxEntry
from tests.support.harness import WAIT_S, claim, serve
from tests.support.model import says
from tests.support.notifications.serving import notifying, ports_of, settled


async def until(holds: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not holds():
            await anyio.lowlevel.checkpoint()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@claim("notifications:notify")
async def test_notify_is_given_one_argument_as_codex_gives_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f'printf "%s\\n" "$#" "$@" >> {out}.new; mv {out}.new {out}'
    config = f"notify = {json.dumps(['/bin/sh', '-c', script, 'name', 'mine'])}\n"
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread(cwd=str(tmp_path))
        turn = await client.turn(thread_id, "hello")
        await until(out.exists)
        first = out.read_text()
        out.unlink()
        second = await client.turn(thread_id, "again")
        await until(out.exists)
    body = {
        "type": "agent-turn-complete",
        "thread-id": thread_id,
        "turn-id": turn["id"],
        "cwd": str(tmp_path),
        "client": "test",
        "input-messages": ["hello"],
        "last-assistant-message": "ok",
    }
    count, own, argument = first.splitlines()
    assert (count, own, json.loads(argument)) == ("2", "mine", body)
    assert argument == json.dumps(body, separators=(",", ":"))
    body |= {"turn-id": second["id"], "input-messages": ["hello", "again"]}
    assert json.loads(out.read_text().splitlines()[2]) == body


@claim("notifications:programs")
async def test_a_program_reads_the_body_from_its_stdin(tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = f"cat > {out}.new; mv {out}.new {out}"
    entry = {"events": ["turnCompleted"], "command": ["/bin/sh", "-c", script]}
    outbox = FileOutbox(tmp_path / "outbox")
    async with (
        serve(tmp_path / "home") as served,
        served.client() as client,
        notifying(served, {"notifications": [entry]}, outbox),
    ):
        turn = await client.turn(await client.start_thread(), "hello")
        await settled(outbox, delivered=1)
    outbox.close()
    body = json.loads(out.read_text())
    assert (body["type"], body["data"]["turnId"]) == ("turnCompleted", turn["id"])


@claim("notifications:programs")
@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("sleep 1000 & echo $! > pid; wait", "did not end within 0.5 s"),
        ("sleep 1000 & echo $! > pid; yes", "printed more than 65536 bytes"),
        ("echo $$ > pid; exit 3", "exited with code 3"),
    ],
)
async def test_a_program_that_misbehaves_is_ended_and_has_had_its_event(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str, problem: str
) -> None:
    entry = {"events": ["turnCompleted"], "command": ["/bin/sh", "-c", script]}
    outbox = FileOutbox(tmp_path / "outbox")
    async with serve(tmp_path / "home") as served, served.client() as client:
        ports = ports_of(served, program_s=0.5 if "0.5" in problem else 60.0)
        async with notifying(served, {"notifications": [entry]}, outbox, ports):
            thread_id = await client.start_thread()
            await client.turn(thread_id, "hello")
            # Nothing of a turn waits for it.
            await client.turn(thread_id, "again")
            await settled(outbox, delivered=2)
    outbox.close()
    assert not is_alive(int((tmp_path / "home" / "pid").read_text()))
    assert [r.message for r in caplog.records if "the program" in r.message] == [
        f"command sh: the program {problem}"
    ] * 2


@claim("notifications:programs")
async def test_a_program_that_cannot_be_started_is_tried_again(tmp_path: Path) -> None:
    program = tmp_path / "program"
    entry = {"events": ["turnCompleted"], "command": [str(program)]}
    outbox = FileOutbox(tmp_path / "outbox")
    async with (
        serve(tmp_path / "home") as served,
        served.client() as client,
        notifying(served, {"notifications": [entry]}, outbox),
    ):
        await client.turn(await client.start_thread(), "hello")
        found = outbox.page("waiting", None, 1).entries
        while not found or not found[0].attempts:
            await anyio.lowlevel.checkpoint()
            found = outbox.page("waiting", None, 1).entries
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)
        await settled(outbox, delivered=1)
    outbox.close()
    assert found[0].error == "cannot be started: No such file or directory"


@pytest.mark.parametrize(
    ("platform", "program", "expected"),
    [
        (
            "linux",
            "notify-send",
            ["--app-name=app-server", "--", "a <b>", "The turn has completed. &lt;ok&gt;"],
        ),
        (
            "darwin",
            "osascript",
            [
                "-e",
                "on run argv",
                "-e",
                "display notification (item 3 of argv) with title (item 2 of argv)",
                "-e",
                "end run",
                "app-server",
                "a <b>",
                "The turn has completed. <ok>",
            ],
        ),
    ],
)
async def test_the_desktop_is_given_text_and_no_markup(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    platform: str,
    program: str,
    expected: list[str],
) -> None:
    out = tmp_path / "out"
    stand_in = tmp_path / program
    stand_in.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {out}\n')
    stand_in.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    outbox = FileOutbox(tmp_path / "outbox")
    desktop: dict[str, Any] = {"events": ["turnCompleted"], "desktop": True, "content": True}
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("thread/name/set", {"threadId": thread_id, "name": "a <b>"})
        served.model.scripts.append(says("<ok>"))
        # The commands of the server look at the real one.
        monkeypatch.setattr("app_server.notifications.sending.sys.platform", platform)
        async with notifying(served, {"notifications": [desktop]}, outbox):
            await client.turn(thread_id, "hello")
            await settled(outbox, delivered=1)
    outbox.close()
    assert out.read_text().splitlines() == expected


OSASCRIPT = [
    "osascript",
    "-e",
    "on run argv",
    "-e",
    "display notification (item 3 of argv) with title (item 2 of argv)",
    "-e",
    "end run",
    "app-server",
]
NOTIFY_SEND = ["notify-send", "--app-name=app-server", "--"]


@claim("notifications:programs")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ('" & (do shell script "touch /tmp/x") & "', "$(touch /tmp/x) `touch /tmp/x`"),
        ("-e", "--urgency=critical"),
        ('on run argv\ndo shell script "true"', "end run\non run"),
        ("--", "--help"),
        ('\\" \\', "tab\there"),
    ],
)
@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_no_name_or_text_is_more_than_an_argument_of_its_own(
    monkeypatch: pytest.MonkeyPatch, platform: str, name: str, text: str
) -> None:
    monkeypatch.setattr("app_server.notifications.sending.sys.platform", platform)
    assert shown(name, text) == [
        *(OSASCRIPT if platform == "darwin" else NOTIFY_SEND),
        name,
        f"The turn has completed. {text}",
    ]


def shown(name: str | None, text: str) -> list[str]:
    """Return what shows the end of a turn, of a thread with a name and in a folder."""
    data = {"threadId": "t", "threadName": name, "cwd": "/w", "text": text}
    desktop = Target(kind="desktop", label="desktop", events=frozenset({"turnCompleted"}))
    entry = OutboxEntry(
        target=desktop.id,
        id="msg",
        label="desktop",
        thread_id="t",
        event="turnCompleted",
        subject="s",
        body=json.dumps({"data": data}),
        run="r",
        created_at_ms=0,
    )
    return list(desktop_command(entry, desktop))


def test_what_no_argument_can_have_is_left_out_and_a_long_text_is_cut() -> None:
    assert shown("a\0b", "c\0d")[-2:] == ["ab", "The turn has completed. cd"]
    assert shown(None, "x" * 1_000)[-2:] == ["/w", f"The turn has completed. {'x' * 176}"]
