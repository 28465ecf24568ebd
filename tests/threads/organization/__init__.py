"""Tests of app_server/threads/organization."""
