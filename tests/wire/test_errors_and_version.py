"""Error sentences, fault codes, protocol versions and limits."""

from __future__ import annotations

import pytest

from royale_client.wire import errors
from royale_client.wire.errors import (
    FAULT_CODES,
    MAX_SENTENCE_LENGTH,
    ConfigError,
    ContractError,
    ProtocolError,
    RoyaleError,
    VersionMismatchError,
    brief,
)
from royale_client.wire.limits import Limits
from royale_client.wire.version import PROTOCOL_MAX, PROTOCOL_MIN, negotiate


def kinds() -> list[type[ProtocolError]]:
    return [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, ProtocolError)
    ]


def test_a_sentence_says_what_where_got_expected_and_remedy() -> None:
    error = ContractError(
        "too few rows", where="step 3", got="7 rows", expected="8", remedy="send all rows"
    )
    assert str(error) == "step 3: too few rows; got 7 rows, expected 8; send all rows"


def test_facts_left_out_leave_no_gap() -> None:
    assert str(ContractError("too few rows")) == "too few rows"
    assert str(ContractError("too few rows", expected="8")) == "too few rows; expected 8"


def test_a_sentence_is_bounded_whatever_the_peer_sent() -> None:
    error = ContractError("x" * 10_000, got=brief("y" * 10_000))
    assert len(error.sentence) == MAX_SENTENCE_LENGTH
    assert len(brief(["z" * 1000] * 1000)) < 1000


def test_every_kind_of_protocol_error_has_a_fault_code() -> None:
    assert len(kinds()) == 7
    for kind in kinds():
        assert kind.code in FAULT_CODES


def test_only_faults_that_time_can_heal_invite_a_retry() -> None:
    assert {code for code, entry in FAULT_CODES.items() if entry.retry} == {
        "timeout",
        "capacity",
        "quarantine",
        "internal",
    }


def test_one_root_catches_everything_and_config_errors_are_value_errors() -> None:
    assert issubclass(ProtocolError, RoyaleError)
    assert issubclass(ConfigError, RoyaleError)
    assert issubclass(ConfigError, ValueError)


@pytest.mark.parametrize(("low", "high"), [(1, 1), (1, 9), (0, 1), (-5, 2)])
def test_the_newest_common_version_is_used(low: int, high: int) -> None:
    assert negotiate(low, high) == min(high, PROTOCOL_MAX)


@pytest.mark.parametrize(
    ("low", "high", "remedy"),
    [
        (0, 0, "upgrade the client"),
        (2, 3, "upgrade the server"),
        (2, 1, "[oldest, newest]"),
        (-9, -1, "upgrade the client"),
    ],
)
def test_ranges_that_do_not_meet_name_both_and_the_side_to_upgrade(
    low: int, high: int, remedy: str
) -> None:
    with pytest.raises(VersionMismatchError) as caught:
        negotiate(low, high)
    assert f"{low} to {high}" in caught.value.sentence
    assert f"{PROTOCOL_MIN} to {PROTOCOL_MAX}" in caught.value.sentence
    assert remedy in caught.value.remedy


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "64"])
def test_limits_that_refuse_everything_are_refused(value: object) -> None:
    with pytest.raises(ConfigError, match="max_message_bytes"):
        Limits(max_message_bytes=value)  # type: ignore[arg-type]


def test_limits_are_a_plain_map_for_the_welcome() -> None:
    data = Limits().to_data()
    assert data["max_message_bytes"] == 64 * 1024 * 1024
    assert all(type(value) is int for value in data.values())
