"""Account at the model's provider: sign-in, refresh, sign-out, storage of tokens.

Knows: the file that Codex keeps credentials in, OAuth as OpenAI's issuer speaks it. Does not know:
clients, threads, turns, MCP. Secrets leave this package in requests to the issuer that gave them,
and to who asks for the current credentials; not in texts of errors, not in logs.
"""
