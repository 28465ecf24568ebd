"""`app-server exec`: turns, the events of `--json`, what goes where, and ends."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.exec import completed, ended, said, stage, turn
from tests.support.files.images import PNG
from tests.support.harness import claim
from tests.support.model import COMPLETED, Gate, Refusal, calls, says
from tests.support.processes import running

FULL = ("--sandbox", "danger-full-access")


def command(line: str, call_id: str = "call_1") -> dict[str, Any]:
    arguments = {"cmd": line, "login": False}
    return {"name": "exec_command", "arguments": arguments, "call_id": call_id}


def done(**item: Any) -> dict[str, Any]:
    return {"type": "response.output_item.done", "item": item}


@claim("exec:events")
@pytest.mark.process
async def test_a_turn_is_told_as_events_and_its_last_message_is_kept(tmp_path: Path) -> None:
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    async with stage(tmp_path) as on:
        on.model.scripts += [
            [
                done(type="reasoning", id="rs_1", summary=summary),
                *says("First.")[:-1],
                *says("Last.", item_id="msg_2"),
            ]
        ]
        ran = await on.run("--json", "-o", "last.txt", "Hi.")
        assert (ran.status, ran.err) == (0, "")
        assert ran.events == turn(
            completed(0, type="reasoning", text="One.\nTwo."), said(1, "First."), said(2, "Last.")
        )
        assert (on.folder / "last.txt").read_text() == "Last."
        assert on.model.inputs() == [("user", "Hi.")]
        assert on.model.headers[0]["originator"] == "app-server-exec"


@claim("exec:events")
@pytest.mark.process
async def test_commands_patches_plans_and_searches_are_items(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch\n"
    plan = {"plan": [{"step": "one", "status": "in_progress"}]}
    planned = {"plan": [{"step": "one", "status": "completed"}]}
    action = {"type": "search", "query": "weather"}
    async with stage(tmp_path) as on:
        on.model.scripts += [
            calls(command("echo hello; exit 3")),
            [
                done(
                    type="custom_tool_call", id="ct", call_id="c", name="apply_patch", input=patch
                ),
                COMPLETED,
            ],
            calls({"name": "update_plan", "arguments": plan}),
            calls({"name": "update_plan", "arguments": planned, "call_id": "call_2"}),
            [
                done(type="web_search_call", id="ws_1", status="completed", action=action),
                *says("Done."),
            ],
        ]
        ran = await on.run("--json", *FULL, "-c", "web_search=live", "Go.")
        assert ran.status == 0, ran.err
        run: dict[str, Any] = {
            "type": "command_execution",
            "command": ran.events[2]["item"]["command"],
        }
        changes = [{"path": str(on.folder / "new.txt"), "kind": "add"}]
        files = {"id": "item_1", "type": "file_change", "changes": changes}
        steps = {"id": "item_2", "type": "todo_list"}
        search = {
            "id": "item_3",
            "type": "web_search",
            "query": "weather",
            "action": ran.events[8]["item"]["action"],
        }
        first = {"items": [{"text": "one", "completed": False}]}
        last = {"items": [{"text": "one", "completed": True}]}
        begun = {"aggregated_output": "", "exit_code": None, "status": "in_progress"}
        over = {"aggregated_output": "hello\n", "exit_code": 3, "status": "failed"}
        assert ran.events == turn(
            {"type": "item.started", "item": {"id": "item_0", **run, **begun}},
            completed(0, **run, **over),
            {"type": "item.started", "item": {**files, "status": "in_progress"}},
            {"type": "item.completed", "item": {**files, "status": "completed"}},
            {"type": "item.started", "item": {**steps, **first}},
            {"type": "item.updated", "item": {**steps, **last}},
            {"type": "item.started", "item": search},
            {"type": "item.completed", "item": search},
            said(4, "Done."),
            {"type": "item.completed", "item": {**steps, **last}},
            requests=5,
        )
        assert ("echo hello; exit 3" in run["command"], search["action"]["type"]) == (
            True,
            "search",
        )


@claim("exec:ends")
@pytest.mark.process
async def test_a_failed_turn_is_an_error_and_exit_status_1(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.model.scripts += [Refusal(400, {"error": {"message": "not so"}})] * 2
        ran = await on.run("--json", "Hi.")
        text = ran.events[2]["message"]
        assert "not so" in text
        assert (ran.status, ran.events) == (
            1,
            [
                {"type": "thread.started", "thread_id": "THREAD"},
                {"type": "turn.started"},
                {"type": "error", "message": text},
                {"type": "turn.failed", "error": {"message": text}},
            ],
        )
        ran = await on.run("-o", "last.txt", "Hi.")
        assert (ran.status, ran.out, "error: " in ran.err) == (1, "", True)
        assert (on.folder / "last.txt").read_text() == ""


@claim("exec:resume")
@pytest.mark.process
async def test_a_thread_goes_on_by_its_id_its_name_and_as_the_last_one(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.model.scripts += [says("One."), says("Two."), says("Three."), says("Four.")]
        first = await on.run("--experimental-json", stdin=b"First.")
        assert first.events == turn(said(0, "One."))
        by_id = ("--experimental-json", "--model", "other", "resume", first.thread_id)
        second = await on.run(*by_id, stdin=b"Second.")
        assert (second.thread_id, on.model.requests[-1]["model"]) == (first.thread_id, "other")
        assert second.events == turn(said(0, "Two."), requests=2)
        third = await on.run("resume", "--last", "--json", "Third.")
        assert third.thread_id == first.thread_id
        assert on.model.inputs() == [
            ("user", "First."),
            ("assistant", "One."),
            ("user", "Second."),
            ("assistant", "Two."),
            ("user", "Third."),
        ]
        forked = await on.run("--json", "fork", first.thread_id, "Elsewhere.")
        assert forked.thread_id != first.thread_id
        assert len(on.model.inputs()) == 7
        none = await on.run("--json", "resume", "nobody", "Hi.")
        assert (none.status, none.out) == (1, "")
        assert "no thread with the id or name 'nobody'" in none.err
        none = await on.run("--cd", str(on.home), "--skip-git-repo-check", "resume", "--last", "x")
        assert (none.status, f"no thread of {on.home}" in none.err) == (1, True)


@claim("exec:ends")
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.process
async def test_a_signal_ends_the_turn_as_interrupted(
    tmp_path: Path, number: signal.Signals, status: int
) -> None:
    gate = Gate()
    async with stage(tmp_path) as on:
        on.model.scripts += [[gate, *says("Late.")]]
        process = await on.start("--json", "Hi.")
        # Stdin is read first.
        process.stdin.close()
        await gate.wait_until_reached()
        process.send_signal(number)
        ran = await ended(process)
        assert (ran.status, ran.err) == (status, "")
        assert ran.events == turn()[:2]
        gate.opened.set()
        async with running(on.home) as server, server.client() as client:
            read = await client.call(
                "thread/read", {"threadId": ran.thread_id, "includeTurns": True}
            )
            assert [one["status"] for one in read["thread"]["turns"]] == ["interrupted"]


@claim("exec:questions")
@pytest.mark.process
async def test_what_needs_an_approval_is_refused_and_the_turn_goes_on(tmp_path: Path) -> None:
    wanted = {"cmd": "touch ../x", "login": False, "sandbox_permissions": "require_escalated"}
    asks = {"name": "exec_command", "arguments": {**wanted, "justification": "so"}}
    async with stage(tmp_path) as on:
        on.model.scripts += [calls(asks), says("As you like."), calls(asks), says("Well.")]
        ran = await on.run("--json", "Hi.")
        assert (ran.status, ran.events) == (0, turn(said(0, "As you like."), requests=2))
        ran = await on.run("--json", "-c", 'approval_policy="on-request"', "Hi.")
        assert [event["item"]["status"] for event in ran.events[2:4]] == ["in_progress", "declined"]
        assert (ran.status, ran.events[4]) == (0, said(1, "Well."))
        assert not (tmp_path / "x").exists()


@claim("exec:server")
@pytest.mark.process
async def test_a_server_that_runs_may_have_the_turn_and_others_answer_its_questions(
    tmp_path: Path,
) -> None:
    wanted = {"cmd": "echo $((40+2))", "login": False, "sandbox_permissions": "require_escalated"}
    asks = {"name": "exec_command", "arguments": {**wanted, "justification": "so"}}
    gate = Gate()
    async with stage(tmp_path) as on, running(on.home) as server, server.client() as client:
        on.model.scripts += [[gate, *calls(asks)], says("Done.")]
        attached = ("--attach", "-c", "approval_policy=on-request", "-c", "model=named")
        process = await on.start("--json", *attached, "Hi.")
        process.stdin.close()
        await gate.wait_until_reached()
        line = json.loads(await process.stdout.readline())
        await client.call("thread/resume", {"threadId": line["thread_id"]})
        gate.opened.set()
        question = await client.wait_for("item/commandExecution/requestApproval")
        await client.send({"id": question["id"], "result": {"decision": "accept"}})
        ran = await ended(process)
        assert (ran.status, ran.err) == (0, "")
        last = [json.loads(text) for text in ran.out.splitlines()][-3:-1]
        assert (last[0]["item"]["aggregated_output"], last[1]) == ("42\n", said(1, "Done."))
        assert on.model.requests[-1]["model"] == "named"
        shown = await on.run("--json", "--url", server.urls[0], "Again.")
        assert shown.events == turn(said(0, "ok"))


@claim("exec:input")
@pytest.mark.process
async def test_prompts_images_and_schemas_reach_the_model(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    async with stage(tmp_path) as on:
        (on.folder / "schema.json").write_text(json.dumps(schema))
        (on.folder / "a.png").write_bytes(PNG)
        await on.run("--json", "--output-schema", "schema.json", "--image", "a.png", "--", "Look.")
        sent = on.model.requests[-1]
        assert sent["text"]["format"] == {
            "type": "json_schema",
            "name": "codex_output_schema",
            "strict": True,
            "schema": schema,
        }
        kinds = [part["type"] for part in on.model.items()[-1]["content"]]
        assert (kinds.count("input_image"), on.model.inputs()[-1]) == (1, ("user", "Look."))
        for words, stdin, text in (
            (("Prompt.",), b"piped\n", "Prompt.\n\n<stdin>\npiped\n</stdin>"),
            (("Prompt.",), b" \n", "Prompt."),
            (("-",), b"piped\n", "piped\n"),
            ((), b"\xef\xbb\xbfpiped", "piped"),
            ((), "piped".encode("utf-16"), "piped"),
        ):
            ran = await on.run("--json", *words, stdin=stdin)
            assert (ran.status, on.model.inputs()[-1]) == (0, ("user", text))


@claim("exec:settings")
@pytest.mark.process
async def test_settings_of_the_command_line_reach_the_thread(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        more = tmp_path / "more"
        more.mkdir()
        on.model.scripts += [calls(command(f"echo x > {more}/written")), says("Done.")]
        words = ("--sandbox", "workspace-write", "--add-dir", str(more), "--model", "gpt-5.5")
        ran = await on.run(
            *("--json", *words, "-c", 'model_reasoning_effort="high"', "Go."),
            CODEX_INTERNAL_ORIGINATOR_OVERRIDE="codex_sdk_ts",
        )
        assert ran.status == 0, ran.err
        sent = on.model.requests[0]
        assert (sent["model"], sent["reasoning"]["effort"]) == ("gpt-5.5", "high")
        assert on.model.headers[0]["originator"] == "codex_sdk_ts"
        assert (more / "written").read_text() == "x\n"


@claim("exec:settings")
@pytest.mark.process
async def test_the_key_and_the_url_of_the_sdk_are_those_of_openai(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        (on.home / "config.toml").write_text("")
        words = ("--json", "-c", f'openai_base_url="{on.model.url}"', "Hi.")
        ran = await on.run(*words, CODEX_API_KEY="sk-of-this-run")
        assert (ran.status, ran.events[-2]) == (0, said(0, "ok")), ran
        assert on.model.headers[0]["authorization"] == "bearer sk-of-this-run"


@claim("exec:progress")
@pytest.mark.process
async def test_a_person_reads_progress_on_stderr_and_the_message_on_stdout(tmp_path: Path) -> None:
    async with stage(tmp_path) as on:
        on.model.scripts += [calls(command("seq 1 30")), says("Thirty.")]
        ran = await on.run(*FULL, "Count.")
        assert (ran.status, ran.out) == (0, "Thirty.\n")
        lines = ran.err.splitlines()
        at = next(number for number, line in enumerate(lines) if line.startswith("$ "))
        assert "seq 1 30" in lines[at]
        assert lines[at + 1 : at + 22] == [
            *(f"  {number}" for number in range(1, 11)),
            "  … 10 lines",
            *(f"  {number}" for number in range(21, 31)),
        ]
        assert lines[at + 22].startswith("  exit status 0 after ")
        assert lines[at + 23 :] == ["agent:", "Thirty.", "tokens: 20 in (4 cached), 10 out"]
        assert f"folder    {on.folder}" in lines[:at]
