"""The pages for readers: what they name is there, and what is there has a place on the map."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SOURCES = [
    path for folder in ("app_server", "protocol", "tests") for path in (ROOT / folder).rglob("*.py")
]

PATH = re.compile(r"(?<![\w/.-])(?:app_server|protocol|tests|docs|schema|\.ci)/[\w./-]*\w/?")
MODULE = re.compile(r"(?<![\w./])(?:app_server|protocol|tests)(?:\.[a-z_]\w*)+")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
CITED = re.compile(r'docs/(\w+\.md), ((?:"[^"\n]+"(?:, )?)+)')

LINKED = re.compile(r'\]\(((?:[\w./]+/)?\w+\.md)\), ((?:"[^"]+"(?:, )?)+)')


def _named_paths(text: str) -> set[str]:
    modules = {name.replace(".", "/") for name in MODULE.findall(text)}
    return {path.rstrip("/") for path in PATH.findall(text)} | modules


def _is_there(path: str) -> bool:
    return (ROOT / path).exists() or (ROOT / f"{path}.py").exists()


CURRENT = [page for page in PAGES if page.name != "changelog.md"]
"""The changelog names what there was at its time."""


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert sorted(path for path in _named_paths(text) if not _is_there(path)) == []
    missing = [
        link for link in LINK.findall(CODE.sub("", text)) if not (page.parent / link).exists()
    ]
    assert missing == []


def test_every_page_has_a_group_of_the_site() -> None:
    groups = tomllib.loads((ROOT / "docs" / "site.toml").read_text())["groups"]
    listed = [name for names in groups.values() for name in names]
    assert len(listed) == len(set(listed))
    pages = {page.stem for page in PAGES if page.parent.name == "docs"}
    assert sorted(pages - set(listed)) == []


def test_every_folder_of_the_server_is_on_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = set(re.findall(r"^\| `([\w/]+?)/?` \|", page, re.MULTILINE))
    there = {
        path.parent.relative_to(ROOT).as_posix()
        for folder in ("app_server", "protocol")
        for path in (ROOT / folder).rglob("__init__.py")
    } - {"app_server"}
    handlers = next(line for line in page.splitlines() if "| `app_server/handlers` |" in line)
    named = {f"app_server/handlers/{name}" for name in re.findall(r"`(\w+)`", handlers)}
    inside = {"app_server/clients/receiver/demo_router", "app_server/clients/demo/hosted"}
    assert there - rows - named - inside == set()
    assert {row for row in rows if not (ROOT / row).is_dir()} == set()


def test_the_layers_on_the_page_are_those_that_are_checked() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [
        one["layers"] for one in contracts["contracts"] if one.get("containers") == ["app_server"]
    ]
    assert "```text\n" + "\n".join(layers) + "\n```" in page


def _has_section(page: str, name: str) -> bool:
    section = rf"^##+ {re.escape(name)}$|^\*\*{re.escape(name)}\.\*\*"
    return re.search(section, page, re.MULTILINE) is not None


@pytest.mark.parametrize("page", CURRENT, ids=lambda page: page.name)
def test_every_section_that_a_page_cites_is_there(page: Path) -> None:
    cited = [
        (other, name)
        for other, names in LINKED.findall(" ".join(page.read_text().split()))
        for name in re.findall(r'"([^"]+)"', names)
    ]
    pages = {name: (page.parent / name).read_text() for name, _ in cited}
    assert [one for one in cited if not _has_section(pages[one[0]], one[1])] == []


def test_every_section_that_the_code_cites_is_there() -> None:
    found = {
        (page, name)
        for source in SOURCES
        for page, names in CITED.findall(source.read_text())
        for name in re.findall(r'"([^"]+)"', names)
    }
    pages = {page: (ROOT / "docs" / page).read_text() for page, _ in found}
    assert len(found) > 60
    missing = [(page, name) for page, name in sorted(found) if not _has_section(pages[page], name)]
    assert missing == []


def test_the_readme_lists_every_page() -> None:
    readme = (ROOT / "README.md").read_text()
    listed = set(re.findall(r"^\| \[docs/(\w+\.md)\]\(docs/\1\) \|", readme, re.MULTILINE))
    assert listed == {path.name for path in (ROOT / "docs").glob("*.md")}


@pytest.mark.parametrize(("name", "language"), [("ask.lua", "lua"), ("ask.el", "elisp")])
def test_the_scripts_for_editors_stand_on_their_page(name: str, language: str) -> None:
    """Who has installed a wheel has no clone to take them from."""
    script = (ROOT / "tests" / "interop" / "editors" / name).read_text().rstrip()
    page = (ROOT / "docs" / "editors.md").read_text()
    assert f"```{language}\n{script}\n```" in page
    assert f"tests/interop/editors/{name}" not in page.replace("`tests/interop/editors`", "")
