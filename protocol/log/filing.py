"""The lines of a home's filing: which projects and sections there are.

Which thread is in which stands in the threads' own logs.
Source: docs/threads.md, "Projects and sections".
"""

from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import Field, ValidationError

from protocol.contract.specs import type_adapter
from protocol.log.base import ROLLOUT_VERSION, RecordBase, is_of_newer
from protocol.model import WireModel
from protocol.threads.thread import ThreadSection


class FiledProject(WireModel):
    """A project, without what follows from its place and its threads. Times are Unix seconds."""

    id: str
    name: str
    roots: list[str]
    """Absolute paths, none twice."""
    metadata: dict[str, str]
    created_at: int
    updated_at: int


class SectionPut(RecordBase):
    """A section is new or has changed."""

    type: Literal["sectionPut"] = "sectionPut"
    section: ThreadSection


class SectionDeleted(RecordBase):
    """A section is gone; threads that name it are in none."""

    type: Literal["sectionDeleted"] = "sectionDeleted"
    section_id: str


class ProjectPut(RecordBase):
    """A project is new, then at the end of the order, or has changed."""

    type: Literal["projectPut"] = "projectPut"
    project: FiledProject
    key: str | None = None
    """What the client named its creation; never used again."""


class ProjectMoved(RecordBase):
    """A project has another place in the order."""

    type: Literal["projectMoved"] = "projectMoved"
    project_id: str
    before_id: str | None
    """Null: at the end."""


class ProjectDeleted(RecordBase):
    """A project is gone; threads that name it are in none."""

    type: Literal["projectDeleted"] = "projectDeleted"
    project_id: str


FilingRecord: TypeAlias = Annotated[
    SectionPut | SectionDeleted | ProjectPut | ProjectMoved | ProjectDeleted,
    Field(discriminator="type"),
]


_TYPES = {kind.model_fields["type"].default for kind in get_args(get_args(FilingRecord)[0])}


def parse_filing_record(line: bytes) -> FilingRecord | None:
    """Read one line; None when it is damaged or of a version or kind that is not known here."""
    try:
        record: FilingRecord = type_adapter(FilingRecord).validate_json(line)
    except ValidationError:
        return None
    return record if record.v <= ROLLOUT_VERSION else None


def is_newer_filing(line: bytes) -> bool:
    """Whether a line that cannot be read here is whole, but of a newer version or kind."""
    return is_of_newer(line, _TYPES)
