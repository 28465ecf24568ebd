"""notifications: their settings, and what is said of those that cannot be used."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.config.values import Config
from app_server.notifications.settings import EVENTS, Target, read_notifications
from tests.support.harness import claim, serve
from tests.support.notifications.receiver import SECRET, rendered, write_secret

URL = "https://hooks.example.org/x"


def read(*entries: Any, **more: Any) -> tuple[list[Target], list[str]]:
    """Read entries; return the receivers, and the first line of each error."""
    document = {
        "notifications": list(entries),
        "notification_hosts": ["hooks.example.org"],
        **more,
    }
    settings = read_notifications(Config(document))
    return list(settings.targets), [str(error).splitlines()[0] for error in settings.errors]


def test_all_of_an_entry_is_read(tmp_path: Path) -> None:
    secret = write_secret(tmp_path)
    members = {"events": ["turnFailed", "signalDead"], "threads": ["a"], "cwd": "/w/../v/"}
    targets, errors = read(
        {**members, "url": URL, "secret_file": str(secret), "content": True},
        {"events": list(EVENTS), "command": ["/bin/tell", "me"], "name": "mine"},
        {"events": ["turnCompleted"], "desktop": True, "enabled": True},
        {"events": ["turnCompleted"], "desktop": True, "enabled": False},
        notify=["/bin/say", "it"],
    )
    common: dict[str, Any] = {"cwd": None, "threads": frozenset(), "content": False}
    assert errors == []
    assert targets == [
        Target(
            kind="notify",
            label="notify say",
            events=frozenset({"turnCompleted"}),
            command=("/bin/say", "it"),
        ),
        Target(
            kind="webhook",
            label="webhook hooks.example.org",
            events=frozenset({"turnFailed", "signalDead"}),
            threads=frozenset({"a"}),
            cwd="/v",
            url=URL,
            secret_file=secret,
            content=True,
        ),
        Target(
            kind="command",
            label="mine",
            events=frozenset(EVENTS),
            command=("/bin/tell", "me"),
            **common,
        ),
        Target(kind="desktop", label="desktop", events=frozenset({"turnCompleted"}), **common),
    ]
    assert len({target.id for target in targets}) == 4


EVENT = {"events": ["turnCompleted"]}


@claim("notifications:settings")
@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({}, "exactly one of `command`, `url` and `desktop = true` must be set, found none"),
        (
            {**EVENT, "desktop": True, "command": ["x"]},
            "exactly one of `command`, `url` and `desktop = true` must be set, "
            "found `command` and `desktop`",
        ),
        (
            {**EVENT, "desktop": False},
            "exactly one of `command`, `url` and `desktop = true` must be set, found none",
        ),
        (
            {"events": ["turnEnded"], "desktop": True},
            f"`events` has the unknown event `turnEnded`, expected {', '.join(EVENTS)}",
        ),
        ({"desktop": True}, f"`events` must name at least one of {', '.join(EVENTS)}"),
        ({**EVENT, "command": []}, "`command` must be a program and its arguments"),
        ({**EVENT, "command": ["x", "a\0b"]}, "`command` must be a program and its arguments"),
        ({**EVENT, "desktop": True, "cwd": "here"}, "`cwd` must be an absolute path"),
        ({**EVENT, "desktop": True, "cwd": "~\0/x"}, "`cwd` must be an absolute path"),
        ({**EVENT, "desktop": True, "name": ""}, "`name` must have 1 to 64 printable characters"),
        ({**EVENT, "url": "http://hooks.example.org"}, "`url` must be https, but for this machine"),
        (
            {**EVENT, "url": URL},
            "`secret_file` must name the file with the secret that webhooks are signed with",
        ),
        (
            {**EVENT, "url": URL, "secret_file": "secret"},
            "`secret_file` must be an absolute path, or begin with `~/`",
        ),
        (
            {**EVENT, "url": URL, "secret_file": "/a\0b"},
            "`secret_file` must be an absolute path, or begin with `~/`",
        ),
        (
            {**EVENT, "url": URL, "secret_file": "/nowhere/at/all"},
            "`secret_file` cannot be read: No such file or directory",
        ),
        ({**EVENT, "url": URL, "secret_file": "/dev/null"}, "`secret_file` must be a regular file"),
    ],
)
def test_a_bad_entry_is_left_out_and_the_others_stay(wrong: dict[str, Any], text: str) -> None:
    good = {"events": ["turnFailed"], "desktop": True}
    targets, errors = read(good, wrong, good)
    assert [target.events for target in targets] == [frozenset({"turnFailed"})] * 2
    assert errors == [f"entry 2 of `notifications`: {text}"]


@claim("notifications:settings")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_secret_that_others_reach_is_refused(tmp_path: Path, mode: int) -> None:
    file = write_secret(tmp_path)
    file.chmod(mode)
    targets, errors = read({**EVENT, "url": URL, "secret_file": str(file)})
    text = "`secret_file` can be read by others: it must have mode 0600"
    assert (targets, errors) == ([], [f"entry 1 of `notifications`: {text}"])


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ("", "must have 1 to 4 lines, a secret each"),
        ("\n".join([SECRET] * 5), "must have 1 to 4 lines, a secret each"),
        ("x" * 1_025, "must have 1 to 4 lines, a secret each"),
        ("plain", "must have lines of `whsec_` and base64 of 24 to 64 bytes"),
        ("whsec_QUJD", "must have lines of `whsec_` and base64 of 24 to 64 bytes"),
        ("whsec_" + "QUJD" * 22, "must have lines of `whsec_` and base64 of 24 to 64 bytes"),
        ("whsec_" + "Qé" * 16, "must have lines of `whsec_` and base64 of 24 to 64 bytes"),
        ("whsec_" + "Q*" * 16, "must have lines of `whsec_` and base64 of 24 to 64 bytes"),
    ],
)
def test_a_secret_is_checked_and_never_repeated(tmp_path: Path, content: str, rule: str) -> None:
    file = write_secret(tmp_path)
    file.write_text(content)
    _, errors = read({**EVENT, "url": URL, "secret_file": str(file)})
    assert errors == [f"entry 1 of `notifications`: `secret_file` {rule}"]


def test_other_settings_of_notifications_are_checked() -> None:
    for key, value, rule in (
        ("notify", ["say", "a\0b"], "must be a program and its arguments"),
        ("notification_hosts", ["*.example.org"], "must be names of hosts"),
        ("notification_link", "ftp://x", "must be an http or https address"),
        ("notify", "x", "invalid type"),
        ("notifications", "x", "invalid type"),
    ):
        settings = read_notifications(Config({key: value}))
        (error,) = settings.errors
        assert str(error).startswith(rule), key
        assert error.path == (key,)


@claim("notifications:settings")
async def test_clients_are_warned_of_a_bad_entry(tmp_path: Path) -> None:
    config = rendered(events=["turnCompleted"], desktop=True, command=["x"])
    config += rendered(events=["nonsense"], command=["true"])
    async with serve(tmp_path, config=config) as served, served.client() as client:
        warning = await client.wait_for("configWarning")
        assert (await client.start_thread()) != ""
    params = warning["params"]
    assert params["summary"] == "The setting `notifications` cannot be used; it is left out."
    assert "entry 1 of `notifications`: exactly one of" in params["details"]


@claim("notifications:settings")
async def test_settings_that_change_hold_at_once(tmp_path: Path) -> None:
    marker = tmp_path / "came"
    program = rendered(events=["turnCompleted"], command=["/bin/sh", "-c", f"cat > {marker}"])
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "before")
        file = tmp_path / "config.toml"
        file.write_text(file.read_text() + program)
        os.utime(file, (1, 1))
        await client.call("config/read", {})
        # Read by a task of its own.
        while not served.services.hub.observers:
            await client.call("thread/loaded/list", {})
        await client.turn(thread_id, "after")
        while not (marker.exists() and marker.read_bytes().endswith(b"}")):
            await client.call("thread/loaded/list", {})
    assert b'"type":"turnCompleted"' in marker.read_bytes()
