"""Configs of all jobs: frozen dataclasses, checked by pydantic, set by YAML files, the command line or Python (`keys`).

The main job and its steps share `JobConfig`, so one YAML file serves `compare` and the single steps. Unknown keys
are errors. A new key is one field with a docstring; ``--help`` shows it. A new kind of job is one dataclass in a file
of its own here, or in its extra; in fields of the type `Path` ``$NAME`` and ``~`` are replaced.
"""
