"""How models are shown `apply_patch`: as plain text by a grammar, or as a function.

Source: docs/tools.md, "Patches"; the public Responses API reference, "Custom tools".
"""

from app_server.patch.grammar import LARK
from app_server.turns.tools.call import ToolArguments
from app_server.turns.tools.declaration import function_declaration
from protocol.model import JsonObject

NAME = "apply_patch"

FREEFORM: JsonObject = {
    "type": "custom",
    "name": NAME,
    "description": (
        "Changes files by a patch. The input is the patch as plain text: it is not wrapped in JSON."
    ),
    "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
}

_DESCRIPTION = f"""Changes files by a patch, of which `input` is the whole text. \
Its grammar, in Lark's language:

{LARK}
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

FUNCTION = function_declaration(
    NAME, _DESCRIPTION, {"input": {"type": "string", "description": "The patch."}}
)


class PatchArguments(ToolArguments):
    """What models take that have no freeform tools."""

    input: str
