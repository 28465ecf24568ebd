"""Tests of the tools of app_server/tools that run commands."""
