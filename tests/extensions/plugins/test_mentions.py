"""Plugins in turns: what the model is sent of them, and what it has when the user names one."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.extensions.contract.registration import ContributionContext
from app_server.extensions.contract.turns import NamedPlugin
from app_server.extensions.plugins.contributor import Plugins
from app_server.extensions.plugins.in_turns import INSTRUCTIONS, MAX_NAMED, PluginsInTurns
from app_server.extensions.plugins.selected_roots import SelectedRoot
from app_server.extensions.plugins.store import PluginStore
from app_server.sessions.mentions import MAX_NAMESPACES, plugin_text
from protocol.turns.items import MentionUserInput, TextUserInput, UserInput
from tests.support.files.fifos import write_fifo
from tests.support.files.plugins import server, write, write_plugin
from tests.support.harness import Served, WireClient, claim, serve, stdio_server
from tests.support.model import Gate, says

SKILL = "---\nname: s\ndescription: d\n---\nDo so.\n"
ALPHA = (
    "The user named the plugin `The Alpha`. For this message use what it brings first:\n"
    "- Skills whose names begin with `alpha:`.\n"
    "- Tools of its MCP servers, in the namespaces `mcp__one`, `mcp__two`."
)
BETA = (
    "The user named the plugin `beta`. For this message use what it brings first:\n"
    "- Skills whose names begin with `beta:`."
)


def plugin(
    home: Path, name: str, *, skills: bool = True, enabled: str = "true", **more: Any
) -> str:
    """Install a plugin of the marketplace `m`; returns its table in config.toml."""
    root = write_plugin(home / f"plugins/cache/m/{name}/local", name, **more)
    if skills:
        write(root / "skills/s/SKILL.md", SKILL)
    return f'[plugins."{name}@m"]\nenabled = {enabled}\n'


def mention(name: str, scheme: str = "plugin") -> dict[str, Any]:
    return {"type": "mention", "name": name, "path": f"{scheme}://{name}"}


def text(said: str) -> dict[str, Any]:
    return {"type": "text", "text": said}


async def turn(client: WireClient, thread_id: str, *parts: dict[str, Any]) -> None:
    await client.call("turn/start", {"threadId": thread_id, "input": list(parts)})
    await client.wait_for("turn/completed")


def plugin_texts(served: Served) -> list[str]:
    """Return what a request says of plugins: before the history, then within it."""
    inputs = served.model.inputs()
    return [said for role, said in inputs if role == "developer" and "plugin" in said]


@claim("plugins:named")
async def test_the_model_is_sent_once_what_a_named_plugin_has(tmp_path: Path) -> None:
    named: dict[str, Any] = {"interface": {"displayName": "The\n Alpha"}}
    servers = {"two": server(), "one": server(), "bad": server(args=["-c", ""])}
    config = plugin(tmp_path, "alpha", servers=servers, **named) + plugin(tmp_path, "beta")
    config += plugin(tmp_path, "bare", skills=False)
    config += plugin(tmp_path, "off", enabled="false")
    config = "mcp_optional_startup_grace_ms = 0\n" + config
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        thread_id = await client.start_thread()
        await turn(client, thread_id, text("@alpha plugin://alpha@m [alpha](plugin://alpha@m)"))
        assert plugin_texts(served) == [INSTRUCTIONS]
        linked = text("use [@any name](plugin://beta@m) and [@x](plugin://none@m)")
        others = mention("bare@m"), mention("off@m"), mention("alpha@m")
        await turn(client, thread_id, linked, mention("alpha@m"), *others)
        assert plugin_texts(served) == [INSTRUCTIONS, ALPHA, BETA]
        said = served.model.inputs()
        # Behind the message that names them.
        assert [role for role, _ in said[-3:]] == ["user", "developer", "developer"]
        await turn(client, thread_id, text("go on"))
        assert plugin_texts(served) == [INSTRUCTIONS, ALPHA, BETA]


async def test_without_a_plugin_that_brings_something_nothing_is_said_of_plugins(
    tmp_path: Path,
) -> None:
    config = plugin(tmp_path, "bare", skills=False) + plugin(tmp_path, "off", enabled="false")
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        thread_id = await client.start_thread()
        await turn(client, thread_id, text("[@bare](plugin://bare@m) [@off](plugin://off@m)"))
        assert plugin_texts(served) == []


async def test_skills_that_are_switched_off_do_not_count(tmp_path: Path) -> None:
    config = plugin(tmp_path, "beta")
    config += '[[skills.config]]\nname = "beta:s"\nenabled = false\n'
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        thread_id = await client.start_thread()
        await turn(client, thread_id, mention("beta@m"))
        assert plugin_texts(served) == [INSTRUCTIONS]


async def test_a_plugin_of_the_thread_alone_can_be_named(tmp_path: Path) -> None:
    root = write_plugin(tmp_path / "chosen", "chosen", servers={"one": server()})
    place = {"type": "environment", "environmentId": "local", "path": str(root)}
    config = "mcp_optional_startup_grace_ms = 0\n"
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        roots = [{"id": "an id", "location": place}]
        thread_id = await client.start_thread(selectedCapabilityRoots=roots)
        await turn(client, thread_id, {**mention("x"), "path": "plugin://an id"})
        assert plugin_texts(served)[1:] == [
            "The user named the plugin `chosen`. For this message use what it brings first:\n"
            "- Tools of its MCP servers, in the namespaces `mcp__one`."
        ]


@claim("mcp:named")
@pytest.mark.parametrize(
    "part",
    [mention("alpha@m"), mention("one", "mcp"), text("$alpha:s"), text("[@a](plugin://alpha@m)")],
    ids=["plugin", "server", "skill", "link"],
)
async def test_the_first_request_waits_for_servers_that_are_named_however_long_the_grace(
    tmp_path: Path, part: dict[str, Any]
) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    one = server()
    command = f'read line < "{gate}"; exec "{one["command"]}" "$@"'
    waits = {"command": "/bin/sh", "args": ["-c", command, "sh", *one["args"]]}
    config = plugin(tmp_path, "alpha", servers={"one": waits})
    config = f"mcp_optional_startup_grace_ms = 1\n{config}{stdio_server('hangs', 'hang')}"
    async with serve(tmp_path, config=config, with_apps=True) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.call("turn/start", {"threadId": thread_id, "input": [part]})
        await client.wait_for("turn/started")
        await write_fifo(gate, "go\n")
        await client.wait_for("turn/completed")
        names = [tool["name"] for tool in served.model.requests[0]["tools"]]
        assert "mcp__one" in names


async def test_more_input_into_a_running_turn_brings_nothing_of_plugins(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config=plugin(tmp_path, "beta"), with_apps=True) as served,
        served.client() as client,
    ):
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts += [[gate, *says("one")], says("two")]
        await client.call("turn/start", {"threadId": thread_id, "input": [text("go")]})
        await gate.wait_until_reached()
        more = {"threadId": thread_id, "input": [mention("beta@m")]}
        await client.call("turn/start", more)
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert plugin_texts(served) == [INSTRUCTIONS]


async def test_names_are_looked_for_within_bounds(tmp_path: Path) -> None:
    plugins = Plugins(PluginStore(tmp_path), lambda _: True)
    ids = [f"p{number:02}" for number in range(MAX_NAMED + 1)]
    roots = [SelectedRoot(id_, "local", str(write_plugin(tmp_path / id_, id_))) for id_ in ids]
    await plugins.select("t", [roots[0], *roots])
    context = ContributionContext("current", {}, "t")

    def named(*parts: UserInput) -> list[str]:
        return [one.id for one in PluginsInTurns(plugins).named(parts, context)]

    everything = "".join(f"[@x](plugin://{id_})" for id_ in reversed(ids))
    assert named(TextUserInput(type="text", text=everything)) == ids[:MAX_NAMED]
    odd = ("[@](plugin://p00)", "[@x](plugin://)", "[@x](plugin://p00 )", "[$x](plugin://p00)")
    assert named(*(TextUserInput(type="text", text=said) for said in odd)) == []
    assert named(TextUserInput(type="text", text="[@x](plugin://" * 100_000)) == []
    by_case = MentionUserInput(type="mention", name="p00", path="Plugin://p00")
    assert named(by_case) == []


def test_of_many_namespaces_the_first_are_named_and_the_others_counted() -> None:
    names = [f"n{number}" for number in range(MAX_NAMESPACES + 2)]
    said = plugin_text(NamedPlugin("p@m", "P", None), names, is_searched=True)
    shown = ", ".join(f"`{name}`" for name in names[:MAX_NAMESPACES])
    assert said == (
        "The user named the plugin `P`. For this message use what it brings first:\n"
        f"- Tools of its MCP servers, in the namespaces {shown} and 2 more; find them with "
        "`tool_search`."
    )
