"""Starts a job from a command line: checks access, locks the output folder, turns errors into exit codes (`run`)."""
