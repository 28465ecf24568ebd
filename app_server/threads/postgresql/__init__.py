"""The store in PostgreSQL: threads of one server or several, in one database.

Nothing outside imports it but `app_server.threads.opening`, when the settings name a database.
Source: docs/scale.md.
"""
