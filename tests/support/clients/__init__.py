"""Programs that use a server, and the browser that shows their pages."""
