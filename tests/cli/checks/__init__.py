"""`app-server doctor`, check by check."""
