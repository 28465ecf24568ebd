"""The model: what it is sent, the HTTP client, its responses and their bounds."""
