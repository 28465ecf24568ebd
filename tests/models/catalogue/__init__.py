"""Tests of app_server/models/catalogue."""
