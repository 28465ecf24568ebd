"""No package but a few knows of apps. Also a program: `python -m tests.apps.test_boundary`.

It reads sources and runs nothing. It is a guard, not a proof: that no generic branch depends on
where a registration came from is for a reader to see.
"""

import ast
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.support.harness import claim
from tests.support.paths import ROOT

PACKAGE = ROOT / "app_server"

MAY_KNOW = ("apps/", "clients/demo/", "handlers/", "server/")
"""Folders of `app_server`. Whatever else is in there is protected, also what is new."""

LISTS = frozenset({"config/known_keys.py"})
"""Files that list the keys of config.toml, of which some have a name of the product in them."""

WORDS = {
    "a name of the product": re.compile(r"codex[ _-]?(apps|connectors?)", re.IGNORECASE),
    "the word connector": re.compile(r"\bconnectors?\b", re.IGNORECASE),
    "an identifier of a connector": re.compile(r"\bconnector_", re.IGNORECASE),
    "a class of connectors": re.compile(r"\bclass\s+Connector", re.IGNORECASE),
}
IN_PROCESS = re.compile(r"in_process|InProcess")

ROUTED = frozenset({"routes.connector", "routes.resources"})
"""Modules of apps whose servers are reached over HTTP alone."""

MOUNTS = frozenset({"connector", "generation", "http", "resources"})
"""Modules that may import those: they put them behind their routes."""


def violations(package: Path) -> list[str]:
    """Return what breaks the boundary in a copy of `app_server`: `path: rule`, sorted."""
    found: set[str] = set()
    for file in package.rglob("*.py"):
        path = file.relative_to(package)
        found |= {f"{path}: {rule}" for rule in _broken(path, file.read_text())}
    return sorted(found)


@cache
def _broken(path: Path, source: str) -> frozenset[str]:
    """Name the rules that a file breaks: read once, as each test looks at all files."""
    if path.parts[0] == "apps":
        return frozenset(_broken_by_apps(path, source))
    if path.as_posix().startswith(MAY_KNOW):
        return frozenset()
    return frozenset(_broken_by_others(path, source))


def _broken_by_others(path: Path, source: str) -> Iterator[str]:
    if path.as_posix() not in LISTS:
        yield from (rule for rule, pattern in WORDS.items() if pattern.search(source))
    names = _named_modules(path, source) if "apps" in source else ()
    if any(_is_in(name, "app_server.apps") for name in names):
        yield "an import of apps"


def _broken_by_apps(path: Path, source: str) -> Iterator[str]:
    if IN_PROCESS.search(source):
        yield "a way around HTTP"
    routed = {f"app_server.apps.{name}" for name in ROUTED}
    if path.stem not in MOUNTS and not routed.isdisjoint(_named_modules(path, source)):
        yield "a handler without its route"


def _named_modules(path: Path, source: str) -> Iterator[str]:
    """Name all modules that a file imports, also late ones that it names in a string."""
    package = ("app_server", *path.parts[:-1])
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@claim("apps:r5")
def test_no_other_package_knows_of_apps() -> None:
    assert violations(PACKAGE) == []


PROTECTED = sorted(
    path.name
    for path in PACKAGE.iterdir()
    if f"{path.name}/" not in MAY_KNOW and (path / "__init__.py").exists()
)


def test_files_that_list_keys_do_nothing_else() -> None:
    for name in LISTS:
        nodes = ast.walk(ast.parse((PACKAGE / name).read_text()))
        assert not any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.If) for node in nodes)


def test_the_generic_rooms_are_protected() -> None:
    assert {"extensions", "mcp", "rpc", "threads", "transport", "turns"} <= set(PROTECTED)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ignored = shutil.ignore_patterns("__pycache__")
    return Path(
        shutil.copytree(PACKAGE, tmp_path_factory.mktemp("copy") / "app_server", ignore=ignored)
    )


def planted(copy: Path, line: str, *paths: str) -> list[str]:
    """Return what is found with files more."""
    files = [copy / path for path in paths]
    assert not any(file.exists() for file in files)
    try:
        for file in files:
            file.write_text(f"{line}\n")
        return violations(copy)
    finally:
        for file in files:
            file.unlink(missing_ok=True)


@claim("apps:r5")
@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("import app_server.apps", "an import of apps"),
        ("from app_server.apps.inventory.names import RESOURCES", "an import of apps"),
        ("from app_server import apps", "an import of apps"),
        ("from .. import apps", "an import of apps"),
        ("from ..apps import names", "an import of apps"),
        ("LATE = 'app_server.apps.service'", "an import of apps"),
        ("KEY = '_codex_apps'", "a name of the product"),
        ("# Codex Apps", "a name of the product"),
        ("CODEX_CONNECTOR = 1", "a name of the product"),
        ('"""Asks a Connector."""', "the word connector"),
        ("connectors = ()", "the word connector"),
        ("x = y['connector_id']", "an identifier of a connector"),
        ("class ConnectorTool: ...", "a class of connectors"),
    ],
)
def test_a_violation_is_found_in_every_package(copy: Path, line: str, rule: str) -> None:
    paths = [f"{package}/planted.py" for package in PROTECTED]
    assert planted(copy, line, *paths) == [f"{path}: {rule}" for path in paths]


@claim("apps:r5")
@pytest.mark.parametrize(
    ("path", "line", "rule"),
    [
        ("planted.py", "connector_id = 1", "an identifier of a connector"),
        ("new_room/planted.py", "import app_server.apps", "an import of apps"),
        ("apps/planted.py", "in_process = True", "a way around HTTP"),
        ("apps/planted.py", "class InProcessClient: ...", "a way around HTTP"),
        (
            "apps/planted.py",
            "from app_server.apps.routes.connector import serve",
            "a handler without its route",
        ),
        ("apps/routes/planted.py", "from . import resources", "a handler without its route"),
    ],
)
def test_new_rooms_and_the_room_of_apps_are_watched_too(
    copy: Path, path: str, line: str, rule: str
) -> None:
    (copy / path).parent.mkdir(parents=True, exist_ok=True)
    assert planted(copy, line, path) == [f"{path}: {rule}"]


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("mcp/planted.py", "import app_server.mcp.servers.server_set  # connected, reconnects"),
        ("mcp/planted.py", "connection_id = apps = 'app_server.application'"),
        ("handlers/planted.py", "KEY = 'codex_apps'"),
        ("clients/demo/planted.py", "from app_server.apps import names"),
    ],
)
def test_what_only_looks_alike_is_no_violation(copy: Path, path: str, line: str) -> None:
    assert planted(copy, line, path) == []


if __name__ == "__main__":
    sys.exit("\n".join(violations(PACKAGE)) or 0)
