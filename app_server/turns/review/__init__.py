"""The automatic reviewer, which answers approvals instead of the user."""
