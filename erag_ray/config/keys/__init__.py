"""Keys of a config: their names, their types, and values of YAML, a command line or Python checked against them."""
