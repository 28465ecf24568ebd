"""Apps: the last good inventory on disk, and the directory."""

import hashlib
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from app_server.apps.inventory.cache import (
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    CacheIdentity,
    DirectoryCache,
    InventoryCache,
    inventory_key,
)
from app_server.apps.inventory.inventory import MAX_TOOLS
from tests.support.harness import claim
from tests.support.threads.damage import spoil

ENDPOINT = "https://chatgpt.com/backend-api/ps/mcp"
ME = CacheIdentity("acct-1", "user-1", is_workspace_account=False)
KEY = "a6804ed360a47ca79a01407aea990e9096846f6e"
TOOLS: list[dict[str, Any]] = [
    {"name": "a", "_meta": {"connector_id": "c", "kept": None}},
    {"name": "ä"},
]


def cache(
    home: Path, identity: CacheIdentity = ME, endpoint: str = ENDPOINT, sku: str | None = None
) -> InventoryCache:
    return InventoryCache(home, identity, endpoint, sku)


def file_of(home: Path) -> Path:
    return home / "cache" / "codex_apps_raw_tools" / f"{KEY}.json"


def put(home: Path, content: bytes) -> None:
    file_of(home).parent.mkdir(parents=True)
    file_of(home).write_bytes(content)


def sum_of(objects: list[dict[str, Any]]) -> str:
    body = json.dumps(objects, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(body.encode()).hexdigest()


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "app_server.apps.inventory.cache"]


@claim("apps:t-22")
async def test_what_was_written_is_read_and_nobody_else_may_read_it(tmp_path: Path) -> None:
    assert await cache(tmp_path).read() is None
    await cache(tmp_path).write([{"name": "old"}])
    await cache(tmp_path).write(TOOLS)
    assert await cache(tmp_path).read() == TOOLS
    file = file_of(tmp_path)
    assert json.loads(file.read_text()) == {
        "schema_version": 1,
        "checksum": sum_of(TOOLS),
        "tools": TOOLS,
    }
    assert list(file.parent.iterdir()) == [file]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, file.parent)]
    assert modes == [0o600, 0o700]


@claim("apps:t-19")
@pytest.mark.parametrize(
    ("identity", "endpoint", "sku"),
    [
        (CacheIdentity("acct-2", "user-1", False), ENDPOINT, None),
        (CacheIdentity("acct-1", "user-2", False), ENDPOINT, None),
        (CacheIdentity("acct-1", None, False), ENDPOINT, None),
        (CacheIdentity(None, "user-1", False), ENDPOINT, None),
        (CacheIdentity("acct-1", "user-1", True), ENDPOINT, None),
        (ME, "https://example.com/api/codex/ps/mcp", None),
        (ME, ENDPOINT, "sku"),
        (ME, ENDPOINT, ""),
    ],
)
async def test_nobody_reads_the_inventory_of_another_account_endpoint_or_product(
    tmp_path: Path, identity: CacheIdentity, endpoint: str, sku: str | None
) -> None:
    await cache(tmp_path).write(TOOLS)
    other = cache(tmp_path, identity, endpoint, sku)
    assert await other.read() is None
    await other.write([])
    assert (await other.read(), await cache(tmp_path).read()) == ([], TOOLS)


def test_the_name_of_the_file_is_that_of_the_reference() -> None:
    assert inventory_key(ME, ENDPOINT, None) == KEY


@claim("apps:t-19")
async def test_an_unknown_account_keeps_nothing(tmp_path: Path) -> None:
    nobody = cache(tmp_path, CacheIdentity(None, None, is_workspace_account=True))
    await nobody.write(TOOLS)
    assert await nobody.read() is None
    assert list(tmp_path.iterdir()) == []


@claim("apps:t-20")
async def test_files_of_older_places_are_not_opened(tmp_path: Path) -> None:
    for folder in ("codex_apps_tools", "codex_apps_raw_tools"):
        (tmp_path / "cache" / folder).mkdir(parents=True)
    content = json.dumps({"schema_version": 1, "tools": TOOLS})
    (tmp_path / "cache" / "codex_apps_tools" / f"{KEY}.json").write_text(content)
    (tmp_path / "cache" / "codex_apps_raw_tools" / "acct-1.json").write_text(content)
    assert await cache(tmp_path).read() is None


