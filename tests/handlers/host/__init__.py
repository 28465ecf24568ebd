"""Tests of app_server/handlers/host."""
