"""Write the sources of the documentation site into a folder: pages, reference, llms.txt, settings.

usage: python .ci/site.py FOLDER

Pages are those of docs/, with README.md as the first one. The reference of the protocol is made
from the types in protocol/ and from docs/examples.json, calls that a test makes again.
"""

import json
import re
import shutil
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from protocol.contract.methods import METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.contract.specs import Effect, MethodSpec, module_of
from protocol.export.tree import render_ts

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
OTHERS = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "schema/README.md": "schema.md",
}
"""Pages outside of docs/, and where the site has them."""
TO_SITE = {
    "../CONTRIBUTING.md": "contributing.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "../schema": "schema.md",
    "schema": "schema.md",
}
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")

SENT_AGAIN = "[Sending again](../sending_again.md)"
ERRORS = "[Errors](../wire.md#errors)"


def page(text: str) -> str:
    """Turn the links of a page to where the site has their targets."""

    def target(found: re.Match[str]) -> str:
        path = found[1].removeprefix("../docs/").removeprefix("docs/")
        return f"]({TO_SITE.get(path, path)}{found[2] or ''})"

    return LINK.sub(target, text)


def declaration(files: Mapping[str, str], name: str) -> str:
    """Return the TypeScript declaration of a type, without what it imports."""
    (text,) = (text for path, text in files.items() if path.rpartition("/")[2] == f"{name}.ts")
    lines = [line for line in text.splitlines() if not line.startswith(("import ", "// "))]
    return "\n".join(["```ts", *lines, "```"]).replace("```ts\n\n", "```ts\n")


def example(method: str, call: Mapping[str, Any]) -> str:
    """Show a call and its answer."""
    request = {"id": 1, "method": method, "params": call["params"]}
    key = "error" if "error" in call else "result"
    shown = (
        json.dumps(one, indent=2, ensure_ascii=False)
        for one in (request, {"id": 1, key: call[key]})
    )
    return "\n\n".join(f"```json\n{one}\n```" for one in shown)


def errors(spec: MethodSpec) -> Iterator[str]:
    """Say which errors each call of a method may have, from its row in the table of methods."""
    if spec.params_name is not None:
        yield "-32602 `invalidParams`: a member is missing or does not fit"
    if spec.experimental:
        yield "-32600: the client has not set `capabilities.experimentalApi`"
    if spec.order.member == "threadId":
        yield "-32600 `invalidThreadId`, `threadNotFound`: there is no such thread"
    if spec.takes_operation:
        words = "`operationIdTaken`, `operationUnderWay`, `operationOutcomeUnknown`"
        yield f"-32600 {words}, with a `_meta.operationId`: {SENT_AGAIN}"
    yield f"those of every request, and the words of its subject: {ERRORS}"


EFFECTS = {
    Effect.READS: "changes nothing",
    Effect.CONNECTION: "changes what its connection has",
    Effect.SETS: "may be repeated: the result is the same",
    Effect.MAKES: "makes something, once for each `_meta.operationId`",
    Effect.LOGS: "writes to the thread's log, once for each `_meta.operationId`",
    Effect.ONCE: "is not run again after a crash",
}


def method_text(method: str, spec: MethodSpec, files: Mapping[str, str], call: Any) -> str:
    """Describe a method: parameters, result, errors, an example."""
    marks = [word for word in ("experimental", "extension") if getattr(spec, word)]
    facts = "; ".join([EFFECTS[spec.effect], *marks])
    params = "None." if spec.params_name is None else declaration(files, spec.params_name)
    return "\n\n".join(
        [
            f"## {method}",
            f"*{facts[0].upper()}{facts[1:]}.*",
            "**Parameters**",
            params,
            "**Result**",
            declaration(files, spec.result_name),
            "**Errors**",
            "\n".join(f"- {text}" for text in errors(spec)),
            "**Example**",
            example(method, call),
        ]
    )


