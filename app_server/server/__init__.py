"""The composition root: builds every room, joins them, starts and stops the process."""
