"""One budget for what loaded threads keep in memory."""
