"""Sandboxes for commands: from a sandbox policy to what the system is asked to start.

Knows: bubblewrap, seccomp, cgroups, sandbox-exec. Does not know: settings, threads, who wants a
command; processes are started elsewhere.
"""
