"""Starts a job: from a command line, with exit codes (`run`); and in a locked folder, also from Python (`job`)."""
