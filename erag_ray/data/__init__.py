"""Questions, passages and runs: their file formats and checks."""
