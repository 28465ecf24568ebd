"""Tools of apps that take files: who calls them, where files are, and where they go."""
