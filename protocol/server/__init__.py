"""What concerns the server as a whole: its clients, account, settings, models and figures."""