def reference(files: Mapping[str, str], examples: Mapping[str, Any]) -> dict[str, str]:
    """Make the pages of the reference by name: one for each module of types."""
    areas: dict[str, list[str]] = defaultdict(list)
    for method, spec in METHODS.items():
        areas[spec.area].append(method_text(method, spec, files, examples[method]))
    pages = {}
    for area, texts in sorted(areas.items()):
        first = (import_module(module_of(area)).__doc__ or "").partition("\n")[0].partition(": ")
        about = first[2] or first[0]
        title = area.replace(".", ": ").replace("_", " ")
        pages[area.replace(".", "-")] = "\n\n".join(
            [f"# {title[0].upper()}{title[1:]}", f"{about[0].upper()}{about[1:]}", *texts]
        )
    questions = [
        f"## {name}\n\n**Parameters**\n\n{declaration(files, spec.params_name or '')}\n\n"
        f"**Answer**\n\n{declaration(files, spec.result_name)}"
        for name, spec in SERVER_REQUESTS.items()
    ]
    pages["questions"] = "\n\n".join(["# Questions of the server", *questions])
    news = [
        f"## {name}\n\n{declaration(files, spec.params_name)}"
        for name, spec in NOTIFICATIONS.items()
    ]
    pages["notifications"] = "\n\n".join(["# Notifications", *news])
    return pages


def title_of(text: str) -> str:
    """Return the heading of a page."""
    return next(line[2:] for line in text.splitlines() if line.startswith("# "))


def about(text: str) -> str:
    """Return the first sentence of a page, without links."""
    for part in text.split("\n\n")[1:]:
        if not part.startswith(("#", "|", "```", "!", "<", "-")):
            plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", " ".join(part.split()))
            return f"{plain.partition('. ')[0].rstrip('.:')}."
    return ""


def llms(groups: Mapping[str, Sequence[str]], texts: Mapping[str, str], about_site: str) -> str:
    """Make llms.txt: what there is to read, by group, with a sentence for each page."""
    lines = ["# app-server", "", f"> {about_site}."]
    for group, names in groups.items():
        lines += ["", f"## {group}", ""]
        lines += [f"- [{title_of(texts[n])}]({n}.md): {about(texts[n])}" for n in names]
    return "\n".join(lines) + "\n"


def main(out: Path) -> None:
    """Write the site's sources."""
    site = out / "docs"
    site.mkdir(parents=True)
    for name in ("inspector", "deploy", "examples.json"):
        copied = DOCS / name
        (shutil.copytree if copied.is_dir() else shutil.copy)(copied, site / name)
    texts = {path.stem: page(path.read_text()) for path in DOCS.glob("*.md")}
    texts |= {Path(to).stem: page((ROOT / path).read_text()) for path, to in OTHERS.items()}
    settings = tomllib.loads((DOCS / "site.toml").read_text())
    groups: dict[str, list[str]] = {
        group: [name for name in names if name in texts]
        for group, names in settings["groups"].items()
    }
    if left := texts.keys() - {name for names in groups.values() for name in names}:
        raise SystemExit(f"docs/site.toml has no group for {', '.join(sorted(left))}")
    pages = reference(
        render_ts(experimental=True), json.loads((DOCS / "examples.json").read_text())
    )
    (site / "reference").mkdir()
    for name, text in pages.items():
        texts[f"reference/{name}"] = text
    groups["Reference"] += [f"reference/{name}" for name in pages]
    for name, text in texts.items():
        (site / f"{name}.md").write_text(text)
    if broken := [
        f"{name}: {link}" for name in texts for link in broken_links(site / f"{name}.md")
    ]:
        raise SystemExit("links that lead nowhere:\n" + "\n".join(broken))
    description = settings["project"]["site_description"]
    (site / "llms.txt").write_text(llms(groups, texts, description))
    entries = [
        {group: [{title_of(texts[name]): f"{name}.md"} for name in names]}
        for group, names in groups.items()
    ]
    project = {**settings["project"], "nav": entries}
    (out / "zensical.toml").write_text(f"project = {toml(project)}\n")


def broken_links(file: Path) -> Iterator[str]:
    """Find links of a page to what the site does not have; of zensical no option does."""
    text = re.sub(r"^```.*?^```$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)
    for found in LINK.finditer(re.sub(r"`[^`\n]*`", "", text)):
        if ":" not in found[1] and not (file.parent / found[1]).exists():
            yield found[1]


def toml(value: Any) -> str:
    """Write lists, tables and texts as TOML on one line."""
    match value:
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            rows = (f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items())
            return f"{{ {', '.join(rows)} }}"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
