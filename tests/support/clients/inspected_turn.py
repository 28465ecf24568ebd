"""A turn with one of each that people read: for tests of the inspector, and its pictures."""

from typing import Any
from uuid import uuid4

from tests.support.model import Refusal, Script, calls, says

PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAFElEQVR4nGNkYPjPgBuwoAsMHCEADJQBD/0XW6EA"
    "AAAASUVORK5CYII="
)

ANSWER = """## What I found

The parser dropped the **last line** of a file without a newline. See `parse.py`:

```python
def lines(text: str) -> list[str]:
    return text.split("\\n")
```

| file | before | after |
| --- | --- | --- |
| parse.py | 12 | 14 |

1. The test fails without the change.
2. It passes with it, see the [guide](https://example.com/guide).

<script>alert(1)</script> and [a link](javascript:alert(1)) stay text.
"""

PATCH = """*** Begin Patch
*** Add File: parse.py
+def lines(text: str) -> list[str]:
+    return text.split("\\n")
*** End Patch"""

UPDATE = """*** Begin Patch
*** Update File: parse.py
@@
 def lines(text: str) -> list[str]:
-    return text.split("\\n")
+    return text.removesuffix("\\n").split("\\n")
*** End Patch"""

COLOURED = (
    "printf '\\033[1;32mpassed\\033[0m 12 tests\\n\\033[31mFAILED\\033[0m test_parse.py\\n'; "
    "seq 1 40; exit 3"
)

QUESTION = {
    "id": "style",
    "header": "Style",
    "question": "Which style do you want?",
    "options": [
        {"label": "Short", "description": "One line."},
        {"label": "Long", "description": "Many lines."},
    ],
}


def thinks(summary: str) -> list[Any]:
    """Script a reasoning item."""
    item = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": summary}],
    }
    return [
        {"type": "response.output_item.added", "item": {**item, "summary": []}},
        {
            "type": "response.reasoning_summary_text.delta",
            "item_id": "rs_1",
            "summary_index": 0,
            "delta": summary,
        },
        {"type": "response.output_item.done", "item": item},
    ]


def call(name: str, arguments: object, **more: str) -> list[Any]:
    """Script one function call, with an id of its own."""
    return calls({"name": name, "arguments": arguments, "call_id": str(uuid4()), **more})


def whole_turn(*, asks: bool = False) -> list[Script | Refusal]:
    """Script a turn that thinks, plans, runs a command, changes files, calls a tool and answers."""
    plan = {
        "explanation": "Three steps.",
        "plan": [
            {"step": "Run the tests", "status": "completed"},
            {"step": "Mend the parser", "status": "in_progress"},
            {"step": "Say what was done", "status": "pending"},
        ],
    }
    asked = [call("request_user_input", {"questions": [QUESTION]})] if asks else []
    return [
        [
            *thinks("**Looking at the failure**\n\nThe last line is lost. I run the tests first."),
            *call("update_plan", plan),
        ],
        call("exec_command", {"cmd": COLOURED}),
        *asked,
        call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}\nEOF\n"}),
        call("exec_command", {"cmd": f"apply_patch <<'EOF'\n{UPDATE}\nEOF\n"}),
        call("structured", {"what": "hello"}, namespace="mcp__peer"),
        says(*(ANSWER[at : at + 40] for at in range(0, len(ANSWER), 40))),
    ]
