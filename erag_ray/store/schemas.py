"""Arrow schemas and keys of tables, and ``conform``, which checks tables at the boundaries of rooms.

Ids are strings. ``rank`` is 1-based and defines the order. A null value means "not judged": it is never 0 and
never NaN. Non-nullable columns have no nulls. The tables of an analysis are defined with it; those of an extra in its
folder.
"""

from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

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
COLUMNS = {
    STRING: (
        "annotator annotator_a annotator_b auxiliary better cell credit dataset doc_id effect error "
        "error_kind ideal job kind majority_answer measure model order output over page_id probability "
        "quantity query_id question reader reason run_a run_b run_id score slice stage statistic text title"
    ),
    VALUE: (
        "agreement ceiling correlation detectable device_seconds difference effect_size high high_adjusted "
        "high_read label lambda low low_adjusted low_read majority_score majority_share mean mean_read "
        "p_adjusted p_value price price_saved sd_questions sd_repeats seconds share share_changed share_high "
        "share_low standard_error standard_error_endless standard_error_once value"
    ),
    RANK: "cutoff deepest depth fact look place rank repeat",
    COUNT: (
        "form num_abstained num_at_limit num_cached_prompt_tokens num_copied num_correct num_distinct "
        "num_documents num_dropped num_empty num_estimated num_incorrect num_marked_up num_misspelt num_needed "
        "num_not_asked num_output_tokens num_outputs num_positive num_prompt_tokens num_queries num_read "
        "num_reader_calls num_readings num_repeats num_requests num_runs num_saved num_truncated_passage_tokens "
        "num_truncated_question_tokens num_unusable num_varied peak_memory_bytes"
    ),
    FLAG: "alone closed_book list settled",
    KEY: "passages_key question_key",
    STRINGS: "answers doc_ids evidence texts titles",
    VALUES: "logprobs",
    COUNTS: "num_answer_tokens",
    ROWS: "gold passages",
}
"""Type -> the columns that have it, in whatever table."""
TYPES = {name: kind for kind, names in COLUMNS.items() for name in names.split()}


@dataclass(frozen=True, kw_only=True)
class TableSchema:
    """Schema of a table: its name, its columns and the key columns that identify a row."""

    name: str
    columns: pa.Schema
    key: tuple[str, ...]

    def empty(self) -> pl.DataFrame:
        # unlike Schema.empty_table it does not import pandas
        return pl.DataFrame(pa.Table.from_batches([], schema=self.columns))


def table_schema(name: str, columns: str, **types: pa.DataType) -> TableSchema:
    """Define a table by the names of its columns, with ``*`` after those of its key and ``?`` after those with nulls.

    ``types`` are of columns that are not in `TYPES`, or are of another type here.
    """
    words = {word.rstrip("*?"): word for word in columns.split()}
    kinds = {**TYPES, **types}
    fields = [pa.field(column, kinds[column], nullable=word.endswith("?")) for column, word in words.items()]
    key = tuple(column for column, word in words.items() if word.endswith("*"))
    return TableSchema(name=name, columns=pa.schema(fields), key=key)


def frame_schema(columns: str, **types: pa.DataType) -> pl.Schema:
    """Return the columns of frames that are no sealed table; arguments as in `table_schema`."""
    return table_schema("", columns, **types).empty().schema


def of_slices(name: str, whole: TableSchema) -> TableSchema:
    """Return the schema of a table by slice, with the columns slice and value added."""
    names = [pa.field(column, STRING, nullable=False) for column in ("slice", "value")]
    return TableSchema(
        name=name, columns=pa.schema([*names, *whole.columns]), key=("slice", "value", *whole.key)
    )


