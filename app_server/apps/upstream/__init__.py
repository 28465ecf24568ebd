"""What talks to the hosted endpoint: sessions, plain requests, retries, bearer tokens."""
