"""`app-server exec`: one turn of a thread, without a person who is asked.

Knows: requests and events of an app-server, the events of `codex exec --json`. Does not know: what
is behind the requests. Source: docs/exec.md.
"""
