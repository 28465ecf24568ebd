"""config/value/write and config/batchWrite, and config/read afterwards."""

import errno
import fcntl
import os
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.config.editing import file as config_file
from app_server.config.editing.file import ConfigFile
from app_server.config.masking import MARK
from app_server.config.values import NotRecorded
from app_server.handlers.server import config as config_write
from app_server.handlers.server.config_layers import MAX_ORIGINS, version_of
from tests.support.harness import WireClient, WireError, claim, serve, stdio_server
from tests.support.mcp_peers.calls import steps_until_settled

SECRETS = """
# about the server
[mcp_servers.s]
command = "x"
env = { KEY = "hidden-1" }
[model_providers.other]
http_headers = { KEY = "hidden-2" }
"""


def value(key: str, value: Any, strategy: str = "replace", **members: Any) -> dict[str, Any]:
    return {"keyPath": key, "value": value, "mergeStrategy": strategy, **members}


async def write(client: WireClient, key: str, new: Any, **members: Any) -> dict[str, Any]:
    written: dict[str, Any] = await client.call("config/value/write", value(key, new, **members))
    return written


async def refused(client: WireClient, key: str, new: Any, **members: Any) -> WireError:
    return await client.refusal("config/value/write", value(key, new, **members))


def invalid(word: str = "configValidationError") -> dict[str, str]:
    return {"code": word, "config_write_error_code": word}


def document_of(home: Path) -> dict[str, Any]:
    return tomllib.loads((home / "config.toml").read_text())


@claim("terminal:trust")
async def test_a_folder_that_is_trusted_stays_trusted(tmp_path: Path) -> None:
    folder = str(tmp_path / "a.b project")
    edit = value(f'projects."{folder}".trust_level', "trusted")
    async with serve(tmp_path, config="# mine\n[features] # on\n") as served:
        async with served.client() as client:
            before = (tmp_path / "config.toml").read_text()
            assert (await client.call("config/read", {}))["config"]["projects"] is None
            written = await client.call(
                "config/batchWrite",
                {
                    "edits": [edit],
                    "filePath": None,
                    "expectedVersion": None,
                    "reloadUserConfig": True,
                },
            )
            assert written == {
                "status": "ok",
                "version": version_of(document_of(tmp_path)),
                "filePath": str(tmp_path / "config.toml"),
                "overriddenMetadata": None,
            }
        assert (tmp_path / "config.toml").read_text() == (
            f'{before}\n[projects."{folder}"]\ntrust_level = "trusted"\n'
        )
        async with served.client() as client:
            shown = await client.call("config/read", {"includeLayers": True, "cwd": folder})
            assert shown["config"]["projects"] == {folder: {"trust_level": "trusted"}}
            origin = shown["origins"][f"projects.{folder}.trust_level"]
            assert origin["version"] == written["version"]
    config = f'[projects."{folder}"]\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        shown = await client.call("config/read", {})
        assert shown["config"]["projects"] == {folder: {"trust_level": None}}


@claim("config:layers")
async def test_layers_say_what_they_set_and_nothing_secret(tmp_path: Path) -> None:
    flags = {"model": "over", "sandbox_workspace_write.network_access": True}
    config = f'review_model = "r"\n[sandbox_workspace_write]\nexclude_slash_tmp = true\n{SECRETS}'
    started = serve(tmp_path, config=config, overrides=flags)
    async with started as served, served.client() as client:
        shown = await client.call("config/read", {"includeLayers": True})
    user = {
        "name": {"type": "user", "file": str(tmp_path / "config.toml"), "profile": None},
        "version": version_of(document_of(tmp_path)),
    }
    flagged = {
        "name": {"type": "sessionFlags"},
        # SHA-256 of the layer as JSON with sorted keys, as the reference has it.
        "version": "sha256:6121a1ac5354754a742bf15e609f65ba329a2058f40e173f3064eb2b3d0c1e64",
    }
    masked = document_of(tmp_path)
    masked["mcp_servers"]["s"]["env"]["KEY"] = MARK
    masked["model_providers"]["other"]["http_headers"]["KEY"] = MARK
    assert shown["layers"] == [
        flagged
        | {"config": {"model": "over", "sandbox_workspace_write": {"network_access": True}}},
        user | {"config": masked},
    ]
    assert shown["origins"] == {
        "model": flagged,
        "model_provider": user,
        "review_model": user,
        "sandbox_workspace_write.exclude_slash_tmp": user,
        "sandbox_workspace_write.network_access": flagged,
        "mcp_servers.s.command": user,
        "mcp_servers.s.env.KEY": user,
        "model_providers.other.http_headers.KEY": user,
        **{
            f"model_providers.scripted.{key}": user for key in masked["model_providers"]["scripted"]
        },
    }
    assert "hidden-" not in str(shown)


