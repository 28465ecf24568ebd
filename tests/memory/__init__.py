"""Tests of app_server/memory."""
