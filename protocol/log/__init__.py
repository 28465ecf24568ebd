"""The lines of files that the server keeps: logs of threads, and a home's projects and sections."""
