"""Tests of turns in app_server/sessions."""
