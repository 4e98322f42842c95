"""What tables are made from, and whether those that are sealed were made from exactly this."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from erag_ray.schemas import TableSchema
from erag_ray.scores import is_language_score
from erag_ray.store import NOT_LOCAL, TableStore, code_fingerprint, fingerprint


@dataclass(frozen=True, kw_only=True)
class Stage:
    """Tables, and all that their content depends on.

    Attributes:
        name: for people.
        tables: that it seals.
        settings: the part of the config.
        inputs: name -> digest or stamp of what it reads.
        names: of what it calls by a name of the config, such as annotators. Code from outside the package can change
            without its name, and so can modules that it imports: tables made by it are made anew every time.
    """

    name: str
    tables: Sequence[TableSchema]
    settings: Mapping[str, object]
    inputs: Mapping[str, str]
    names: Sequence[str] = ()

    @property
    def fingerprint(self) -> str | None:
        """Of all that the tables depend on, this package's code included; None where that cannot be known."""
        if NOT_LOCAL in self.inputs.values() or any(map(_is_outside, self.names)):
            return None
        return fingerprint([self.settings, self.inputs, sorted(self.names), code_fingerprint()])

    def is_made(self, store: TableStore) -> bool:
        """Whether all of the tables stand there whole, made from exactly this."""
        made_from = self.fingerprint
        return all(store.is_made_from(schema, made_from) for schema in self.tables)


def _is_outside(name: str) -> bool:
    """Whether a name is that of code from outside the package."""
    return ":" in name and not is_language_score(name)


def digests(store: TableStore, schemas: Iterable[TableSchema]) -> dict[str, str]:
    """Name -> `TableStore.digest` of sealed tables."""
    return {schema.name: store.digest(schema) for schema in schemas}
