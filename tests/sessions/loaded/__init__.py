"""Tests of loading in app_server/sessions."""
