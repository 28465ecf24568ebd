"""mcpServer/elicitation/request: a question that an MCP server puts to the user.

The approval of an MCP tool call comes the same way, as a form without fields.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Json,
    OpenEnum,
    OpenUnion,
    UInt32,
    UInt64,
    Variant,
    WireModel,
    absent_if_none,
)

McpElicitationObjectType = TypeAliasType("McpElicitationObjectType", OpenEnum[Literal["object"]])
"""The `type` of a form."""


McpElicitationBooleanType = TypeAliasType("McpElicitationBooleanType", OpenEnum[Literal["boolean"]])
"""The `type` of a yes-or-no field."""

SOURCE_ID = "connector_id"
SOURCE_NAME = "connector_name"
SOURCE_DESCRIPTION = "connector_description"
"""Members of `_meta` of a question for approval: whom the tool belongs to."""


class McpElicitationBooleanSchema(WireModel, extra="forbid"):
    """A yes-or-no field."""

    type: McpElicitationBooleanType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    default: bool | None = absent_if_none()
    """Value to show at first."""


McpElicitationStringType = TypeAliasType("McpElicitationStringType", OpenEnum[Literal["string"]])
"""The `type` of a field that holds one text."""


class McpElicitationLegacyTitledEnumSchema(WireModel, extra="forbid"):
    """One choice from a list, with labels beside it: the old form."""

    type: McpElicitationStringType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    enum: list[str]
    enum_names: list[str] | None = absent_if_none()
    """Labels, in the order of `enum`; absent means that the values are their own."""
    default: str | None = absent_if_none()


McpElicitationArrayType = TypeAliasType("McpElicitationArrayType", OpenEnum[Literal["array"]])
"""The `type` of a field that holds several choices."""


class McpElicitationConstOption(WireModel, extra="forbid"):
    """A choice with a label."""

    const: str
    """The value to send back."""
    title: str
    """The label to show."""


class McpElicitationTitledEnumItems(WireModel, extra="forbid"):
    """Choices with labels."""

    any_of: list[McpElicitationConstOption]


class McpElicitationTitledMultiSelectEnumSchema(WireModel, extra="forbid"):
    """Any number of choices from a labelled list."""

    type: McpElicitationArrayType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    min_items: UInt64 | None = absent_if_none()
    """Fewest choices; absent means no bound."""
    max_items: UInt64 | None = absent_if_none()
    """Most choices; absent means no bound."""
    items: McpElicitationTitledEnumItems
    default: list[str] | None = absent_if_none()
    """Values chosen at first."""


class McpElicitationUntitledEnumItems(WireModel, extra="forbid"):
    """Choices without labels."""

    type: McpElicitationStringType
    enum: list[str]


class McpElicitationUntitledMultiSelectEnumSchema(WireModel, extra="forbid"):
    """Any number of choices from a plain list."""

    type: McpElicitationArrayType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    min_items: UInt64 | None = absent_if_none()
    """Fewest choices; absent means no bound."""
    max_items: UInt64 | None = absent_if_none()
    """Most choices; absent means no bound."""
    items: McpElicitationUntitledEnumItems
    default: list[str] | None = absent_if_none()
    """Values chosen at first."""


McpElicitationMultiSelectEnumSchema = TypeAliasType(
    "McpElicitationMultiSelectEnumSchema",
    McpElicitationUntitledMultiSelectEnumSchema | McpElicitationTitledMultiSelectEnumSchema,
)
"""Any number of choices, with labels or without."""


class McpElicitationTitledSingleSelectEnumSchema(WireModel, extra="forbid"):
    """One choice from a labelled list."""

    type: McpElicitationStringType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    one_of: list[McpElicitationConstOption]
    default: str | None = absent_if_none()
    """Value chosen at first."""


class McpElicitationUntitledSingleSelectEnumSchema(WireModel, extra="forbid"):
    """One choice from a plain list."""

    type: McpElicitationStringType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    enum: list[str]
    default: str | None = absent_if_none()
    """Value chosen at first."""


McpElicitationSingleSelectEnumSchema = TypeAliasType(
    "McpElicitationSingleSelectEnumSchema",
    McpElicitationUntitledSingleSelectEnumSchema | McpElicitationTitledSingleSelectEnumSchema,
)
"""One choice, with labels or without."""


McpElicitationEnumSchema = TypeAliasType(
    "McpElicitationEnumSchema",
    McpElicitationSingleSelectEnumSchema
    | McpElicitationMultiSelectEnumSchema
    | McpElicitationLegacyTitledEnumSchema,
)
"""A field with fixed choices."""


McpElicitationNumberType = TypeAliasType(
    "McpElicitationNumberType", OpenEnum[Literal["number", "integer"]]
)
"""The `type` of a number field; `integer` takes whole numbers only."""


class McpElicitationNumberSchema(WireModel, extra="forbid"):
    """A number field."""

    type: McpElicitationNumberType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    minimum: float | None = absent_if_none()
    """Inclusive."""
    maximum: float | None = absent_if_none()
    """Inclusive."""
    default: float | None = absent_if_none()


McpElicitationStringFormat = TypeAliasType(
    "McpElicitationStringFormat", OpenEnum[Literal["email", "uri", "date", "date-time"]]
)
"""What a text must look like."""


class McpElicitationStringSchema(WireModel, extra="forbid"):
    """A free text field."""

    type: McpElicitationStringType
    title: str | None = absent_if_none()
    description: str | None = absent_if_none()
    min_length: UInt32 | None = absent_if_none()
    """In characters."""
    max_length: UInt32 | None = absent_if_none()
    """In characters."""
    format: McpElicitationStringFormat | None = absent_if_none()
    default: str | None = absent_if_none()


McpElicitationPrimitiveSchema = TypeAliasType(
    "McpElicitationPrimitiveSchema",
    McpElicitationEnumSchema
    | McpElicitationStringSchema
    | McpElicitationNumberSchema
    | McpElicitationBooleanSchema,
)
"""One field of a form."""


class McpElicitationSchema(WireModel, extra="forbid"):
    """A flat form: the restricted JSON Schema of MCP 2025-11-25."""

    schema_: str | None = absent_if_none(alias="$schema")
    """JSON Schema dialect, if the MCP server names one."""
    type: McpElicitationObjectType
    properties: dict[str, McpElicitationPrimitiveSchema]
    """Fields by name; the answer's `content` has the same names."""
    required: list[str] | None = absent_if_none()
    """Names of the fields that must be filled in."""


