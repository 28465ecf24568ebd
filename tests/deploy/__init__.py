"""How servers are kept running."""