PRIVATE: dict[str, Any] = {
    "name": "a",
    "_meta": {
        "codex/approvalContext": {"connectedAccountEmail": "me@example.com"},
        "_codex_apps": {"connected_account_email": "me@example.com", "link": 1},
        "kept": {"codex/approvalContext": 1},
    },
}
PUBLIC = {
    "name": "a",
    "_meta": {"_codex_apps": {"link": 1}, "kept": {"codex/approvalContext": 1}},
}


@claim("apps:t-21")
async def test_what_shows_the_account_is_not_written(tmp_path: Path) -> None:
    await cache(tmp_path).write([PRIVATE])
    assert json.loads(file_of(tmp_path).read_text())["tools"] == [PUBLIC]


@claim("apps:t-21")
async def test_what_shows_the_account_is_not_read_either(tmp_path: Path) -> None:
    put(tmp_path, json.dumps({"schema_version": 1, "tools": [PRIVATE]}).encode())
    assert await cache(tmp_path).read() == [PUBLIC]


@claim("apps:t-13")
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b'{"schema_version":1,"tools":[s3cr3t', "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not of version 1"),
        (b'{"tools":[]}', "not of version 1"),
        (b'{"schema_version":2,"tools":[]}', "not of version 1"),
        (b'{"schema_version":1}', "no list of tools"),
        (b'{"schema_version":1,"tools":{}}', "no list of tools"),
        (b'{"schema_version":1,"tools":["a"]}', "no list of tools"),
        (
            b'{"schema_version":1,"checksum":"%064d","tools":[]}' % 0,
            "damaged: its checksum is another one",
        ),
        (
            b'{"schema_version":1,"checksum":null,"tools":[]}',
            "damaged: its checksum is another one",
        ),
        (b'{"schema_version":1,"chEcksum":"","tools":[]}', "damaged: it has other members"),
        (
            b'{"schema_version":1,"tools":[' + b",".join([b"{}"] * (MAX_TOOLS + 1)) + b"]}",
            "more than 4096 tools",
        ),
    ],
)
async def test_a_file_that_cannot_be_used_counts_as_none_until_it_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    await replace_unusable(tmp_path, caplog, content, reason)


@claim("apps:t-13")
async def test_a_file_above_its_bound_counts_as_none_until_it_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = b'{"schema_version":1,"tools":[]}' + b" " * MAX_FILE_BYTES
    await replace_unusable(tmp_path, caplog, content, "more than 8388608 bytes")


async def replace_unusable(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, reason: str
) -> None:
    put(tmp_path, content)
    assert await cache(tmp_path).read() is None
    assert warnings(caplog) == [f"the cached tools of apps are not used: {reason}"]
    assert file_of(tmp_path).read_bytes() == content
    await cache(tmp_path).write(TOOLS)
    assert await cache(tmp_path).read() == TOOLS


async def test_a_file_at_its_bounds_is_read(tmp_path: Path) -> None:
    content = b'{"schema_version":1,"tools":[' + b",".join([b"{}"] * MAX_TOOLS) + b"]}"
    put(tmp_path, content.ljust(MAX_FILE_BYTES))
    assert await cache(tmp_path).read() == [{}] * MAX_TOOLS


MANY = [
    {"name": f"tool_{number}", "inputSchema": {"properties": {"a": {"maximum": number}}}}
    for number in range(40)
]


@claim("apps:damaged-cache")
@pytest.mark.parametrize(
    "seeds", [range(60), pytest.param(range(60, 360), marks=pytest.mark.slow)], ids=["60", "300"]
)
async def test_a_damaged_file_gives_what_was_written_or_nothing_and_harms_no_other(
    tmp_path: Path, seeds: range
) -> None:
    for seed in seeds:
        home = tmp_path / str(seed)
        await cache(home).write(MANY)
        await directory(home).write(MANY)
        beside = home / "config.toml"
        beside.write_text("kept")
        for file, kept in ((file_of(home), cache(home)), (directory_file(home), directory(home))):
            done = spoil(file, seed)
            assert await kept.read() in (None, MANY), (seed, file, done)
            if not file.is_dir():
                await kept.write(TOOLS)
                assert await kept.read() == TOOLS
        assert beside.read_text() == "kept"


