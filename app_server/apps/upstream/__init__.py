"""Everything that talks to the hosted endpoint: sessions, plain requests, retries, bearer tokens."""
