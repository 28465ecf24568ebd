"""Members of requests that set what a thread or one turn may do: profiles, folders, tiers."""

import re
from pathlib import Path

from app_server.models.prompt.environment_context import (
    FACTS,
    newest_of_each,
)
from tests.support.harness import claim, serve
from tests.support.model import Gate, calls, says
from tests.support.threads.chosen import INPUT, places, sandbox_of, shown


@claim("settings:permissions")
async def test_permission_profiles_choose_the_sandbox_of_threads_and_turns(
    tmp_path: Path,
) -> None:
    workspace = ("workspaceWrite", ":workspace")
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call("thread/start", {"permissions": ":workspace"})
        thread_id = result["thread"]["id"]
        assert sandbox_of(result) == workspace
        result = await client.call(
            "thread/start", {"config": {"default_permissions": ":workspace"}}
        )
        assert sandbox_of(result) == workspace
        result = await client.call("thread/start", {"permissions": ":danger-full-access"})
        assert sandbox_of(result)[0] == "dangerFullAccess"
        await client.turn(thread_id, "go", permissions=":read-only")
        fork = await client.call(
            "thread/fork", {"threadId": thread_id, "permissions": ":workspace"}
        )
        assert sandbox_of(fork) == workspace
        assert sandbox_of(await client.call("thread/resume", {"threadId": thread_id})) == (
            "readOnly",
            ":read-only",
        )
        unknown = "failed to load configuration: default_permissions refers to unknown"
        undefined = unknown.replace("unknown", "undefined profile `mine`")
        turn = {"threadId": thread_id, "input": INPUT}
        for method, params, message in (
            ("thread/start", {"permissions": ":nope"}, f"{unknown} built-in profile `:nope`"),
            ("turn/start", {**turn, "permissions": "mine"}, undefined),
            (
                "thread/start",
                {"permissions": ":workspace", "sandbox": "read-only"},
                "`permissions` cannot be combined with `sandbox`",
            ),
            (
                "turn/start",
                {**turn, "permissions": ":workspace", "sandboxPolicy": {"type": "readOnly"}},
                "`permissions` cannot be combined with `sandboxPolicy`",
            ),
            (
                "thread/start",
                {"config": {"profile": "x"}},
                'failed to load configuration: legacy `profile = "x"` config is no longer '
                "supported; use `--profile x` with `x.config.toml` instead\nin `profile`\n",
            ),
        ):
            assert (await client.refusal(method, params)).message == message
    async with serve(tmp_path) as served, served.client() as client:
        params = {"threadId": thread_id, "permissions": ":workspace"}
        assert sandbox_of(await client.call("thread/resume", params)) == workspace


