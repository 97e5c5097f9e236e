"""The translator over HTTP: LibreTranslate's API and our own, batches across requests, limits, a page.

It knows nothing of training or converters. Texts go through `pipelines`, as on the command line.
"""

__all__ = [
    "access_log",
    "answers",
    "app",
    "auth",
    "choice",
    "explore",
    "file_store",
    "files",
    "joining_lane",
    "libretranslate",
    "metrics",
    "openapi",
    "pivot",
    "problems",
    "rate_limit",
    "run",
    "scheduler",
    "schemas",
    "service",
    "settings",
    "slow_clients",
    "start",
    "stream",
    "temporary",
]
