"""Programs that clients run on this machine beside all threads.

Knows: who owns a program and what that calls it, input, output and its bounds, time limits.
Does not know: clients, methods; how a program is started and ended (app_server/host/commands).
"""
