"""Passages: loading of CORPUS (`load_passages`) and splitting of pages into it (`make_corpus`, `SPLITTERS`)."""
