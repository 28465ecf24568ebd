"""app/*, plugin/* and skills/*: what a thread can be given besides tools."""

from protocol.model import JsonObject, WireModel


class SkillsListParams(WireModel):
    """Ask for the skills of some folders."""

    cwds: list[str] = []
    force_reload: bool = False


class SkillsListEntry(WireModel):
    """The skills of one folder."""

    cwd: str
    skills: list[JsonObject]
    errors: list[JsonObject]


class SkillsListResponse(WireModel):
    """An entry for each folder that was asked for."""

    data: list[SkillsListEntry]
