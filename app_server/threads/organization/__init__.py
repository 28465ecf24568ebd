"""Projects and sections: how users file their threads."""
