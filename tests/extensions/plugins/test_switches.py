"""Plugins that a thread goes without: `disabledPluginIds`."""

from pathlib import Path
from typing import Any

from app_server.extensions.plugins.contributor import MAX_THREADS, Plugins
from app_server.extensions.plugins.selected_roots import SelectedRoot
from app_server.extensions.plugins.store import PluginStore
from tests.support.files.plugins import server, write, write_plugin
from tests.support.harness import Served, WireClient, claim, serve

CONFIG = "mcp_optional_startup_grace_ms = 0\n" + "".join(
    f'[plugins."{name}@m"]\nenabled = true\n' for name in ("one", "two")
)
EVERYTHING = ["one", "two"]
SAID = "$one:s $two:s [@one](plugin://one@m) [@two](plugin://two@m)"


def install(home: Path) -> None:
    for name in ("one", "two"):
        root = write_plugin(home / f"plugins/cache/m/{name}/local", name, servers={name: server()})
        write(root / "skills/s/SKILL.md", f"---\nname: s\ndescription: d\n---\nDo {name}.\n")


async def shown(served: Served, client: WireClient, thread_id: str, **params: Any) -> list[Any]:
    """Return whose tools, skills and descriptions a model gets with one more turn of SAID."""
    said = [{"type": "text", "text": SAID}]
    await client.call("turn/start", {"threadId": thread_id, "input": said, **params})
    await client.wait_for("turn/completed")
    request = served.model.requests[-1]
    tools = [tool["name"].removeprefix("mcp__") for tool in request["tools"] if "tools" in tool]
    texts = [text for _, text in served.model.inputs()]
    new = "".join(texts[len(texts) - texts[::-1].index(SAID) :])
    return [
        tools,
        [name for name in EVERYTHING if f"Do {name}." in new],
        [name for name in EVERYTHING if f"The user named the plugin `{name}`" in new],
    ]


@claim("plugins:disabled")
async def test_plugins_that_a_thread_disables_stay_disabled_until_it_enables_them(
    tmp_path: Path,
) -> None:
    install(tmp_path)
    async with serve(tmp_path, config=CONFIG, with_apps=True) as served, served.client() as client:
        thread_id = await client.start_thread()
        other_id = await client.start_thread()
        assert await shown(served, client, thread_id) == [EVERYTHING] * 3
        assert "one:s" in _skills(served)[-1]
        assert (
            await shown(served, client, thread_id, disabledPluginIds=["one@m", "none@m"])
            == [["two"]] * 3
        )
        assert "one:s" not in _skills(served)[-1]
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [entry["name"] for entry in status["data"]] == ["two"]
        assert await shown(served, client, thread_id) == [["two"]] * 3
        assert await shown(served, client, other_id) == [EVERYTHING] * 3
        assert await shown(served, client, thread_id, disabledPluginIds=[]) == [EVERYTHING] * 3
        update = {"threadId": thread_id, "disabledPluginIds": ["two@m"]}
        await client.call("thread/settings/update", update)
        assert (await shown(served, client, thread_id))[0] == ["one"]
    async with serve(tmp_path, config=CONFIG, with_apps=True) as served, served.client() as client:
        await client.call("thread/resume", {"threadId": thread_id})
        status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert [entry["name"] for entry in status["data"]] == ["one"]
        tools, _, _ = await shown(served, client, thread_id)
        assert tools == ["one"]


def _skills(served: Served) -> list[str]:
    """Return what the last request says of skills, the oldest first."""
    texts = [
        item["content"][0]["text"] for item in served.model.requests[-1]["input"] if "role" in item
    ]
    return [text for text in texts if text.startswith("<skills>")]


async def test_what_threads_go_without_is_remembered_within_bounds(tmp_path: Path) -> None:
    plugins = Plugins(PluginStore(tmp_path), lambda _: True)
    chosen = str(write_plugin(tmp_path / "p", "p"))
    for thread_id in ("0", "1"):
        await plugins.select(thread_id, [SelectedRoot("p", "local", chosen)])
    revision = plugins.revision()
    for number in range(MAX_THREADS + 1):
        plugins.switch_off(str(number), ["p"])
    assert plugins.revision() == revision + MAX_THREADS + 1
    assert [len(plugins.active({}, thread_id)) for thread_id in ("0", "1")] == [1, 0]
    plugins.switch_off("1", ["p"])
    assert plugins.revision() == revision + MAX_THREADS + 1
    plugins.switch_off("1", ())
    assert plugins.revision() == revision + MAX_THREADS + 2
    assert len(plugins.active({}, "1")) == 1
