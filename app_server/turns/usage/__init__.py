"""What turns use: each request to a model recorded, and kept within budgets."""
