"""Arguments of app tools that carry files: read within the sandbox, uploaded, replaced."""
