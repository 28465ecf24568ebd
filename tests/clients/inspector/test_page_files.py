"""The files of the page: complete, without links to elsewhere, and no HTML made from text."""

import hashlib
import json
import re

from app_server.clients.inspector.run import PAGE, read_site

SCRIPTS = {path.relative_to(PAGE).as_posix(): path.read_text() for path in PAGE.glob("js/**/*.js")}
VENDORED = PAGE / "vendor"
LIBRARIES = {row["file"]: row for row in json.loads((VENDORED / "versions.json").read_text())}
STYLES = {path.name: path.read_text() for path in PAGE.rglob("*.css")}
INDEX = (PAGE / "index.html").read_text()

LIBRARY = re.compile(r'^import [^"]+ from "/vendor/([^"]+)";$', re.MULTILINE)
IMPORT = re.compile(r'^import \{([^}]+)\} from "([^"]+)";$', re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)


def test_every_import_is_there() -> None:
    exported = {f"/{name}": set(EXPORT.findall(text)) for name, text in SCRIPTS.items()}
    missing = [
        (name, source, wanted)
        for name, text in SCRIPTS.items()
        for names, source in IMPORT.findall(text)
        for wanted in (part.strip() for part in names.split(","))
        if wanted
        and wanted not in exported.get(source, set())
        and not source.startswith("/vendor/")
    ]
    assert missing == []
    assert sum(len(IMPORT.findall(text)) for text in SCRIPTS.values()) > 100


def test_every_script_is_used_and_every_import_too() -> None:
    imported = {source for text in SCRIPTS.values() for _, source in IMPORT.findall(text)}
    assert {f"/{name}" for name in SCRIPTS} - imported == {"/js/main.js"}
    assert {name for text in SCRIPTS.values() for name in LIBRARY.findall(text)} == set(LIBRARIES)
    unused = [
        (name, wanted)
        for name, text in SCRIPTS.items()
        for names, _ in IMPORT.findall(text)
        for wanted in (part.strip() for part in names.split(","))
        if wanted and len(re.findall(rf"\b{wanted}\b", text)) < 2
    ]
    assert unused == []


def test_libraries_are_those_that_were_published_each_with_its_licence() -> None:
    files = {path.name for path in VENDORED.iterdir()} - {"versions.json"}
    licences = {f"{name.removesuffix('.js')}.LICENSE" for name in LIBRARIES}
    assert files == set(LIBRARIES) | licences
    assert {name: row["sha256"] for name, row in LIBRARIES.items()} == {
        name: hashlib.sha256((VENDORED / name).read_bytes()).hexdigest() for name in LIBRARIES
    }
    for name, row in LIBRARIES.items():
        assert row.keys() == {"file", "package", "version", "path", "license", "sha256"}, name


def test_the_page_names_its_files_and_has_no_scripts_of_its_own() -> None:
    named = re.findall(r'(?:src|href)="([^"]+)"', INDEX)
    site = read_site()
    assert [path for path in named if path not in site] == []
    assert {path for path in site if path.endswith(".css")} <= set(named)
    assert re.findall(r"<script[^>]*>(?!</script>)|<style| style=| on\w+=", INDEX) == []


def test_nothing_is_loaded_from_elsewhere() -> None:
    own = {"http://www.w3.org/2000/svg", "//127.0.0.1:4500”;"}
    texts = {**SCRIPTS, **STYLES, "index.html": INDEX}
    found = {
        (name, url)
        for name, text in texts.items()
        for url in re.findall(r"(?<!\\)(?:https?:)?//[\w.-]+\.\w+[^\s\"'`]*", text)
        if url not in own
    }
    assert found == set()


def test_no_text_becomes_html_or_code() -> None:
    unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
    assert [name for name, text in SCRIPTS.items() if re.search(unsafe, text)] == []


def test_every_variable_of_the_styles_is_defined() -> None:
    defined = set(re.findall(r"^\s+(--[\w-]+):", STYLES["tokens.css"], re.MULTILINE))
    used = {name for text in STYLES.values() for name in re.findall(r"var\((--[\w-]+)\)", text)}
    assert used - defined == set()
    assert defined - used == set()


def test_colours_are_written_in_one_place() -> None:
    colours = re.compile(r"#[0-9a-f]{3,8}\b|\brgb\(|\bhsl\(")
    found = [name for name, text in STYLES.items() if colours.search(text)]
    assert sorted(found) == ["tokens.css"]


def test_files_are_small() -> None:
    lengths = {name: text.count("\n") for name, text in {**SCRIPTS, **STYLES}.items()}
    assert {name: length for name, length in lengths.items() if length > 350} == {}
