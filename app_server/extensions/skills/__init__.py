"""Skills: folders with instructions that the model reads when it needs them.

Knows where skills are, what their files say, and which are switched off. Does not know: plugins,
threads, clients.
"""

FILE = "SKILL.md"
"""File that makes a folder a skill."""
