"""How models are shown `apply_patch`: as plain text by a grammar, or as a function.

Source: docs/tools.md, "Patches"; the public Responses API reference, "Custom tools".
"""

from collections.abc import Sequence

from app_server.patch.grammar import LARK, LARK_ENVIRONMENTS
from app_server.turns.tools.call import ToolArguments
from app_server.turns.tools.declaration import function_declaration, text
from protocol.model import JsonObject

NAME = "apply_patch"

FREEFORM_DESCRIPTION = (
    "Changes files by a patch. The input is the patch as plain text: it is not wrapped in JSON."
)

FUNCTION_DESCRIPTION = """Changes files by a patch, of which `input` is the whole text. \
Its grammar, in Lark's language:

{grammar}
A patch of two files:

*** Begin Patch
*** Update File: src/app.py
@@ def greet():
-    print("Hi")
+    print("Hello")
*** Add File: notes.txt
+A first line.
*** End Patch

Paths begin at the working folder. A line of an update that stays begins with a blank; give about \
three of them around a change. A line behind `@@` is one above the change, such as the head of its \
function. Every line of a new file begins with `+`."""

ENVIRONMENTS = (
    " Without a line `*** Environment ID: NAME` the files are those of `{first}`; the names are: "
    "{names}."
)


class PatchArguments(ToolArguments):
    """What models take that have no freeform tools."""

    input: str


def patch_declaration(*, is_freeform: bool, environments: Sequence[str]) -> JsonObject:
    """Declare the tool; `environments` are those that a patch can choose from, if there are any."""
    grammar = LARK_ENVIRONMENTS if environments else LARK
    more = ""
    if environments:
        names = ", ".join(f"`{name}`" for name in environments)
        more = ENVIRONMENTS.format(first=environments[0], names=names)
    if is_freeform:
        return {
            "type": "custom",
            "name": NAME,
            "description": FREEFORM_DESCRIPTION + more,
            "format": {"type": "grammar", "syntax": "lark", "definition": grammar},
        }
    description = FUNCTION_DESCRIPTION.replace("{grammar}", grammar) + more
    return function_declaration(NAME, description, {"input": text("The patch.")})
