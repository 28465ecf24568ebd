"""The proxy that commands reach the network through, where they have none of their own.

Each command has a listener inside its own network; HTTP and SOCKS5 come in on one port.
Knows: sockets, HTTP/1.1, SOCKS5. Does not know: sandboxes, settings, threads, who is asked.
"""
