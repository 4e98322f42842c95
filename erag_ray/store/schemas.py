"""Arrow schemas and keys of tables, and ``conform``, which checks tables at the boundaries of rooms.

Ids are strings. ``rank`` is 1-based and defines the order. A null value means "not judged": it is never 0 and
never NaN. Non-nullable columns have no nulls. The tables of an analysis are defined with it; those of an extra in its
folder.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from erag_ray.support.errors import InputError as InputError
from erag_ray.support.errors import JobError as JobError

STRING = pa.large_string()
STRINGS = pa.large_list(STRING)
ROWS = pa.large_list(pa.int32())
RANK = pa.int32()
COUNT = pa.int64()
KEY = pa.uint64()
VALUE = pa.float64()
VALUES = pa.large_list(VALUE)
COUNTS = pa.large_list(COUNT)
FLAG = pa.bool_()


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Schema of a table: its name, its columns and the key columns that identify a row."""

    name: str
    columns: pa.Schema
    key: tuple[str, ...]

    def empty(self) -> pa.Table:
        """Return a table of this schema without rows."""
        # unlike Schema.empty_table it does not import pandas
        return pa.Table.from_batches([], schema=self.columns)


def table_schema(name: str, key: str, **columns: pa.DataType) -> TableSchema:
    """Define a table; a trailing underscore in a column's name marks it nullable."""
    fields = [
        pa.field(column.removesuffix("_"), kind, nullable=column.endswith("_"))
        for column, kind in columns.items()
    ]
    return TableSchema(name=name, columns=pa.schema(fields), key=tuple(key.split()))


def of_slices(name: str, whole: TableSchema) -> TableSchema:
    """Return the schema of a table by slice, with the columns slice and value added."""
    names = [pa.field(column, STRING, nullable=False) for column in ("slice", "value")]
    return TableSchema(
        name=name, columns=pa.schema([*names, *whole.columns]), key=("slice", "value", *whole.key)
    )