QUERIES = table_schema("queries", "query_id* dataset question answers score")
PROVENANCE = table_schema("provenance", "query_id* rank* page_id? doc_id?")
"""A gold page or a gold document in each row, numbered by question: documents first, best first. A page matches the
``page_id`` of a passage, a document its ``doc_id``; whether a run or a passage file has them does not matter."""
CORPUS = table_schema("corpus", "doc_id* page_id? title text")
RUNS = table_schema("runs", "run_id* query_id* rank* doc_id score?", score=VALUE)
RETRIEVAL_SECONDS = table_schema("retrieval_seconds", "run_id* query_id* seconds")
"""Latency of the retrieval of each list; no row where it is unknown."""
GOLD = table_schema("gold", "query_id* rank* doc_id")
"""The list of gold passages that a reader gets: only passages that have a text."""
GIVEN = table_schema(
    "given", "query_id* run_id* depth* doc_id* output? num_prompt_tokens num_output_tokens seconds?"
)
"""Outputs that exist: of a run with the first ``depth`` documents of its list (0: the list is not known), or, where
``run_id`` is "", with the one document ``doc_id``. A null output is missing; a number of tokens that is not known
is 0; ``seconds`` are what the output took."""
REQUESTS = table_schema("requests", "kind* query_id* doc_ids* model reader question_key passages_key")
"""All requests, by kind; several rows may share a key. ``reader`` is the one whose labels use the responses."""
PENDING = table_schema("pending", "question_key* passages_key* form question titles texts answers")
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
    "model* question_key* passages_key* output? logprobs num_answer_tokens error? error_kind? "
    "num_prompt_tokens num_output_tokens num_truncated_question_tokens num_truncated_passage_tokens",
)
LABELS = table_schema("labels", "reader* score* annotator* query_id* doc_id* label?")
UTILITY = table_schema("utility", "reader* score* run_id* query_id* depth* value?")
DOCUMENT_OUTPUTS = table_schema("document_outputs", "reader* query_id* doc_id* output?")
"""Output of a reader with a single document; null for an error."""
LIST_OUTPUTS = table_schema("list_outputs", "reader* run_id* query_id* depth* output?")
"""Output of a reader with each list of UTILITY, including the reference runs."""
REPEATS = table_schema("repeats", "reader* score* run_id* query_id* depth* repeat* output? value?")
LIST_TOKENS = table_schema("list_tokens", "reader* run_id* query_id* depth* num_prompt_tokens")
"""Length of the prompt with each list of UTILITY, including the reference runs."""
# values of questions at a path of their records, or other properties, to report them separately
SLICES = table_schema("slices", "query_id* slice* value", value=STRING)
CLUSTERS = table_schema("clusters", "query_id* cluster?", cluster=STRING)
"""Questions with one value belong together, such as those about one page; null: the question is by itself."""
# gold answers of a question that each say another thing, with their accepted forms
FACTS = table_schema("facts", "query_id* fact* answers")
# score of the reader's output with a single document, for one fact
FACT_LABELS = table_schema("fact_labels", "reader* score* query_id* doc_id* fact* label?")
# outputs of a reader by kind of list (depth 0: no documents): counts, and share and score of the majority answer
OUTPUTS = table_schema(
    "outputs",
    "dataset* reader* kind* depth* num_outputs num_distinct num_empty num_at_limit? num_copied "
    "num_misspelt num_marked_up majority_answer majority_share majority_score?",
)
COMMON_OUTPUTS = table_schema(
    "common_outputs", "dataset* reader* kind* depth* place* output num_outputs share"
)
# verdicts of a judge on a reader's outputs, by kind of list (depth 0: no documents): counts
JUDGEMENTS = table_schema(
    "judgements",
    "dataset* reader* kind* depth* num_outputs num_correct num_incorrect num_abstained num_unusable "
    "num_not_asked",
)
COSTS = table_schema(
    "costs",
    "stage* job* model* num_requests num_reader_calls num_prompt_tokens num_output_tokens "
    "num_cached_prompt_tokens price? seconds device_seconds peak_memory_bytes",
)
"""A row for each run of a stage (job) and each model, killed runs included. Only the last run has num_requests, the
others have 0, since they had the same requests: sums over rows are right."""

TABLES = {table.name: table for table in list(globals().values()) if isinstance(table, TableSchema)}
"""All tables defined above."""

OF_OUTPUTS = (OUTPUTS, COMMON_OUTPUTS, JUDGEMENTS)
OF_STAGES = (REQUESTS, *OF_OUTPUTS, COSTS)
"""Tables that each stage with models seals in a folder of its own."""


def conform(table: pa.Table | pl.DataFrame, schema: TableSchema, *, unique: bool = True) -> pa.Table:
    """Return the table with the columns of the schema, in its order and types.

    With ``unique`` also check that keys are unique (off for open stores, where it needs a full read).

    Raises:
        ValueError: a column is missing or unknown, cannot be cast, has nulls, NaN or infinity, or a key is repeated.
    """
    arrow = table.to_arrow() if isinstance(table, pl.DataFrame) else table
    missing = [name for name in schema.columns.names if name not in arrow.column_names]
    extra = [name for name in arrow.column_names if name not in schema.columns.names]
    if missing or extra:
        raise ValueError(f"table {schema.name}: missing columns {missing}, unknown columns {extra}")
    try:
        result = arrow.select(schema.columns.names).cast(schema.columns)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
        raise ValueError(f"table {schema.name}: {error}") from error
    for field in schema.columns:
        column, where = result.column(field.name), f"table {schema.name}: column {field.name}"
        if pa.types.is_large_list(field.type) and pc.list_flatten(column).null_count:
            raise ValueError(f"{where} holds lists with nulls in them")
        if pa.types.is_floating(field.type) and pc.any(pc.invert(pc.is_finite(column))).as_py():
            raise ValueError(f"{where} holds NaN or infinity; 'not judged' is null")
    if unique:
        keys = pl.DataFrame(result.select(list(schema.key)))
        repeated = keys.filter(keys.is_duplicated())
        if repeated.height:
            example = repeated.row(0, named=True)
            raise ValueError(f"table {schema.name}: {repeated.height} rows share a key, such as {example}")
    return result
