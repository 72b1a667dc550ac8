"""Sizes beyond which a message or a session is refused. Data only; nobody is measured here."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

from royale_client.wire.errors import ConfigError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Upper bounds on what one peer accepts from the other."""

    max_message_bytes: int = 64 * MIB
    """Bytes of one message, header and arrays together."""
    max_header_bytes: int = MIB // 4
    """Bytes of the header map. Small on purpose: a header costs up to 80 times its size decoded."""
    max_header_nesting: int = 40
    """Depth of maps and lists in a header; a space of 16 nested levels takes 34."""
    max_arrays: int = 1024
    """Arrays in one message."""
    max_slots_per_session: int = 8192
    """Slots of one client."""
    max_groups: int = 2
    """Groups of one client."""
    max_name_length: int = 128
    """Characters of a name: client, environment, key of a space, metric, feature."""
    max_text_length: int = 4096
    """Characters of a free text: fault sentence, exception, log line."""
    max_episode_metrics: int = 256
    """Episode metrics one client may declare."""
    max_count_length: int = 1024
    """Entries of a count vector in an episode record."""
    max_log_records: int = 256
    """Records in one ``log`` message."""

    def __post_init__(self) -> None:
        """Refuse limits that would refuse everything.

        Raises:
            ConfigError: A limit is not a positive integer.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or value < 1:
                raise ConfigError(f"limit {field.name}: got {value!r}, expected an integer >= 1")

    def to_data(self) -> dict[str, int]:
        """Return the limits as a plain map, as the ``welcome`` carries them."""
        return asdict(self)
