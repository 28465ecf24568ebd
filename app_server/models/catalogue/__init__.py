"""Which models there are, who serves them, and what each of them can do."""
