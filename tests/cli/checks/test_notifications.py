"""What doctor says of the outbox of notifications."""

from pathlib import Path

from app_server.threads.checks import Check
from app_server.threads.files.outbox import FileOutbox
from app_server.threads.opening.checks import store_checks
from app_server.threads.outbox import NotificationOutbox, OutboxEntry
from tests.support.harness import claim


def entry(target: str) -> OutboxEntry:
    return OutboxEntry(
        target=target,
        id="msg_1",
        label=f"webhook {target}",
        thread_id="t",
        event="turnCompleted",
        subject="1",
        body="{}",
        run="r",
        created_at_ms=1,
    )


def give_up(outbox: NotificationOutbox) -> None:
    outbox.put([entry("a.example"), entry("b.example")], "r", 1)
    outbox.disable("a.example", 2, "answered 410")
    outbox.forget_old(4 * 24 * 3600 * 1000)


FOUND = [
    "webhook a.example: 1 dead letter",
    "webhook b.example: 1 dead letter",
    "webhook a.example answered 410, and is sent nothing more",
]
TODO = (
    "see that the receiver answers; dead letters are forgotten after 30 days; "
    "take the entry out of `notifications`, or correct it and switch it off once"
)


@claim("notifications:dead-letters")
def test_dead_letters_and_receivers_that_are_gone_are_named(tmp_path: Path) -> None:
    path = tmp_path / "notifications" / "outbox.sqlite3"
    checks = store_checks(tmp_path)
    missing = "there is no outbox of notifications yet"
    assert checks.notifications() == Check("notifications", message=missing)
    outbox = FileOutbox(path)
    about = "the outbox of notifications"
    assert checks.notifications() == Check("notifications", message=about)
    give_up(outbox)
    outbox.close()
    assert checks.notifications() == Check("notifications", "warning", about, TODO, FOUND)
    path.write_bytes(b"x" * 5000)
    found = checks.notifications()
    assert (found.status, found.details[0].split(":")[0]) == ("error", f"{path} cannot be used")
    FileOutbox(path).close()
    found = checks.notifications()
    assert found.details == [f"{path}.damaged is a damaged outbox that was set aside"]
