"""How fast readers are: by themselves, in an actor, behind a server, and beside what others do."""
