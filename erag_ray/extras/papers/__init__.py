"""Tables and figures of the papers from finished jobs, beside the published values, and the dual-label experiment."""
