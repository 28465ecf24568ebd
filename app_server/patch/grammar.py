"""How a patch is written: the grammar that constrains a model, and the words that the parser takes.

Source: docs/tools.md, "Patches"; the grammar is in the language of https://lark-parser.readthedocs.io/.
"""

BEGIN = "*** Begin Patch"
END = "*** End Patch"
ADD = "*** Add File: "
DELETE = "*** Delete File: "
UPDATE = "*** Update File: "
MOVE = "*** Move to: "
ENVIRONMENT = "*** Environment ID: "
END_OF_FILE = "*** End of File"
CONTEXT = "@@"

LARK = r"""start: begin file_change+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

file_change: add | delete | update
add: "*** Add File: " path LF added_line+
delete: "*** Delete File: " path LF
update: "*** Update File: " path LF move? edits?

path: /(.+)/
added_line: "+" /(.*)/ LF
move: "*** Move to: " path LF
edits: (context | edit_line)+ end_of_file?
context: ("@@" | "@@ " /(.+)/) LF
edit_line: (" " | "-" | "+") /(.*)/ LF
end_of_file: "*** End of File" LF

%import common.LF
"""
"""What a model with freeform tools may write; the parser takes a little more."""

LARK_ENVIRONMENTS = LARK.replace(
    "start: begin file_change+ end",
    'start: begin environment? file_change+ end\nenvironment: "*** Environment ID: " path LF',
)
"""The same, where a patch can name the environment whose files it changes."""
