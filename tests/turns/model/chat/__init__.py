"""Tests of app_server/turns/model/chat."""