QUERIES = table_schema(
    "queries", "query_id", query_id=STRING, dataset=STRING, question=STRING, answers=STRINGS, score=STRING
)
PROVENANCE = table_schema(
    "provenance", "query_id rank", query_id=STRING, rank=RANK, page_id_=STRING, doc_id_=STRING
)
"""A gold page or a gold document in each row, numbered by question: documents first, best first. A page matches the
``page_id`` of a passage, a document its ``doc_id``; whether a run or a passage file has them does not matter."""
CORPUS = table_schema("corpus", "doc_id", doc_id=STRING, page_id_=STRING, title=STRING, text=STRING)
RUNS = table_schema(
    "runs", "run_id query_id rank", run_id=STRING, query_id=STRING, rank=RANK, doc_id=STRING, score_=VALUE
)
RETRIEVAL_SECONDS = table_schema(
    "retrieval_seconds", "run_id query_id", run_id=STRING, query_id=STRING, seconds=VALUE
)
"""Latency of the retrieval of each list; no row where it is unknown."""
GOLD = table_schema("gold", "query_id rank", query_id=STRING, rank=RANK, doc_id=STRING)
"""The list of gold passages that a reader gets: only passages that have a text."""
REQUESTS = table_schema(
    "requests",
    "kind query_id doc_ids",
    kind=STRING,
    query_id=STRING,
    doc_ids=STRINGS,
    model=STRING,
    reader=STRING,
    question_key=KEY,
    passages_key=KEY,
)
"""All requests, by kind; several rows may share a key. ``reader`` is the one whose labels use the responses."""
PENDING = table_schema(
    "pending",
    "question_key passages_key",
    question_key=KEY,
    passages_key=KEY,
    form=COUNT,
    question=STRING,
    titles=STRINGS,
    texts=STRINGS,
    answers=STRINGS,
)
"""Distinct requests to one model without a cached response; ``form`` is an index in a list of forms."""
ERROR_KINDS = {
    "input": "would occur anywhere, such as a prompt too long; final, unless a job retries errors (retry_failed)",
    "resource": "out of memory, its process died, or its server failed; valid for its own job only",
    "refused": "a content filter or the model refused it; final, unless a job retries errors (retry_failed)",
    "code": "user code raised for this request; valid for its own job only",
}
"""RESPONSES.error_kind -> what it means."""
RESPONSES = table_schema(
    "responses",
    "model question_key passages_key",
    model=STRING,
    question_key=KEY,
    passages_key=KEY,
    output_=STRING,
    logprobs=VALUES,
    num_answer_tokens=COUNTS,
    error_=STRING,
    error_kind_=STRING,
    num_prompt_tokens=COUNT,
    num_output_tokens=COUNT,
    num_truncated_question_tokens=COUNT,
    num_truncated_passage_tokens=COUNT,
)
LABELS = table_schema(
    "labels",
    "reader score annotator query_id doc_id",
    reader=STRING,
    score=STRING,
    annotator=STRING,
    query_id=STRING,
    doc_id=STRING,
    label_=VALUE,
)
UTILITY = table_schema(
    "utility",
    "reader score run_id query_id depth",
    reader=STRING,
    score=STRING,
    run_id=STRING,
    query_id=STRING,
    depth=RANK,
    value_=VALUE,
)
DOCUMENT_OUTPUTS = table_schema(
    "document_outputs",
    "reader query_id doc_id",
    reader=STRING,
    query_id=STRING,
    doc_id=STRING,
    output_=STRING,
)
"""Output of a reader with a single document; null for an error."""
LIST_OUTPUTS = table_schema(
    "list_outputs",
    "reader run_id query_id depth",
    reader=STRING,
    run_id=STRING,
    query_id=STRING,
    depth=RANK,
    output_=STRING,
)
"""Output of a reader with each list of UTILITY, including the reference runs."""
LIST_TOKENS = table_schema(
    "list_tokens",
    "reader run_id query_id depth",
    reader=STRING,
    run_id=STRING,
    query_id=STRING,
    depth=RANK,
    num_prompt_tokens=COUNT,
)
"""Length of the prompt with each list of UTILITY, including the reference runs."""
# values of questions at a path of their records, or other properties, to report them separately
SLICES = table_schema("slices", "query_id slice", query_id=STRING, slice=STRING, value=STRING)
# gold answers of a question that each say another thing, with their accepted forms
FACTS = table_schema("facts", "query_id fact", query_id=STRING, fact=RANK, answers=STRINGS)
# score of the reader's output with a single document, for one fact
FACT_LABELS = table_schema(
    "fact_labels",
    "reader score query_id doc_id fact",
    reader=STRING,
    score=STRING,
    query_id=STRING,
    doc_id=STRING,
    fact=RANK,
    label_=VALUE,
)
# outputs of a reader by kind of list (depth 0: no documents): counts, and share and score of the majority answer
OUTPUTS = table_schema(
    "outputs",
    "dataset reader kind depth",
    dataset=STRING,
    reader=STRING,
    kind=STRING,
    depth=RANK,
    num_outputs=COUNT,
    num_distinct=COUNT,
    num_empty=COUNT,
    num_at_limit_=COUNT,
    num_copied=COUNT,
    num_misspelt=COUNT,
    majority_answer=STRING,
    majority_share=VALUE,
    majority_score_=VALUE,
)
COMMON_OUTPUTS = table_schema(
    "common_outputs",
    "dataset reader kind depth place",
    dataset=STRING,
    reader=STRING,
    kind=STRING,
    depth=RANK,
    place=RANK,
    output=STRING,
    num_outputs=COUNT,
    share=VALUE,
)
# verdicts of a judge on a reader's outputs, by kind of list (depth 0: no documents): counts
JUDGEMENTS = table_schema(
    "judgements",
    "dataset reader kind depth",
    dataset=STRING,
    reader=STRING,
    kind=STRING,
    depth=RANK,
    num_outputs=COUNT,
    num_correct=COUNT,
    num_incorrect=COUNT,
    num_abstained=COUNT,
    num_unusable=COUNT,
    num_not_asked=COUNT,
)
COSTS = table_schema(
    "costs",
    "stage job model",
    stage=STRING,
    job=STRING,
    model=STRING,
    num_requests=COUNT,
    num_reader_calls=COUNT,
    num_prompt_tokens=COUNT,
    num_output_tokens=COUNT,
    num_cached_prompt_tokens=COUNT,
    price_=VALUE,
    seconds=VALUE,
    device_seconds=VALUE,
    peak_memory_bytes=COUNT,
)

