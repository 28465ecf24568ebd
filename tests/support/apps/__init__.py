"""The endpoint of apps as tests play it, and threads and services that use it."""
