"""tools: exec_command, as the model and the clients see it."""

import re
from pathlib import Path

import pytest

from tests.support.files.plugins import write_plugin
from tests.support.harness import claim, write_config
from tests.support.host.stopped import STOPPED
from tests.support.turn_tools.turn_commands import SOON_MS, CommandResult, command, desk, stdin


@claim("commands:item")
async def test_a_command_is_an_item_that_begins_prints_and_ends(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        line = "echo out; echo err >&2; exit 3"
        [text] = await at.turn(command(line))
        result = CommandResult(text)
        assert (result.exit_code, result.output, result.tokens) == (3, "out\nerr\n", 2)
        [started] = at.items("item/started")
        [completed] = at.items("item/completed")
        assert re.fullmatch(r"[1-9]\d{3,4}", started["processId"])
        assert started == {
            **started,
            "status": "inProgress",
            "source": "unifiedExecStartup",
            "cwd": str(at.folder),
            "commandActions": [{"type": "unknown", "command": line}],
            "aggregatedOutput": None,
            "exitCode": None,
            "durationMs": None,
        }
        assert started["command"].endswith(f" -c '{line}'")
        assert completed["durationMs"] >= 0
        assert completed == {
            **started,
            "status": "failed",
            "aggregatedOutput": "out\nerr\n",
            "exitCode": 3,
            "durationMs": completed["durationMs"],
            "completedAtMs": completed["completedAtMs"],
        }
        assert "".join(at.deltas()) == "out\nerr\n"
        assert await at.stored() == [completed]


@claim("commands:item")
@pytest.mark.parametrize(
    ("line", "code", "output", "status", "aggregated"),
    [
        ("true", 0, "", "completed", None),
        ("kill -9 $$", 137, "", "failed", None),
        ("kill $$", 143, "", "failed", None),
        ("printf 'a\\377\\303'; sleep 0.1; printf '\\251'", 0, "a\ufffdé", "completed", "a\ufffdé"),
        ("cat; echo $?", 0, "0\n", "completed", "0\n"),
        ("no-such-program-here", 127, None, "failed", None),
    ],
)
async def test_clients_and_the_model_get_how_a_command_ends(
    tmp_path: Path, line: str, code: int, output: str | None, status: str, aggregated: str | None
) -> None:
    async with desk(tmp_path) as at:
        result = await at.run(line)
        [completed] = at.items("item/completed")
        assert (result.exit_code, completed["exitCode"], completed["status"]) == (
            code,
            code,
            status,
        )
        if output is not None:
            assert (result.output, completed["aggregatedOutput"]) == (output, aggregated)
            assert "".join(at.deltas()) == (aggregated or "")


@claim("commands:background")
async def test_a_command_goes_on_behind_its_turn_and_completes_its_item(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        line = "echo first; read word < go; echo last $word"
        (at.folder / "go").unlink(missing_ok=True)
        await at.run("mkfifo go")
        first = await at.go_on(command(line), "first\n")
        assert (first.exit_code, first.output) == (None, "first\n")
        [started] = at.items("item/started")
        assert started["processId"] == str(first.session)
        assert at.items("item/completed") == []
        turn_id = at.messages[-1]["params"]["turn"]["id"]
        # In the history it is in progress.
        assert (await at.stored())[-1] == {
            **started,
            "aggregatedOutput": "first\n",
            "startedAtMs": started["startedAtMs"],
        }
        listed = await at.client.call("thread/backgroundTerminals/list", {"threadId": at.thread_id})
        [row] = listed["data"]
        assert (row["itemId"], row["processId"], row["command"], row["cwd"]) == (
            started["id"],
            started["processId"],
            line,
            str(at.folder),
        )
        # Another turn lets it end; its item is that of its own turn.
        assert (await at.run("echo now > go")).exit_code == 0
        ended = [
            message["params"]
            for message in [*at.messages, *at.client.take_kept()]
            if message.get("method") == "item/completed"
            and message["params"]["item"]["id"] == started["id"]
        ] or [
            (
                await at.client.wait_for(
                    "item/completed", lambda params: params["item"]["id"] == started["id"]
                )
            )["params"]
        ]
        assert [params["turnId"] for params in ended] == [turn_id]
        item = ended[0]["item"]
        assert (item["status"], item["exitCode"]) == ("completed", 0)
        assert item["aggregatedOutput"] == "first\nlast now\n"
        stored = await at.stored()
        assert [entry["id"] for entry in stored][-2:] == [item["id"], stored[-1]["id"]]
        assert stored[-2] == item
        # What it printed since is read once; then its session is no more.
        [rest, again] = [
            (await at.turn(stdin(first.session)))[0],
            (await at.turn(stdin(first.session)))[0],
        ]
        assert (CommandResult(rest).exit_code, CommandResult(rest).output) == (0, "last now\n")
        assert again == f"write_stdin failed: Unknown process id {first.session}"


@claim("commands:stdin")
async def test_what_is_written_to_a_terminal_is_sent_to_clients(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        line = command("stty size; cat", tty=True)
        first = await at.go_on(line, "24 80\r\n")
        assert (first.exit_code, first.output) == (None, "24 80\r\n")
        hello = stdin(first.session, "hello\n")
        second = await at.go_on(hello, "hello\r\nhello\r\n")
        assert (second.exit_code, second.output) == (None, "hello\r\nhello\r\n")
        written = [
            message["params"]
            for message in at.messages
            if message.get("method") == "item/commandExecution/terminalInteraction"
        ]
        turn_id = at.messages[-1]["params"]["turn"]["id"]
        assert [(one["turnId"], one["processId"], one["stdin"]) for one in written] == [
            (turn_id, str(first.session), "hello\n")
        ]
        [third] = await at.run_calls(stdin(first.session, "\x04", yield_time_ms=30_000))
        assert (third.exit_code, third.output) == (0, "")


@claim("commands:stdin")
async def test_a_command_without_a_terminal_takes_no_input(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        first = await at.run("sleep 1000", yield_time_ms=SOON_MS)
        [text] = await at.turn(stdin(first.session, "x"))
        assert text == (
            "write_stdin failed: stdin is closed for this session; run the command again with "
            "tty=true to be able to write"
        )


@claim("commands:background")
async def test_terminals_are_ended_by_clients(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        left = [await at.run("sleep 1000", yield_time_ms=SOON_MS) for _ in range(3)]
        sessions = [str(result.session) for result in left]
        thread = {"threadId": at.thread_id}

        async def listed(**page: object) -> tuple[list[str], str | None]:
            answer = await at.client.call("thread/backgroundTerminals/list", {**thread, **page})
            return [row["processId"] for row in answer["data"]], answer["nextCursor"]

        first_page = await listed(limit=2)
        assert first_page[0] == sessions[:2]
        assert await listed(cursor=first_page[1]) == (sessions[2:], None)
        end = "thread/backgroundTerminals/terminate"
        assert await at.client.call(end, {**thread, "processId": sessions[1]}) == {
            "terminated": True
        }
        item = (await at.client.wait_for("item/completed"))["params"]["item"]
        assert (item["processId"], item["status"]) == (sessions[1], "failed")
        assert item["exitCode"] in STOPPED
        assert await listed() == ([sessions[0], sessions[2]], None)
        for gone in (sessions[1], "1"):
            answer = await at.client.call(end, {**thread, "processId": gone})
            assert answer == {"terminated": False}
        error = await at.client.refusal(end, {**thread, "processId": "nope"})
        assert error.message == "invalid background terminal process id: nope"
        assert await at.client.call("thread/backgroundTerminals/clean", thread) == {}
        assert await listed() == ([], None)
        assert {item["status"] for item in await at.stored()} == {"failed"}


@claim("commands:output")
async def test_long_output_is_cut_in_the_middle(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        result = await at.run("seq 1 400000", max_output_tokens=50)
        assert result.tokens == 672_224
        head, tail = result.output.split("\n[... 672174 tokens left out ...]\n")
        assert (len(head) + len(tail), head[:6], tail[-7:]) == (200, "1\n2\n3\n", "400000\n")
        [completed] = at.items("item/completed")
        kept = completed["aggregatedOutput"]
        assert re.search(r"\n\[\.\.\. 1640319 bytes left out \.\.\.\]\n", kept)
        assert len(kept) < 1024 * 1024 + 100
        assert max(len(delta.encode()) for delta in at.deltas()) <= 8192
        # The settings have the last word.
        whole = await at.run("seq 1 400000", max_output_tokens=1_000_000)
        assert len(whole.output) < 20_000


@claim("commands:arguments")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"cmd": 5}, "failed to parse function arguments: cmd: Input should be a valid string"),
        ({}, "failed to parse function arguments: cmd: Field required"),
        (
            {"cmd": "true", "bogus": 1},
            "failed to parse function arguments: bogus: Extra inputs are not permitted",
        ),
        (
            {"cmd": "true", "workdir": "no/such"},
            "exec_command failed: FOLDER/no/such: No such file",
        ),
        (
            {"cmd": "true", "shell": "no-such-shell"},
            "exec_command failed: shell: no program `no-such-shell` on this machine",
        ),
    ],
)
async def test_what_cannot_be_run_says_why(
    tmp_path: Path, arguments: dict[str, object], text: str
) -> None:
    async with desk(tmp_path) as at:
        [output] = await at.turn({"name": "exec_command", "arguments": arguments})
        assert output.startswith(text.replace("FOLDER", str(at.folder)))
        for item in at.items("item/completed"):
            assert (item["status"], item["exitCode"]) == ("failed", -1)


@claim("commands:environment")
async def test_a_command_has_the_variables_of_the_policy_and_never_a_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = {
        *("OPENAI_API_KEY", "MODEL_KEY", "CODEX_CONNECTORS_TOKEN", "APP_SERVER_TOKEN"),
        *("GITHUB_PAT", "TRACKER_LOGIN"),
    }
    for name in ("PLAIN", "SOME_TOKEN", *secret):
        monkeypatch.setenv(name, "value")
    config = (
        'shell_environment_policy.set = { ADDED = "yes" }\n'
        "shell_environment_policy.ignore_default_excludes = true\n"
        "[model_providers.other]\nname = 'o'\nbase_url = 'http://127.0.0.1:1'\n"
        "env_key = 'MODEL_KEY'\n"
        "[mcp_servers.tracker]\nurl = 'http://127.0.0.1:1/mcp'\nenabled = false\n"
        "bearer_token_env_var = 'GITHUB_PAT'\nenv_http_headers = { X-Login = 'TRACKER_LOGIN' }\n"
    )
    async with desk(tmp_path, config=config) as at:
        result = await at.run("env", max_output_tokens=100_000)
        found = dict(line.split("=", 1) for line in result.output.splitlines() if "=" in line)
        assert (found["PLAIN"], found["SOME_TOKEN"], found["ADDED"]) == ("value", "value", "yes")
        assert found["CODEX_THREAD_ID"] == at.thread_id
        assert not secret & found.keys()


@claim("commands:environment")
async def test_a_command_has_no_token_of_a_server_that_came_later_or_with_a_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("LATER_PAT", "PLUGIN_PAT", "PLUGIN_LOGIN"):
        monkeypatch.setenv(name, "value")
    web = {"url": "http://127.0.0.1:1/mcp"}
    servers = {
        "one": {**web, "bearer_token_env_var": "PLUGIN_PAT"},
        "two": {**web, "env_http_headers": {"X-Login": "PLUGIN_LOGIN"}},
    }
    home = tmp_path / "home"
    write_plugin(home / "plugins/cache/m/p/local", "p", servers=servers)
    config = "mcp_optional_startup_grace_ms = 1\n"
    async with desk(tmp_path, config=config, with_apps=True) as at:
        line = "env | grep -E '^(LATER|PLUGIN)_' | cut -d= -f1 | sort"
        assert (await at.run(line)).output == "LATER_PAT\nPLUGIN_LOGIN\nPLUGIN_PAT\n"
        config += (
            '[plugins."p@m"]\nenabled = true\n'
            "[mcp_servers.later]\nurl = 'http://127.0.0.1:1'\nbearer_token_env_var = 'LATER_PAT'\n"
        )
        write_config(home, at.served.model.url, config)
        await at.client.call("config/mcpServer/reload")
        assert (await at.run(line)).output == ""


@claim("commands:shell")
async def test_a_login_shell_is_what_the_settings_allow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".profile").write_text("echo noise; export FROM_PROFILE=yes\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    line, of_sh = 'echo "[$FROM_PROFILE]"', {"shell": "sh"}
    async with desk(tmp_path / "a") as at:
        assert (await at.run(line, login=True, **of_sh)).output == "[yes]\n"
        assert (await at.run(line, login=False, **of_sh)).output == "[]\n"
    async with desk(tmp_path / "b", config="allow_login_shell = false\n") as at:
        assert (await at.run(line, login=True, **of_sh)).output == "[]\n"
        assert at.items("item/started")[0]["command"].split()[1] == "-c"


async def test_commands_of_one_answer_run_beside_each_other(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.run("mkfifo a b")
        # Each waits for what the other does.
        results = await at.run_calls(command("cat b; echo x > a"), command("echo y > b; cat a"))
        assert [(one.exit_code, one.output) for one in results] == [(0, "y\n"), (0, "x\n")]


@claim("commands:many")
async def test_the_65th_command_ends_the_one_that_has_been_silent_longest(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        results = []
        for _ in range(2):
            results += await at.run_calls(
                *(command("echo up; sleep 1000", yield_time_ms=SOON_MS) for _ in range(32))
            )
        assert all(one.exit_code is None for one in results)
        last = await at.run("echo more")
        assert last.exit_code == 0
        ended = re.fullmatch(
            r"Session (\d+) was ended to make room: a thread has at most 64 commands, and it had "
            r"been silent longest\n",
            last.note,
        )
        assert ended is not None
        assert int(ended[1]) in {one.session for one in results}
        listed = await at.client.call("thread/backgroundTerminals/list", {"threadId": at.thread_id})
        assert len(listed["data"]) == 63


async def test_a_grammar_that_cannot_be_loaded_now_fails_the_call_and_not_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("no grammar")

    monkeypatch.setattr("app_server.permissions.shell.parse._bash", missing)
    async with desk(tmp_path) as at:
        [output] = await at.turn(command("apply_patch <<'EOF'\n*** Begin Patch\nEOF"))
        assert output == "exec_command failed: ImportError: no grammar; the next use tries again"
        assert at.messages[-1]["params"]["turn"]["status"] == "completed"


async def test_a_disk_that_refuses_the_end_of_a_command_does_not_keep_its_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with desk(tmp_path) as at:
        await at.run("sleep 1000", yield_time_ms=SOON_MS)

        async def refuse(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("app_server.threads.files.writers.FileWriter.append", refuse)
        await at.served.services.sessions.unload(at.thread_id)
        assert at.served.services.sessions.find(at.thread_id) is None
        assert "No space left on device" in caplog.text
        monkeypatch.undo()
        await at.client.call("thread/resume", {"threadId": at.thread_id})
        assert [(item["status"], item["exitCode"]) for item in await at.stored()] == [
            ("failed", -1)
        ]