async def test_an_inventory_at_its_bounds_is_written_and_one_above_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    empty = len(b'{"schema_version":1,"checksum":"%064d","tools":[{"name":""}]}' % 0)
    full = [{"name": "x" * (MAX_FILE_BYTES - empty)}]
    await cache(tmp_path).write(full)
    assert await cache(tmp_path).read() == full
    await cache(tmp_path).write([{"name": "x" * (MAX_FILE_BYTES - empty + 1)}])
    await cache(tmp_path).write([{}] * (MAX_TOOLS + 1))
    assert await cache(tmp_path).read() == full
    assert warnings(caplog) == [
        "tools of apps are not cached: more than 8388608 bytes",
        "tools of apps are not cached: more than 4096 tools",
    ]


@claim("apps:t-22")
async def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cache(tmp_path).write(TOOLS)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    await cache(tmp_path).write([])
    assert await cache(tmp_path).read() == TOOLS
    assert list(file_of(tmp_path).parent.iterdir()) == [file_of(tmp_path)]
    assert warnings(caplog) == ["tools of apps are not cached: No space left on device"]


async def test_a_place_that_is_no_folder_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cache").write_text("")
    assert await cache(tmp_path).read() is None
    await cache(tmp_path).write(TOOLS)
    assert warnings(caplog) == [
        "the cached tools of apps cannot be read: Not a directory",
        "tools of apps are not cached: File exists",
    ]


ENTRIES: list[dict[str, Any]] = [{"id": "a", "name": "A"}]
BASE = "https://chatgpt.com/backend-api"
DIRECTORY_KEY = hashlib.sha1(
    b'{"chatgpt_base_url":"https://chatgpt.com/backend-api","account_id":"acct-1",'
    b'"chatgpt_user_id":"user-1","is_workspace_account":false}'
).hexdigest()


def directory_file(home: Path) -> Path:
    return home / "cache" / "codex_app_directory" / f"{DIRECTORY_KEY}.json"


def directory(home: Path, identity: CacheIdentity = ME, base_url: str = BASE) -> DirectoryCache:
    return DirectoryCache(home, identity, base_url)


async def test_the_directory_is_kept_by_account_and_address(tmp_path: Path) -> None:
    await directory(tmp_path).write(ENTRIES)
    assert await directory(tmp_path).read() == ENTRIES
    file = directory_file(tmp_path)
    assert json.loads(file.read_text()) == {
        "schema_version": 1,
        "checksum": sum_of(ENTRIES),
        "connectors": ENTRIES,
    }
    others = [
        directory(tmp_path, CacheIdentity("acct-1", "user-1", True)),
        directory(tmp_path, CacheIdentity("acct-2", "user-1", False)),
        directory(tmp_path, base_url="https://example.com"),
    ]
    assert [await other.read() for other in others] == [None] * 3
    nobody = directory(tmp_path, CacheIdentity(None, None, False))
    await nobody.write(ENTRIES)
    assert await nobody.read() is None
    assert list(file.parent.iterdir()) == [file]


async def test_a_directory_of_another_version_is_deleted_and_a_broken_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = directory_file(tmp_path)
    file.parent.mkdir(parents=True)
    file.write_text('{"schema_version":2,"connectors":[]}')
    assert await directory(tmp_path).read() is None
    assert not file.exists()
    file.write_text("[")
    assert await directory(tmp_path).read() is None
    assert file.exists()
    assert warnings(caplog) == [
        "the cached apps of the directory are not used: not of version 1",
        "the cached apps of the directory are not used: not JSON",
    ]


async def test_a_directory_above_its_bound_is_not_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full: list[dict[str, Any]] = [{}] * MAX_ENTRIES
    await directory(tmp_path).write(full)
    await directory(tmp_path).write([*full, {}])
    assert await directory(tmp_path).read() == full
    assert warnings(caplog) == ["apps of the directory are not cached: more than 16384 connectors"]