@claim("settings:folders")
async def test_folders_and_environments_are_those_that_the_client_chose(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        here = str(tmp_path)
        roots = {"cwd": "/usr", "runtimeWorkspaceRoots": ["/usr", "/opt"]}
        result = await client.call("thread/start", roots)
        thread_id = result["thread"]["id"]
        assert places(result) == ("/usr", ["/usr", "/opt"], [("/usr", ["/usr", "/opt"])])
        await client.turn(thread_id, "one")
        await client.turn(thread_id, "two", cwd="/tmp")
        await client.turn(thread_id, "three", runtimeWorkspaceRoots=["/opt"])
        await client.turn(thread_id, "four", environments=[])
        elsewhere = [{"environmentId": "local", "cwd": "/var"}]
        await client.turn(thread_id, "five", environments=elsewhere)
        facts = [dict(newest_of_each(request["input"]))[FACTS] for request in served.model.requests]
        told = [
            re.findall("<(cwd|workspace_roots)>(.*)<", each["content"][0]["text"]) for each in facts
        ]
        assert told == [
            [("cwd", "/usr"), ("workspace_roots", "/usr, /opt")],
            [("cwd", "/tmp")],
            [("cwd", "/tmp"), ("workspace_roots", "/opt")],
            [],
            [("cwd", "/var")],
        ]
        bare = await client.call("thread/start", {"environments": [], "runtimeWorkspaceRoots": []})
        assert places(bare) == (here, [], [])
        for params, message in (
            (
                {"runtimeWorkspaceRoots": ["/a", "b"]},
                "Invalid params: `runtimeWorkspaceRoots.1`: must be an absolute path",
            ),
            (
                {"runtimeWorkspaceRoots": ["/a"] * 101},
                "Invalid params: `runtimeWorkspaceRoots` accepts at most 100 entries",
            ),
            (
                {"environments": [{"environmentId": "nope", "cwd": "/"}]},
                "unknown turn environment id `nope`",
            ),
        ):
            for method, base in (
                ("thread/start", {}),
                ("turn/start", {"threadId": thread_id, "input": INPUT}),
            ):
                assert (await client.refusal(method, {**base, **params})).message == message


# What belongs to one turn.


@claim("turns:for-one-turn")
async def test_tier_and_metadata_of_one_turn_and_plugins_from_then_on(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(serviceTier="priority")
        gate = Gate()
        call = calls({"name": "nothing", "namespace": None})
        served.model.scripts += [[gate, *call], says("done")]
        result = await client.call(
            "turn/start",
            {
                "threadId": thread_id,
                "input": INPUT,
                "serviceTierForTurn": "flex",
                "responsesapiClientMetadata": {"a": "1", "b": "2"},
                "responsesapiClientMetadataPatch": {"b": "3"},
                "disabledPluginIds": ["p@m"],
            },
        )
        await gate.wait_until_reached()
        steer = {"threadId": thread_id, "expectedTurnId": result["turn"]["id"], "input": INPUT}
        await client.call("turn/steer", {**steer, "responsesapiClientMetadataPatch": {"c": "4"}})
        gate.opened.set()
        await client.wait_for("turn/completed")
        await client.turn(thread_id, "two", serviceTierForTurn="default")
        await client.turn(thread_id, "three", responsesapiClientMetadataPatch={"d": "5"})
        assert [
            (request.get("service_tier"), request.get("client_metadata"))
            for request in served.model.requests
        ] == [
            ("flex", {"a": "1", "b": "3"}),
            ("flex", {"a": "1", "b": "3", "c": "4"}),
            (None, None),
            ("priority", {"d": "5"}),
        ]
        resumed = await client.call("thread/resume", {"threadId": thread_id})
        assert (resumed["disabledPluginIds"], resumed["serviceTier"]) == (["p@m"], "priority")


# Joining.


@claim("settings:resume")
async def test_a_thread_that_is_resumed_takes_what_was_chosen_or_says_what_it_does_not(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(baseInstructions="Base.")
        await client.turn(thread_id, "one")
        path = (await client.call("thread/read", {"threadId": thread_id}))["thread"]["path"]
    async with serve(tmp_path) as served, served.client() as client:
        chosen = {
            "baseInstructions": "Other.",
            "developerInstructions": "Also.",
            "model": "m1",
            "runtimeWorkspaceRoots": ["/opt"],
            "path": path,
            "config": {"model_context_window": 100_000, "features.hooks": True},
        }
        await client.call("thread/resume", {"threadId": thread_id, **chosen})
        await client.turn(thread_id, "two")
        (request,) = served.model.requests
        assert request["instructions"] == "Other."
        assert shown(request) == ("m1", None, ["Also."])
        # It is loaded now: what is in force is no surprise, and the rest is said.
        await client.call("thread/resume", {"threadId": thread_id, **chosen})
        more = {"model": "m2", "sandbox": "workspace-write", "config": {"a": 1}}
        await client.call("thread/resume", {"threadId": thread_id, **chosen, **more})
        warning = (await client.wait_for("warning"))["params"]
        assert warning == {
            "threadId": thread_id,
            "message": "the thread is loaded already, so `model`, `sandbox`, `config` of "
            "thread/resume changed nothing; thread/settings/update changes settings",
        }
        await client.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
        error = await client.refusal("thread/resume", {"threadId": thread_id, "path": "/x"})
        assert error.message == (
            "Invalid params: `path` is not supported by this server, but for the thread's own file"
        )
