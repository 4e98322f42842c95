"""The environment of a Ray that starts fast and says nothing, for tests."""

ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DATA_PARQUET_FOOTER_NUM_ACTORS": "1",
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_DATA_EXECUTION_NO_PROGRESS_TIMEOUT_S": "90",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "TOKENIZERS_PARALLELISM": "false",
}
