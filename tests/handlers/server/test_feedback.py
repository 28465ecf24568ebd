"""feedback/save: a report on this machine, whole or not at all."""

import json
import os
import time
import zipfile
from pathlib import Path

from app_server.handlers.server import lifecycle as feedback
from tests.support.harness import claim, serve


def contents(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


@claim("feedback:save")
async def test_a_report_has_what_the_client_chose(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    note.write_text("mine")
    async with serve(tmp_path / "home") as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hi")
        one, two = tmp_path / "one.zip", tmp_path / "two.zip"
        saved = await client.call(
            "feedback/save",
            {
                "savePath": str(one),
                "classification": "bug",
                "reason": "It broke.",
                "threadId": thread_id,
                "includeLogs": True,
                "extraLogFiles": [str(note)],
                "tags": {"editor": "e"},
            },
        )
        assert saved == {"savedPath": str(one), "threadId": thread_id, "promptHash": None}
        found = contents(one)
        report = json.loads(found["report.json"])
        assert (report["message"], report["tags"]["classification"], report["tags"]["editor"]) == (
            "It broke.",
            "bug",
            "e",
        )
        assert json.loads(found["manifest.json"]) == ["files/1-note.txt", "thread.jsonl"]
        assert found["files/1-note.txt"] == b"mine"
        assert b'"hi"' in found["thread.jsonl"]
        assert one.stat().st_mode & 0o777 == 0o600
        bare = await client.call("feedback/save", {"savePath": str(two), "classification": "idea"})
        assert bare["threadId"].startswith("no-active-thread-")
        assert sorted(contents(two)) == ["manifest.json", "report.json"]


@claim("feedback:refused")
async def test_a_report_that_cannot_be_saved_leaves_nothing(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(feedback.MAX_FILE_BYTES + 1)
    taken = tmp_path / "taken.zip"
    taken.write_text("kept")
    new = str(tmp_path / "new.zip")
    async with serve(tmp_path / "home") as served, served.client() as client:
        for members, code, message in (
            ({"savePath": "rel.zip"}, -32602, "feedback savePath must be an absolute path"),
            (
                {"savePath": new, "extraLogFiles": ["/x"] * 33},
                -32602,
                "feedback extraLogFiles accepts at most 32 entries",
            ),
            (
                {"savePath": new, "reason": "x" * 70_000},
                -32602,
                "feedback reason holds, with the tags, over 65536 characters",
            ),
            (
                {"savePath": str(taken)},
                -32603,
                f"failed to save feedback: {taken} is there already",
            ),
            (
                {"savePath": str(tmp_path / "no" / "f.zip")},
                -32603,
                f"failed to save feedback: {tmp_path / 'no'}: No such file or directory",
            ),
            (
                {"savePath": new, "extraLogFiles": ["/no/such"]},
                -32603,
                "failed to save feedback: /no/such is not a file",
            ),
            (
                {"savePath": new, "extraLogFiles": [str(large)]},
                -32603,
                f"failed to save feedback: {large}: a report takes 67108864 bytes more, "
                "and no more",
            ),
        ):
            error = await client.refusal("feedback/save", {"classification": "bug", **members})
            assert (error.code, error.message) == (code, message)
    assert taken.read_text() == "kept"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "large", "taken.zip"]


@claim("feedback:refused")
async def test_the_draft_of_a_server_that_was_killed_goes_with_the_next_report(
    tmp_path: Path,
) -> None:
    stale, fresh, other = (
        tmp_path / f".feedback-{name}" for name in ("killed_1.draft", "writing2.draft", "notes")
    )
    for path in (stale, fresh, other):
        path.write_bytes(b"part")
    for path in (stale, other):
        os.utime(path, (0, time.time() - feedback.DRAFT_S - 1))
    async with serve(tmp_path / "home") as served, served.client() as client:
        params = {"savePath": str(tmp_path / "report.zip"), "classification": "bug"}
        await client.call("feedback/save", params)
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert left == sorted([fresh.name, other.name, "report.zip"])
