"""The operating system: child processes, workspace files, private files, locks."""