async def test_origins_are_bounded(tmp_path: Path) -> None:
    tables = "".join(f'[projects."/{n}"]\ntrust_level = "trusted"\n' for n in range(MAX_ORIGINS))
    async with serve(tmp_path, config=tables) as served, served.client() as client:
        shown = await client.call("config/read", {})
        assert len(shown["origins"]) == MAX_ORIGINS
        assert len(shown["config"]["projects"]) == MAX_ORIGINS


@claim("config:write")
async def test_values_are_set_changed_and_removed_with_comments_kept(tmp_path: Path) -> None:
    async with serve(tmp_path, config='# why\nreview_model = "r" # here\n') as served:
        file = tmp_path / "config.toml"
        before = file.read_text()
        async with served.client() as client:
            await write(client, "review_model", "s")
            assert file.read_text() == before.replace('"r" # here', '"s" # here')
            await write(client, "review_model", None)
            assert file.read_text() == before.replace('review_model = "r" # here\n', "")
            await write(client, "not_there.at.all", None)
            table = {"network_access": True, "writable_roots": ["/a"]}
            await write(client, "sandbox_workspace_write", table, mergeStrategy="upsert")
            more = {"exclude_slash_tmp": True}
            await write(client, "sandbox_workspace_write", more, mergeStrategy="upsert")
            assert document_of(tmp_path)["sandbox_workspace_write"] == {**table, **more}
            await write(client, "sandbox_workspace_write", more)
            assert document_of(tmp_path)["sandbox_workspace_write"] == more
            await write(client, "someone.elses", [1, "a", 2.5, True, {"q": 1}])
            assert document_of(tmp_path)["someone"]["elses"] == [1, "a", 2.5, True, {"q": 1}]
            shown = (await client.call("config/read", {}))["config"]
            assert shown["sandbox_workspace_write"]["exclude_slash_tmp"] is True
        assert "# why\n" in file.read_text()


