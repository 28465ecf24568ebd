"""Budgets that the threads of a database share."""
