"""account/*: signing in and out."""
