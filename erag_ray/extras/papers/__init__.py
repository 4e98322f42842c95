"""Tables and figures of the papers from finished jobs, next to the published values, and the dual-label experiment."""
