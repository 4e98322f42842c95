"""Reading of users' files, and diagnostics of them as FILE:LINE."""
