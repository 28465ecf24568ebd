"""config.toml edited by hand while the server runs: what takes effect when (docs/config.md)."""

from pathlib import Path

from tests.support.harness import WireClient, claim, let_stand, serve
from tests.support.model import ScriptedModel, says

SERVER = '[mcp_servers.edited]\ncommand = "/no/such/program"\n'


def edit(home: Path, old: str, new: str) -> None:
    """Change the file as an editor does: a new file in the place of the old one."""
    file = home / "config.toml"
    text = file.read_text()
    assert old in text
    beside = home / "edited"
    beside.write_text(text.replace(old, new, 1))
    beside.replace(file)


async def servers(client: WireClient, thread_id: str | None = None) -> list[str]:
    params = {} if thread_id is None else {"threadId": thread_id}
    listed = await client.call("mcpServerStatus/list", params)
    return [server["name"] for server in listed["data"]]


@claim("config:edited")
async def test_requests_and_new_threads_have_what_was_edited(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        old = (await client.call("thread/start", {}))["thread"]["id"]
        edit(tmp_path, 'model = "scripted"', 'model = "edited"\nmodel_verbosity = "high"')
        shown = (await client.call("config/read", {}))["config"]
        assert (shown["model"], shown["model_verbosity"]) == ("edited", "high")
        new = (await client.call("thread/start", {}))["thread"]["id"]
        for thread_id in (old, new):
            await client.turn(thread_id, "hi")
    requests = served.model.requests
    assert [request["model"] for request in requests] == ["scripted", "edited"]
    assert [request.get("text") for request in requests] == [None, {"verbosity": "high"}]


async def test_a_loaded_thread_keeps_its_provider_and_a_resumed_one_has_the_edited(
    tmp_path: Path,
) -> None:
    async with (
        ScriptedModel().serve() as other,
        serve(tmp_path) as served,
        served.client() as client,
    ):
        thread_id = (await client.call("thread/start", {}))["thread"]["id"]
        edit(tmp_path, served.model.url, other.url)
        await client.turn(thread_id, "hi")
        assert (len(served.model.requests), other.requests) == (1, [])
        await client.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
        await client.call("thread/resume", {"threadId": thread_id})
        other.scripts.append(says("Hello."))
        await client.turn(thread_id, "hi")
        assert (len(served.model.requests), len(other.requests)) == (1, 1)


async def test_servers_and_features_of_loaded_threads_follow_a_reload(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = (await client.call("thread/start", {}))["thread"]["id"]
        file = tmp_path / "config.toml"
        file.write_text(f"{file.read_text()}{SERVER}[features]\nplugins = false\n")
        assert (await servers(client), await servers(client, thread_id)) == (["edited"], [])
        features = {"threadId": thread_id}
        before = await client.call("experimentalFeature/list", features)
        await client.call("config/mcpServer/reload", {})
        assert await servers(client, thread_id) == ["edited"]
        after = await client.call("experimentalFeature/list", features)
        changed = [
            (one["name"], one["enabled"], other["enabled"])
            for one, other in zip(before["data"], after["data"], strict=True)
            if one != other
        ]
        assert changed == [("plugins", True, False)]


async def test_requirements_hold_from_the_next_turn_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        started = await client.call("thread/start", {"sandbox": "workspace-write"})
        thread_id = started["thread"]["id"]
        demands = tmp_path / "requirements.toml"
        demands.write_text('allowed_sandbox_modes = ["read-only"]\n')
        await client.turn(thread_id, "hi")
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert resumed["sandbox"]["type"] == "readOnly"


@claim("config:edited")
async def test_all_clients_are_warned_of_what_an_edit_has_broken(tmp_path: Path) -> None:
    async with (
        serve(tmp_path, config="[agents]\n") as served,
        served.client() as one,
        served.client() as other,
    ):
        file = tmp_path / "config.toml"
        right = file.read_text()

        async def warnings() -> list[str]:
            events = [await client.wait_for("configWarning") for client in (one, other)]
            return [event["params"]["summary"].partition(":")[0] for event in events]

        # What was there when they came.
        assert await warnings() == ["1 setting of Codex without effect in this server"] * 2
        file.write_text(right + "[features]\nbogus = true\n")
        await let_stand(one, file)
        assert await warnings() == ["Ignoring 1 unrecognized configuration setting"] * 2
        file.write_text("model =\n" + right)
        await one.refusal("config/read", {})
        unusable = (
            "The configuration cannot be used; the last configuration that could be used holds."
        )
        assert await warnings() == [unusable] * 2
