"""One plugin, read from its folder.

Source: docs/plugins.md, "A plugin".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from app_server.extensions.plugins.file_members import read_object, relative_path, text_of, texts_of
from app_server.extensions.plugins.store import MANIFEST_FOLDERS
from app_server.extensions.skills.skill_file import Skill, read_skill
from app_server.runtime.files.opening import BrokenFiles, inside
from protocol.integrations.plugins import PluginInterface
from protocol.model import Json

MANIFESTS = tuple(f"{folder}/plugin.json" for folder in MANIFEST_FOLDERS)
"""The first that is there counts."""

MAX_SERVERS = 64
MAX_APPS = 256
MAX_SKILLS = 128
MAX_NAME_CHARS = 256
"""Of a display name."""

MAX_PROMPTS = 3
MAX_PROMPT_CHARS = 512


@dataclass(frozen=True, slots=True)
class Plugin:
    """Plugin in a folder. Equal by value."""

    root: Path
    name: str
    version: str | None = None
    description: str | None = None
    keywords: Sequence[str] = ()
    interface: PluginInterface | None = None
    servers: Mapping[str, Mapping[str, Json]] = field(default_factory=dict, repr=False)
    """By name, as the tables that `[mcp_servers.NAME]` would have; folders are absolute."""
    app_ids: Sequence[str] = ()
    """Each once, in their order; what they stand for is not known here."""
    skills: Sequence[Skill] = ()
    problems: Sequence[str] = ()
    """Descriptions of its unusable parts."""

    @property
    def display_name(self) -> str:
        """Name for users to read."""
        named = self.interface.display_name if self.interface is not None else None
        return (named or self.name)[:MAX_NAME_CHARS]

    def named_skills(self) -> list[Skill]:
        """Return the skills with the plugin's name before theirs."""
        return [replace(skill, name=f"{self.name}:{skill.name}") for skill in self.skills]


def read_plugin(root: Path) -> Plugin:
    """Read a plugin; an invalid part is a problem of that part alone.

    Raises:
        BrokenFiles: there is no manifest, or it cannot be used.
    """
    manifest = read_manifest(root)
    problems: list[str] = []
    folder = relative_path(manifest.get("skills")) or PurePosixPath("skills")
    skills = list(_skills(root, folder, problems))
    return Plugin(
        root=root,
        name=text_of(manifest.get("name")) or root.name,
        version=text_of(manifest.get("version")),
        description=text_of(manifest.get("description")),
        keywords=tuple(texts_of(manifest.get("keywords"))),
        interface=_interface(root, manifest.get("interface")),
        servers=dict(_servers(root, manifest.get("mcpServers"), problems)),
        app_ids=_app_ids(root, manifest.get("apps"), problems),
        skills=tuple(skills),
        problems=tuple(problems),
    )


def _skills(root: Path, folder: PurePosixPath, problems: list[str]) -> Iterator[Skill]:
    """Read the skills right below a folder of a plugin; none leads out of the plugin."""
    try:
        names = _folders(inside(root, folder))
    except BrokenFiles as exc:
        problems.append(f"skills: {exc}")
        return
    for name in names[:MAX_SKILLS]:
        try:
            skill, wrong = read_skill(inside(root, folder / name))
        except BrokenFiles as exc:
            problems.append(f"skill {name}: {exc}")
            continue
        problems += [f"skill {name}: {why}" for _, why in wrong]
        if skill is not None:
            yield skill


def _folders(path: Path) -> Sequence[str]:
    try:
        return sorted(child.name for child in path.iterdir() if child.is_dir())
    except OSError:
        return ()


def read_manifest(root: Path) -> dict[str, Any]:
    """Read the manifest alone.

    Raises:
        BrokenFiles: see `read_plugin`.
    """
    for relative in MANIFESTS:
        if (manifest := read_object(root, relative)) is not None:
            return manifest
    raise BrokenFiles("missing plugin.json")


def _declared(
    root: Path, declared: object, default: str, member: str, problems: list[str]
) -> Mapping[str, Any]:
    """Find a table in the manifest itself, or in the file that it names, or in the usual one."""
    if isinstance(declared, dict):
        return declared
    path = relative_path(declared) or PurePosixPath(default)
    try:
        found = read_object(root, path) or {}
    except BrokenFiles as exc:
        problems.append(f"{member}: {exc}")
        return {}
    table = found.get(member, found)
    return table if isinstance(table, dict) else {}


def _servers(
    root: Path, declared: object, problems: list[str]
) -> Iterator[tuple[str, Mapping[str, Json]]]:
    tables = _declared(root, declared, ".mcp.json", "mcpServers", problems)
    if len(tables) > MAX_SERVERS:
        problems.append(f"mcpServers: more than {MAX_SERVERS}")
    for name, table in list(tables.items())[:MAX_SERVERS]:
        if not isinstance(table, dict) or not ({"command", "url"} & table.keys()):
            problems.append(f"MCP server {name}: invalid transport")
            continue
        config = {key: value for key, value in table.items() if key != "type"}
        try:
            if isinstance(cwd := config.get("cwd"), str) and not Path(cwd).is_absolute():
                config["cwd"] = str(inside(root, cwd))
        except BrokenFiles as exc:
            problems.append(f"MCP server {name}: {exc}")
            continue
        yield name, config


def _app_ids(root: Path, declared: object, problems: list[str]) -> Sequence[str]:
    tables = _declared(root, declared, ".app.json", "apps", problems)
    ids = [text_of(one.get("id")) for one in tables.values() if isinstance(one, dict)]
    return tuple(dict.fromkeys(id_ for id_ in ids if id_ is not None))[:MAX_APPS]


def _interface(root: Path, value: object) -> PluginInterface | None:
    if not isinstance(value, dict):
        return None

    def asset(relative: object) -> str | None:
        path = relative_path(relative)
        return None if path is None else str(root / path)

    prompts = value.get("defaultPrompt")
    prompts = texts_of([prompts] if isinstance(prompts, str) else prompts)
    screenshots = value.get("screenshots")
    listed = screenshots if isinstance(screenshots, list) else []
    return PluginInterface(
        display_name=text_of(value.get("displayName")),
        short_description=text_of(value.get("shortDescription")),
        long_description=text_of(value.get("longDescription")),
        developer_name=text_of(value.get("developerName")),
        category=text_of(value.get("category")),
        capabilities=texts_of(value.get("capabilities")),
        website_url=text_of(value.get("websiteURL")),
        privacy_policy_url=text_of(value.get("privacyPolicyURL")),
        terms_of_service_url=text_of(value.get("termsOfServiceURL")),
        default_prompt=[one for one in prompts if len(one) <= MAX_PROMPT_CHARS][:MAX_PROMPTS]
        or None,
        brand_color=text_of(value.get("brandColor")),
        composer_icon=asset(value.get("composerIcon")),
        logo=asset(value.get("logo")),
        logo_dark=asset(value.get("logoDark")),
        screenshots=[path for one in listed if (path := asset(one)) is not None],
        screenshot_urls=[],
    )
