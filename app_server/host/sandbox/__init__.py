"""Sandboxes for commands: from a sandbox policy to the argv that enforces it.

Knows: bubblewrap, seccomp, cgroups, sandbox-exec. Does not know: settings, threads, who wants a
command; processes are started elsewhere.
"""
