"""Keys that nothing reads: found, located, and the lists of known ones held against the docs."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app_server.config.key_check import (
    ignored_text,
    keys_without_effect,
    refuse_unknown_keys,
    unknown_in_file,
    unknown_keys,
    without_effect_text,
)
from app_server.config.known_keys import (
    CODEX_FEATURES,
    KNOWN,
    OF_OTHER_PROGRAMS,
    WITHOUT_EFFECT,
)
from app_server.config.values import Config, ConfigError, ConfigView
from app_server.handlers.server.config_check import check_settings
from app_server.handlers.server.feature_table import FEATURES
from tests.support.paths import DOCS

FILE = """\
modell = "x"
[features]
bogus = true
[mcp_servers.a]
command = "x"
  bla = 1
[mcp_servers."q.r"]
tools = { t = { output_token_limit = 1, foo = 1 } }
[[skills.config]]
path = "/x"
nam = "x"
[foo.bar]
x = 1
"""


def file_of(text: str) -> Config:
    return Config(tomllib.loads(text), Path("/c.toml"), text)


def test_each_unknown_key_is_named_with_its_place_and_what_is_allowed() -> None:
    names = sorted({path.split(".")[1] for path in KNOWN if path.startswith("features.")})
    features = ", ".join(f"`{name}`" for name in names)
    found = unknown_in_file(file_of(FILE))
    # How many keys there are, and which others are near, changes with what is built.
    text = re.sub(r"of the \d+ in", "of the N in", "\n".join(found))
    assert re.sub(r"(the nearest: `model`), .*", r"\1", text) == "\n".join(
        [
            "/c.toml:1:1: unknown configuration field `modell`, expected one of the N in "
            "docs/config.md; the nearest: `model`",
            "/c.toml:3:1: unknown configuration field `features.bogus`, expected one of "
            f"{features}",
            "/c.toml:6:3: unknown configuration field `mcp_servers.a.bla`, expected one of the N "
            "in docs/config.md",
            "/c.toml:8:1: unknown configuration field `mcp_servers.q.r.tools.t.foo`, expected one "
            "of `approval_mode`, `output_token_limit`",
            "/c.toml:11:1: unknown configuration field `skills.config.nam`, expected one of "
            "`enabled`, `name`, `path`",
            "/c.toml:12:1: unknown configuration field `foo`, expected one of the N in "
            "docs/config.md",
        ]
    )
    with pytest.raises(ConfigError) as refused:
        refuse_unknown_keys(file_of(FILE))
    assert str(refused.value) == found[0]
    assert refused.value.position == (Path("/c.toml"), 1, 1)


def test_keys_of_codex_are_not_unknown_and_some_are_listed_as_without_effect() -> None:
    text = 'personality = "x"\nmodel = "m"\n[tui]\nx = 1\n[features]\nshell_tool = true\n'
    assert list(unknown_keys(tomllib.loads(text))) == []
    assert list(keys_without_effect(tomllib.loads(text))) == [("personality",)]
    provider = tomllib.loads("[model_providers.x]\naws = {}\n")
    assert list(keys_without_effect(provider)) == [("model_providers", "x", "aws")]


def test_no_key_is_in_two_lists() -> None:
    of_codex = [path for path in OF_OTHER_PROGRAMS if not path.startswith("features.")]
    """Features of Codex may come to be here too."""
    paths = [*KNOWN, *WITHOUT_EFFECT, *of_codex]
    assert sorted(set(paths)) == sorted(paths)
    assert sorted(set(CODEX_FEATURES)) == list(CODEX_FEATURES)


def test_each_feature_that_is_listed_to_clients_is_a_known_key() -> None:
    ours = {f"features.{name}" for feature in FEATURES for name in feature.names}
    known = {".".join(path.split(".")[:2]) for path in (*KNOWN, *OF_OTHER_PROGRAMS)}
    assert ours - known == set()


def test_texts_are_bounded() -> None:
    lines = [f"line {number}" for number in range(25)]
    last = ignored_text(lines).splitlines()
    assert (last[0], last[-2:]) == (
        "Ignoring 25 unrecognized configuration settings:",
        ["  line 19", "  ... and 5 more"],
    )
    assert without_effect_text(["x"]) == "1 setting of Codex without effect in this server:\n  x"
    (unknown,) = unknown_keys({"k" * 1000: 1})
    assert unknown.name == "k" * 80 + "…"


# The lists of keys.


def documented_keys() -> Iterator[str]:
    """Yield the last part of each key that begins a row of a table of docs/config.md."""
    text = (DOCS / "config.md").read_text()
    # Those are keys of another file.
    text = re.sub(r"\n## Requirements\n.*?(?=\n## )", "", text, flags=re.S)
    for row in re.findall(r"^\| (`[^|]*)\|", text, flags=re.MULTILINE):
        for key in re.findall(r"`([a-z_A-Z.*]+)`", row.split(" (")[0]):
            yield key.split(".")[-1]


def test_the_docs_and_the_list_have_the_same_keys() -> None:
    providers = {"openai", "offline"}
    known = {part for path in KNOWN for part in path.split(".")}.union(CODEX_FEATURES)
    assert set(documented_keys()) - known - providers - {""} == set()
    pages = "".join(page.read_text() for page in DOCS.glob("*.md"))
    missing = {path for path in KNOWN if not re.search(rf"\b{path.split('.')[-1]}\b", pages)}
    assert missing == set()


class Watched(dict[str, Any]):
    """A table that notes which keys are asked for."""

    def __init__(self, table: dict[str, Any], path: tuple[str, ...], seen: set[str]) -> None:
        inner = {
            key: Watched(value, (*path, key), seen) if isinstance(value, dict) else value
            for key, value in table.items()
        }
        super().__init__(inner)
        self._path, self._seen = path, seen

    def __bool__(self) -> bool:
        """Be looked into, though nothing is there."""
        return True

    def get(self, key: str, default: Any = None) -> Any:
        self._seen.add(".".join((*self._path, key)))
        return super().get(key, default)


ALL_TABLES = """\
[analytics]
[approval_policy.granular]
[apps.x.tools.x]
[apps.x.links.x]
[apps_service]
[budget.day]
[budget.home]
[features]
[mcp_servers.x]
command = "x"
[mcp_servers.x.tools.x]
[mcp_servers.y]
url = "http://127.0.0.1:1"
[mcp_servers.y.oauth]
[marketplaces.x]
[model_prices.x]
currency = "USD"
in = 1
out = 1
[model_providers.x]
[orchestrator.mcp]
[orchestrator.skills]
[otel]
[permissions.x.network]
[plugins.x]
[projects."x"]
[sandbox_workspace_write]
[shell_environment_policy]
[[skills.config]]
[tools.apply_patch]
[tools.update_plan]
[tools.web_search.location]
"""


def test_whatever_is_read_is_known() -> None:
    seen: set[str] = set()
    check_settings(Config(Watched(tomllib.loads(ALL_TABLES), (), seen)))
    read = [path for path in seen if path.split(".")[-1] not in ("*", "x", "y")]
    assert len(read) > 80
    document = Config({}).override(dict.fromkeys(sorted(read), 1)).document
    assert [unknown.name for unknown in unknown_keys(document)] == []


READ_ELSEWHERE = re.compile(
    r"approval_policy\.granular\.request_permissions|budget\.folders\..*|hooks|marketplaces\.\*\..*"
    r"|mcp_servers\.\*\.env_vars\..*|permissions\.\*\.description|features\.network_proxy\..*"
    r"|notifications\..*|skills\.config\..*|tool_suggest"
)
"""Tables in lists, those that have a check of their own, and what no setting here depends on."""


def test_the_check_of_a_configuration_reads_every_key(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whatever other tests had read of equal tables is not read again.
    monkeypatch.setattr("app_server.mcp.catalog.tables._READ", {})
    seen: set[str] = set()
    check_settings(Config(Watched(tomllib.loads(ALL_TABLES), (), seen)))
    read = {re.sub(r"\.[xy](?=\.|$)", ".*", path) for path in seen}
    assert [key for key in KNOWN if key not in read and not READ_ELSEWHERE.fullmatch(key)] == []


def test_a_watched_table_notes_what_is_asked() -> None:
    seen: set[str] = set()
    config = Config(Watched({"a": {"b": 1}}, (), seen))
    view: ConfigView = config.view().at("a")
    assert (view.integer("b"), seen) == (1, {"a", "a.b"})
