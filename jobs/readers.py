"""``erag-ray readers`` in a clone, and in a working directory that Ray has copied; --help says what it does."""

from erag_ray.cli.run import run

if __name__ == "__main__":
    run("readers")
