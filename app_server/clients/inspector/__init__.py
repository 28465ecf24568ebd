"""`app-server inspect`: a page in a browser that shows a running server and uses it.

This folder serves the page on loopback and relays its WebSocket to the server, which itself talks
to no web page. The page is in `page/`: HTML, CSS and ES modules, served as they are.
Knows: files, tokens, frames. Does not know: what any message means; the page does.
Source: docs/inspector.md.
"""