class ElicitationBase(Variant):
    """What every question of an MCP server carries."""

    thread_id: str
    turn_id: str | None = None
    """Turn that runs meanwhile; null when no turn caused the question."""
    server_name: str


class FormElicitation(ElicitationBase):
    """Ask the user to fill in a form, or to approve a tool call with an empty one."""

    mode: Literal["form"] = "form"
    meta: Json = Field(default=None, alias="_meta")
    """From the MCP server; for an approval, what is to be approved and how long it may last."""
    message: str
    requested_schema: McpElicitationSchema


class OpenaiFormElicitation(ElicitationBase):
    """Ask with a form in OpenAI's extended schema, which the client must have declared."""

    needs_extension = "openai/form"

    mode: Literal["openai/form"] = "openai/form"
    meta: Json = Field(default=None, alias="_meta")
    message: str
    requested_schema: Json
    """In the extended schema; not checked here."""


class LegacyOpenaiFormElicitation(ElicitationBase):
    """Ask with a form in OpenAI's extended schema, under its old name."""

    needs_extension = "openai/form"

    mode: Literal["openaiForm"] = "openaiForm"
    meta: Json = Field(default=None, alias="_meta")
    message: str
    requested_schema: Json
    """In the extended schema; not checked here."""


class UserVerificationElicitation(ElicitationBase):
    """Ask the user for an approval that the device itself authenticates."""

    experimental_as = "mcpServer/elicitation/request.userVerification"

    mode: Literal["openai/userVerification"] = "openai/userVerification"
    meta: Json = Field(default=None, alias="_meta")
    title: str
    description: str
    challenge: str
    """What to prove; the proof goes into the answer's `content`."""


class UrlElicitation(ElicitationBase):
    """Ask the user to visit a page, to sign in for instance."""

    mode: Literal["url"] = "url"
    meta: Json = Field(default=None, alias="_meta")
    message: str
    url: str
    elicitation_id: str
    """The MCP server's own id for the question."""


McpServerElicitationRequestParams = TypeAliasType(
    "McpServerElicitationRequestParams",
    OpenUnion[
        Annotated[
            UserVerificationElicitation
            | FormElicitation
            | OpenaiFormElicitation
            | LegacyOpenaiFormElicitation
            | UrlElicitation,
            Field(discriminator="mode"),
        ]
    ],
)
"""Ask the user something for an MCP server."""


McpServerElicitationAction = TypeAliasType(
    "McpServerElicitationAction", Literal["accept", "decline", "cancel"]
)
"""Yes, no, or closed without a choice."""


class McpServerElicitationRequestResponse(WireModel):
    """The user's answer."""

    action: McpServerElicitationAction
    content: Json = None
    """The values filled in, by field name; null unless `action` is `accept`."""
    meta: Json = Field(default=None, alias="_meta")
    """To the MCP server; an approval is kept with `persist` as `session` or `always`."""
