"""The settings of a server: limits, batching, access."""

import re
from dataclasses import dataclass

from onehop.errors import SettingsError
from onehop.setting_fields import check_fields, setting


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Limits and access. The defaults assume one machine with many users, some of them hostile."""

    max_body: int = setting(1 << 20, "bytes of a request's body", least=1)
    max_characters: int = setting(50_000, "characters of all texts of a request", least=1)
    max_texts: int = setting(1_000, "texts of a request", least=1)
    max_sentences: int = setting(2_000, "sentences of a request", least=1)
    max_beam: int = setting(16, "width of the beam", least=1)
    max_n_best: int = setting(16, "translations of a sentence", least=1)
    max_queue: int = setting(100_000, "tokens in the queue, above which new requests are refused", least=1)
    max_connections: int = setting(1_000, "connections at a time", least=1)
    batch_tokens: int = setting(1_024, "source tokens of a batch, padding counted", least=1)
    batch_seconds: float = setting(
        0.4, "seconds that a batch may take; half while there are other requests", least=0.001
    )
    patience: float = setting(0.004, "seconds that a sentence waits for others when the engine is idle", least=0.0)
    read_seconds: float = setting(10.0, "seconds for a request's head to arrive, and for its body", least=0.01)
    answer_seconds: float = setting(60.0, "seconds until a request is given up", least=0.01)
    per_minute: int = setting(0, "requests a minute from one key or address; 0: any number", least=0)
    keys_file: str | None = setting(None, "file of hashed API keys")
    origins: tuple[str, ...] = setting((), "origins of pages that may call, or *")
    max_file: int = setting(10 << 20, "bytes of a file to translate", least=1)
    max_unpacked: int = setting(100_000_000, "bytes of a file that is an archive, unpacked", least=1)
    max_file_characters: int = setting(1_000_000, "characters of text in a file", least=1)
    max_files: int = setting(8, "files that are translated at a time", least=0)
    max_kept_files: int = setting(100, "translated files that are kept to be downloaded", least=1)
    file_seconds: float = setting(300.0, "seconds until the translation of a file is given up", least=0.01)
    keep_seconds: float = setting(1_800.0, "seconds that a translated file can be downloaded", least=0.01)
    log_texts: bool = setting(False, "write texts into the access log")

    def __post_init__(self) -> None:
        check_fields("serve", self)
        for origin in self.origins:
            if origin != "*" and not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^/\s]+", origin):
                what = f"--cors {origin} is not an origin."
                raise SettingsError(what, "Write it as https://example.org, without a path or a trailing slash, or *.")