@pytest.mark.parametrize(
    ("key", "new", "problem"),
    [
        ("model", 5, "invalid type: integer `5`, expected a string\nin `model`\n"),
        (
            "sandbox_mode",
            "nope",
            "unknown variant `nope`, expected one of `read-only`, `workspace-write`, "
            "`danger-full-access`\nin `sandbox_mode`\n",
        ),
        (
            'projects."/a".trust_level',
            "bogus",
            "unknown variant `bogus`, expected `trusted` or `untrusted`\n"
            "in `projects./a.trust_level`\n",
        ),
        (
            "tool_output_token_limit",
            5.5,
            "invalid type: floating point `5.5`, expected u64\nin `tool_output_token_limit`\n",
        ),
        (
            "mcp_servers.bad",
            {"url": "http://x", "command": "y"},
            "url is not supported for stdio\nin `mcp_servers.bad`\n",
        ),
        (
            "features.plugins",
            "yes",
            'invalid type: string "yes", expected a boolean\nin `features.plugins`\n',
        ),
        (
            "apps.x.enabled",
            1,
            "invalid type: integer `1`, expected a boolean\nin `apps.x.enabled`\n",
        ),
        (
            "memory_budget_bytes",
            1,
            "1 is not between 1048576 and 1099511627776\nin `memory_budget_bytes`\n",
        ),
    ],
)
@claim("config:write-checked")
async def test_what_would_not_be_a_configuration_is_not_written(
    tmp_path: Path, key: str, new: Any, problem: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        before = (tmp_path / "config.toml").read_bytes()
        error = await refused(client, key, new)
        assert (error.code, error.message, error.data) == (
            -32600,
            f"Invalid configuration: {problem}",
            invalid(),
        )
        # With a good edit in front nothing is written either.
        batch = {"edits": [value("review_model", "r"), value(key, new)]}
        error = await client.refusal("config/batchWrite", batch)
        assert error.message == f"Invalid configuration: {problem}"
        assert (tmp_path / "config.toml").read_bytes() == before


@pytest.mark.parametrize(
    ("key", "new", "problem"),
    [
        ("", 1, "keyPath must not be empty"),
        ('a."b', 1, "unterminated quoted keyPath segment"),
        ("model.x", 1, "cannot set value on non-table parent"),
        ("x", [None], "invalid value: invalid type: null, expected any valid TOML value"),
        ("profile", "p", "`profile` is a key of older versions and can no longer be written"),
        (
            "profiles.p.model",
            "m",
            "`profiles` is a key of older versions and can no longer be written",
        ),
    ],
)
async def test_an_edit_that_makes_no_sense_is_refused(
    tmp_path: Path, key: str, new: Any, problem: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        before = (tmp_path / "config.toml").read_bytes()
        error = await refused(client, key, new)
        assert (error.code, error.message, error.data) == (-32600, problem, invalid())
        assert (tmp_path / "config.toml").read_bytes() == before


@claim("config:write-version")
async def test_what_somebody_else_wrote_meanwhile_is_a_conflict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        shown = await client.call("config/read", {"includeLayers": True})
        version = shown["layers"][-1]["version"]
        written = await write(client, "review_model", "r", expectedVersion=version)
        conflict = (
            -32600,
            "Configuration was modified since last read. Fetch latest version and retry.",
            invalid("configVersionConflict"),
        )
        error = await refused(client, "review_model", "s", expectedVersion=version)
        assert (error.code, error.message, error.data) == conflict
        await write(client, "review_model", "s", expectedVersion=written["version"])
        # The last look before the new file takes the old one's place.
        file = tmp_path / "config.toml"
        monkeypatch.setattr("os.fsync", lambda descriptor: file.write_text("theirs = true\n"))
        error = await refused(client, "review_model", "t")
        assert (error.code, error.message, error.data) == conflict
        assert file.read_text() == "theirs = true\n"


async def test_only_the_users_own_file_is_written(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        own = tmp_path / "config.toml"
        for path in (str(tmp_path / "other.toml"), "config.toml", "\0"):
            error = await refused(client, "review_model", "r", filePath=path)
            assert (error.code, error.message, error.data) == (
                -32600,
                "Only writes to the user config are allowed",
                invalid("configLayerReadonly"),
            )
        named = f"{tmp_path}/./config.toml"
        assert (await write(client, "review_model", "r", filePath=named))["filePath"] == str(own)


async def test_a_link_stays_a_link_and_may_be_named_by_either_name(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        file, real = tmp_path / "config.toml", tmp_path / "dotfiles" / "mine.toml"
        real.parent.mkdir()
        file.rename(real)
        file.symlink_to(real)
        assert (await write(client, "review_model", "r"))["filePath"] == str(file)
        written = await write(client, "review_model", "s", filePath=str(real))
        assert written["filePath"] == str(real)
        assert file.is_symlink()
        assert tomllib.loads(real.read_text())["review_model"] == "s"
        assert [path.name for path in real.parent.iterdir()] == ["mine.toml"]


async def test_a_file_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        file = tmp_path / "config.toml"
        file.unlink()
        empty = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
        await refused(client, "model", 5, expectedVersion=empty)
        assert (await client.call("config/batchWrite", {"edits": []}))["version"] == empty
        assert not file.exists()
        await write(client, "model", "m", expectedVersion=empty)
        assert (file.read_text(), file.stat().st_mode & 0o777) == ('model = "m"\n', 0o600)


@claim("config:write-overridden")
async def test_a_value_that_the_command_line_overrides_is_reported(tmp_path: Path) -> None:
    flags = {"model": "over", "mcp_servers.s.env.KEY": "hidden"}
    layer = {"model": "over", "mcp_servers": {"s": {"env": {"KEY": "hidden"}}}}
    config = '[mcp_servers.s]\ncommand = "c"\n'
    started = serve(tmp_path, config=config, overrides=flags)
    async with started as served, served.client() as client:
        overridden = {
            "message": "Overridden by session flags",
            "overridingLayer": {
                "name": {"type": "sessionFlags"},
                "version": version_of(layer),
            },
            "effectiveValue": "over",
        }
        for new in ("mine", None):
            written = await write(client, "model", new)
            assert written["status"] == "okOverridden"
            assert written["overriddenMetadata"] == overridden
        # The file must be a configuration without the command line, too.
        error = await refused(client, "model", 5)
        assert error.message.startswith("Invalid configuration: invalid type: integer `5`")
        assert (await write(client, "model", "over"))["status"] == "ok"
        # What is in force may be a secret that came another way.
        written = await write(client, "mcp_servers.s.env.KEY", "c")
        assert written["overriddenMetadata"]["effectiveValue"] == MARK
        written = await write(client, "mcp_servers.s.env", {"KEY": "c"})
        assert written["overriddenMetadata"]["effectiveValue"] == {"KEY": MARK}
        batch = {"edits": [value("review_model", "r"), value("model", "m")]}
        written = await client.call("config/batchWrite", batch)
        assert written["overriddenMetadata"] == overridden


async def test_what_would_not_fit_the_command_line_is_not_written(tmp_path: Path) -> None:
    flags = {"mcp_servers.s.url": "http://127.0.0.1:9/mcp"}
    async with serve(tmp_path, overrides=flags) as served, served.client() as client:
        error = await refused(client, "mcp_servers.s.command", "x")
        assert error.message.startswith("Invalid configuration: url is not supported for stdio\n")
        assert "mcp_servers" not in document_of(tmp_path)


async def test_a_file_that_cannot_be_used_is_left_alone(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        file = tmp_path / "config.toml"
        file.write_text("[broken\n")
        error = await refused(client, "model", "m")
        detail = f"{file}:1:8: Expected ']' at the end of a table declaration"
        assert (error.code, error.message) == (-32603, f"failed to load configuration: {detail}")
        assert error.data == {"code": "configInvalid", "detail": detail}
        assert file.read_text() == "[broken\n"


async def test_a_disk_that_refuses_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        file = tmp_path / "config.toml"
        before = file.read_bytes()

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("os.fsync", full)
        error = await refused(client, "review_model", "r")
        assert (error.code, error.message, error.data) == (
            -32603,
            f"failed to write config.toml: {file}: No space left on device",
            {"code": "storageFailed"},
        )
        assert file.read_bytes() == before


@claim("config:write-bounds")
async def test_a_request_writes_a_bounded_number_of_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        before = (tmp_path / "config.toml").read_bytes()
        many = {"edits": [value(f"x{n}", n) for n in range(101)]}
        error = await client.refusal("config/batchWrite", many)
        assert (error.message, error.data) == ("a request writes at most 100 values", invalid())
        monkeypatch.setattr(config_write, "EDIT_S", -1.0)
        error = await refused(client, "review_model", "r")
        assert error.message == "so many values in so large a file take over -1 s"
        monkeypatch.undo()
        error = await refused(client, "big", "x" * (1 << 20))
        assert error.message.endswith("config.toml: it would be larger than 1048576 bytes")
        assert (tmp_path / "config.toml").read_bytes() == before


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder as another server does that writes to it."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


async def test_writes_of_several_servers_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each server has an object of its own; what keeps them apart is a lock between processes.
    servers = [ConfigFile(tmp_path), ConfigFile(tmp_path)]
    async with anyio.create_task_group() as tasks:
        for n in range(20):
            keys = ("projects", f"/{n}", "trust_level")
            tasks.start_soon(servers[n % 2].write, keys, "trusted")
    assert len(document_of(tmp_path)["projects"]) == 20
    with locked(tmp_path):
        monkeypatch.setattr(config_file, "LOCK_S", 0.0)
        with pytest.raises(NotRecorded) as caught:
            await servers[0].write(["model"], "m")
    assert str(caught.value) == f"{tmp_path}: another process has held it for 0 s"
    await servers[0].write(["model"], "m")
    assert document_of(tmp_path)["model"] == "m"


@claim("config:write-reload")
async def test_loaded_threads_take_over_servers_when_that_is_asked(tmp_path: Path) -> None:
    table = tomllib.loads(stdio_server("late"))["mcp_servers"]["late"]
    async with serve(tmp_path) as served, served.client() as client:
        await client.start_thread()
        await client.call(
            "config/batchWrite",
            {"edits": [value("mcp_servers.late", table)], "reloadUserConfig": True},
        )
        steps = await steps_until_settled(client, "late")
        assert steps["late"][-1] == ("ready", None)
