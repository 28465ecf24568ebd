"""The composition root: builds every part, joins them, starts and stops the process."""
