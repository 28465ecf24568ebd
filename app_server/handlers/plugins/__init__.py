"""plugin/*, marketplace/*, skills/*: what extends the server from folders on disk."""
