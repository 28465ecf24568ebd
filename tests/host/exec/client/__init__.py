"""Tests of app_server/host/exec/client."""
