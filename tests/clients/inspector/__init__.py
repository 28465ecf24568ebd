"""Tests of app_server/clients/inspector."""