TABLES = {
    table.name: table
    for table in (
        QUERIES,
        PROVENANCE,
        CORPUS,
        RUNS,
        RETRIEVAL_SECONDS,
        GOLD,
        REQUESTS,
        PENDING,
        RESPONSES,
        LABELS,
        UTILITY,
        DOCUMENT_OUTPUTS,
        LIST_OUTPUTS,
        LIST_TOKENS,
        SLICES,
        FACTS,
        FACT_LABELS,
        OUTPUTS,
        COMMON_OUTPUTS,
        JUDGEMENTS,
        COSTS,
    )
}

OF_STAGES = (REQUESTS, OUTPUTS, COMMON_OUTPUTS, JUDGEMENTS, COSTS)
"""Tables that each stage with models seals in a folder of its own."""


def conform(table: pa.Table | pl.DataFrame, schema: TableSchema, *, unique: bool = True) -> pa.Table:
    """Return the table with the columns of the schema, in its order and types.

    Args:
        table: an Arrow table or Polars frame; extra columns are an error.
        schema: the schema.
        unique: also check that keys are unique (off for open stores, where it needs a full read).

    Raises:
        ValueError: a column is missing or unknown, cannot be cast, has nulls or NaN, or a key is repeated.
    """
    arrow = table.to_arrow() if isinstance(table, pl.DataFrame) else table
    _check_names(arrow, schema)
    try:
        result = arrow.select(schema.columns.names).cast(schema.columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ValueError(f"table {schema.name}: {error}") from error
    _check_values(result, schema)
    if unique:
        _check_key(result, schema)
    return result


def check(table: pl.DataFrame, schema: TableSchema, *, unique: bool = True) -> None:
    """Check that a frame has the columns and types of the schema, without a copy.

    Raises:
        ValueError: it has other columns or types, has nulls or NaN, or a key is repeated.
    """
    expected = pl.DataFrame(schema.empty()).schema
    if table.schema != expected:
        raise ValueError(f"table {schema.name}: columns {dict(table.schema)}, expected {dict(expected)}")
    for field in schema.columns:
        column = table[field.name]
        if not field.nullable and column.null_count():
            raise ValueError(f"table {schema.name}: column {field.name} holds nulls")
        if column.dtype.is_float() and column.is_nan().any():
            raise ValueError(f"table {schema.name}: column {field.name} holds NaN; 'not judged' is null")
    if unique:
        _check_key(table.to_arrow(), schema)


def _check_names(table: pa.Table, schema: TableSchema) -> None:
    missing = [name for name in schema.columns.names if name not in table.column_names]
    extra = [name for name in table.column_names if name not in schema.columns.names]
    if missing or extra:
        raise ValueError(f"table {schema.name}: missing columns {missing}, unknown columns {extra}")


def _check_values(table: pa.Table, schema: TableSchema) -> None:
    for field in schema.columns:
        column = table.column(field.name)
        if pa.types.is_large_list(field.type) and pc.list_flatten(column).null_count:
            raise ValueError(f"table {schema.name}: column {field.name} holds lists with nulls in them")
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(column)).as_py():
            raise ValueError(f"table {schema.name}: column {field.name} holds NaN; 'not judged' is null")


def _check_key(table: pa.Table, schema: TableSchema) -> None:
    # from_arrow shares the buffers: the text columns are not copied
    keys = pl.from_arrow(table.select(list(schema.key)))
    assert isinstance(keys, pl.DataFrame)
    repeated = keys.filter(keys.is_duplicated())
    if repeated.height:
        raise ValueError(
            f"table {schema.name}: {repeated.height} rows share a key, such as {repeated.row(0, named=True)}"
        )
