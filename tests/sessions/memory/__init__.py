"""Tests of app_server/sessions/memory."""
