"""The papers' tables and figures from finished jobs, beside the published numbers, and the dual-label experiment."""
