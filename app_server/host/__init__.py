"""Processes, on this machine and on others.

Knows: pipes, process groups, exec servers, environments.
Does not know: MCP, threads, turns, clients; who wants a process, and what is said on its pipes.
"""
