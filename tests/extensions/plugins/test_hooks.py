"""Hooks of plugins: where they are declared, when they are trusted, and how they run."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.hooks.definition import Declaration
from app_server.extensions.plugins.contributor import MAX_PLACES, read_declarations
from tests.support.files.hooks import group
from tests.support.files.plugins import write, write_marketplace, write_plugin
from tests.support.harness import Served, WireClient, claim, serve

CONFIG = '[plugins."p@m"]\nenabled = true\n'
FILE = "hooks/hooks.json"


def hooks(*commands: str) -> dict[str, Any]:
    return {"UserPromptSubmit": [group(command) for command in commands]}


def install(home: Path, *commands: str) -> Path:
    root = write_plugin(home / "plugins/cache/m/p/local", "p")
    write(root / FILE, {"description": "x", "hooks": hooks(*commands)})
    return root


async def listed(client: WireClient, **params: Any) -> list[dict[str, Any]]:
    (entry,) = (await client.call("hooks/list", params))["data"]
    assert (entry["warnings"], entry["errors"]) == ([], [])
    found: list[dict[str, Any]] = entry["hooks"]
    return found


async def trust(client: WireClient, found: list[dict[str, Any]]) -> None:
    edits = [
        {
            "keyPath": f'hooks.state."{hook["key"]}".trusted_hash',
            "value": hook["currentHash"],
            "mergeStrategy": "upsert",
        }
        for hook in found
    ]
    await client.call("config/batchWrite", {"edits": edits, "reloadUserConfig": True})


async def turn(client: WireClient, thread_id: str, **params: Any) -> list[Any]:
    """Run a turn; gives status and texts of the hooks that ran."""
    said = [{"type": "text", "text": "hi"}]
    await client.call("turn/start", {"threadId": thread_id, "input": said, **params})
    messages = await client.until("turn/completed")
    runs = [m["params"]["run"] for m in messages if m["method"] == "hook/completed"]
    assert {run["source"] for run in runs} <= {"plugin"}
    return [(run["status"], [entry["text"] for entry in run["entries"]]) for run in runs]


def developer(served: Served) -> list[str]:
    return [text for role, text in served.model.inputs() if role == "developer"]


@claim("hooks:plugins")
async def test_a_hook_of_a_plugin_runs_once_it_is_trusted_with_the_whole_plugin(
    tmp_path: Path,
) -> None:
    variables = ("PLUGIN_ROOT", "CLAUDE_PLUGIN_ROOT", "PLUGIN_DATA", "CLAUDE_PLUGIN_DATA")
    shown = " ".join(f"${{{name}}} $({'printenv ' + name})" for name in variables)
    root = install(tmp_path, f"cat >/dev/null; echo {shown}")
    async with serve(tmp_path, config=CONFIG, with_apps=True) as served, served.client() as client:
        (hook,) = await listed(client)
        own, whole = hook.pop("currentHash").split("/")
        assert own.startswith("sha256:")
        assert whole.startswith("sha256:")
        assert hook == {
            "handlerType": "command",
            "key": f"p@m:{FILE}:user_prompt_submit:0:0",
            "eventName": "userPromptSubmit",
            "command": f"cat >/dev/null; echo {shown}",
            "async": False,
            "matcher": None,
            "timeoutSec": 600,
            "statusMessage": None,
            "additionalContextLimit": None,
            "sourcePath": str(root / FILE),
            "source": "plugin",
            "pluginId": "p@m",
            "environmentId": None,
            "displayOrder": 0,
            "enabled": True,
            "isManaged": False,
            "trustStatus": "untrusted",
        }
        thread_id = await client.start_thread()
        assert await turn(client, thread_id) == []
        await trust(client, await listed(client))
        places = " ".join([str(root)] * 4 + [str(tmp_path / "plugins/data/p-m")] * 4)
        assert await turn(client, thread_id) == [("completed", [places])]
        assert developer(served)[-1] == places
        (root / "script.sh").write_text("another file of the plugin")
        (changed,) = await listed(client)
        assert changed["trustStatus"] == "modified"
        assert changed["currentHash"].split("/")[0] == own
        assert await turn(client, thread_id) == []
        (root / "script.sh").unlink()
        assert await turn(client, thread_id, disabledPluginIds=["p@m"]) == []
        assert await listed(client, threadId=thread_id) == []
        assert await turn(client, thread_id, disabledPluginIds=[]) == [("completed", [places])]


@pytest.mark.parametrize("form", ["value", "quoted", "hook", "state"])
async def test_both_parts_of_the_hash_are_written_as_codex_keeps_them(
    tmp_path: Path, form: str
) -> None:
    install(tmp_path, "echo hi")
    async with serve(tmp_path, config=CONFIG, with_apps=True) as served, served.client() as client:
        (hook,) = await listed(client)
        own, whole = hook["currentHash"].split("/")
        table = {"trusted_hash": hook["currentHash"]}
        edit = {
            "value": (f'hooks.state."{hook["key"]}".trusted_hash', hook["currentHash"]),
            "quoted": (f'"hooks"."state"."{hook["key"]}"."trusted_hash"', hook["currentHash"]),
            "hook": (f'hooks.state."{hook["key"]}"', table),
            "state": ("hooks.state", {hook["key"]: table, "other": {"enabled": False}}),
        }[form]
        params = {"keyPath": edit[0], "value": edit[1], "mergeStrategy": "upsert"}
        await client.call("config/value/write", params)
        written = tomllib.loads((tmp_path / "config.toml").read_text())["hooks"]["state"]
        assert written[hook["key"]] == {"trusted_hash": own, "trusted_content_hash": whole}
        assert (await listed(client))[0]["trustStatus"] == "trusted"


async def test_a_plugin_that_changes_within_a_turn_runs_no_hook_any_more(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "plugins/cache/m/p/local", "p")
    declared = {
        "UserPromptSubmit": [group("cat >/dev/null; touch ${PLUGIN_ROOT}/new")],
        "Stop": [group("cat >/dev/null; echo no >&2; exit 2")],
    }
    write(root / FILE, {"hooks": declared})
    async with serve(tmp_path, config=CONFIG, with_apps=True) as served, served.client() as client:
        await trust(client, await listed(client))
        thread_id = await client.start_thread()
        assert await turn(client, thread_id) == [
            ("completed", []),
            ("failed", ["the plugin was changed since its hook was trusted"]),
        ]


async def test_a_plugin_without_a_fingerprint_runs_no_hooks(tmp_path: Path) -> None:
    root = install(tmp_path, "echo hi")
    (root / "link").symlink_to("/etc/passwd")
    async with serve(tmp_path, config=CONFIG, with_apps=True) as served, served.client() as client:
        (entry,) = (await client.call("hooks/list", {}))["data"]
        assert entry["hooks"] == []
        assert entry["warnings"] == [
            f"hooks of the plugin p@m do not run: {root / 'link'} is no file and no folder"
        ]


ONE, TWO = hooks("one"), hooks("two")


@pytest.mark.parametrize(
    ("declared", "names"),
    [
        (None, [FILE]),
        ("./my/one.json", ["my/one.json"]),
        (["./my/one.json", "./two.json"], ["my/one.json", "two.json"]),
        ({"hooks": ONE}, ["plugin.json#hooks[0]"]),
        (["./two.json", {"hooks": ONE}], ["two.json", "plugin.json#hooks[1]"]),
        (ONE, []),
        (["my/one.json", "/two.json", "./../p/two.json", 7], []),
        ("./none.json", []),
        ([{"hooks": ONE}] * (MAX_PLACES + 1), [f"plugin.json#hooks[{n}]" for n in range(16)]),
    ],
)
def test_hooks_are_declared_in_files_or_in_the_manifest(
    tmp_path: Path, declared: Any, names: list[str]
) -> None:
    more = {} if declared is None else {"hooks": declared}
    root = write_plugin(tmp_path / "p", "p", **more)
    for name in (FILE, "my/one.json", "two.json"):
        write(root / name, {"hooks": TWO if name == "two.json" else ONE})
    found, problems = read_declarations(root)
    assert problems == []
    assert [one.name for one in found] == names
    for one in found:
        inline = "#" in one.name
        file = root / (".codex-plugin/plugin.json" if inline else one.name)
        assert one == Declaration(one.name, file, TWO if one.name == "two.json" else ONE)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "p", "p", hooks=["./bad.json", "./out.json"])
    write(root / "bad.json", "[]")
    write(tmp_path / "secret.json", {"hooks": ONE})
    (root / "out.json").symlink_to(tmp_path / "secret.json")
    assert read_declarations(root) == (
        [],
        [
            (root / "bad.json", "failed to parse bad.json: expected an object"),
            (root / "out.json", "`out.json` leads out of its folder"),
        ],
    )
    (root / ".codex-plugin/plugin.json").write_text("{")
    found, ((file, text),) = read_declarations(root)
    assert (found, file) == ((), root / ".codex-plugin/plugin.json")
    assert text.startswith("failed to parse plugin.json")


async def test_a_plugin_is_shown_with_its_hooks(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "shop/p", "p")
    write(root / FILE, {"hooks": {**ONE, "Stop": [group("a"), group("b")], "Odd": [group("c")]}})
    file = write_marketplace(tmp_path / "shop", "m", "p")
    async with serve(tmp_path / "home", with_apps=True) as served, served.client() as client:
        params = {"marketplacePath": str(file), "pluginName": "p"}
        shown = (await client.call("plugin/read", params))["plugin"]["hooks"]
    assert shown == [
        {"key": f"p@m:{FILE}:user_prompt_submit:0:0", "eventName": "userPromptSubmit"},
        {"key": f"p@m:{FILE}:stop:0:0", "eventName": "stop"},
        {"key": f"p@m:{FILE}:stop:1:0", "eventName": "stop"},
    ]
