"""Who may open a connection, decided on headers alone."""

from __future__ import annotations

import pytest

from royale_server.endpoint.complaints import MOST_PLACES, Complaints, host_of
from royale_server.endpoint.entry import EntryRules
from royale_server.endpoint.quarantine import MOST_CLIENTS, Quarantine, QuarantinedError

TOKEN = "8s-Kq.2vX_pL"


def rules(**changes) -> EntryRules:
    settings = {"token": None, "host": "127.0.0.1", "allow_host": (), "allow_origin": ()}
    return EntryRules.of(**{**settings, **changes})


def status(judged: EntryRules, **headers: str | list[str]) -> int | None:
    """Judge headers; None is «come in»."""
    values = {k: v if isinstance(v, list) else [v] for k, v in headers.items()}
    refusal = judged.refusal(lambda name: values.get(name, ()))
    return None if refusal is None else refusal.status.value


# --- the name that the server is called by (DNS rebinding) -----------------------------------


@pytest.mark.parametrize(
    "host",
    ["localhost:8000", "LOCALHOST", "127.0.0.1:8000", "127.8.8.8", "[::1]:8000", "127.0.0.1:1"],
)
def test_server_on_loopback_answers_to_loopback_names(host):
    assert status(rules(), host=host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:8000",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@127.0.0.1.evil.example",
        "192.168.0.7",
        "2130706433",
        "",
        "[",
        "[::1",
        "localhost, evil.example",
    ],
)
def test_server_on_loopback_answers_to_no_other_name(host):
    assert status(rules(), host=host) == 403


def test_request_without_a_host_is_refused_on_loopback():
    assert status(rules()) == 403


def test_names_that_were_allowed_and_the_one_listened_on_are_answered_to():
    judged = rules(host="localhost", allow_host=("Trainer.example", "10.0.0.5"))
    for host in ("trainer.example:443", "10.0.0.5", "localhost"):
        assert status(judged, host=host) is None
    assert status(judged, host="other.example") == 403


def test_server_that_others_can_reach_answers_to_any_name_since_it_wants_a_token():
    judged = rules(host="0.0.0.0", token=TOKEN)
    assert status(judged, host="anything", authorization=f"Bearer {TOKEN}") is None
    assert status(judged, host="anything") == 401


# --- the page that calls ---------------------------------------------------------------------


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3000", "x"])
def test_web_pages_from_elsewhere_are_refused(origin):
    assert status(rules(), host="localhost:8000", origin=origin) == 403


def test_web_page_of_the_server_itself_and_pages_that_were_allowed_may_connect():
    judged = rules(allow_origin=("https://Lab.example/",))
    assert status(judged, host="localhost:8000", origin="http://localhost:8000") is None
    assert status(judged, host="localhost:8000", origin="https://lab.example") is None
    assert status(judged, host="localhost:8000", origin="https://lab.example.evil") == 403


# --- the token -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", TOKEN, f"bearer {TOKEN}", f"Bearer {TOKEN[:-1]}", f"Bearer {TOKEN}x",
     "Bearer ä", f"Basic {TOKEN}"],
)  # fmt: skip
def test_wrong_tokens_are_refused(authorization):
    assert status(rules(token=TOKEN), host="localhost", authorization=authorization) == 401


def test_right_token_comes_in():
    assert status(rules(token=TOKEN), host="localhost", authorization=f"Bearer {TOKEN}") is None


def test_rules_and_refusals_never_show_the_token():
    judged = rules(token=TOKEN)
    refusal = judged.refusal(lambda name: ["localhost"] if name == "host" else [])
    assert TOKEN not in repr(judged) + repr(refusal)


@pytest.mark.parametrize("name", ["host", "origin", "authorization"])
def test_header_that_comes_twice_is_refused_whatever_it_says(name):
    assert status(rules(), **{name: ["localhost", "localhost"]}) == 400


# --- what is written down of strangers -------------------------------------------------------


def test_a_place_gets_its_lines_then_one_now_and_then_with_the_number_of_the_others():
    complaints = Complaints(burst=3, every_s=10.0)
    assert [complaints.may_say("a", 0.0) for _ in range(5)] == [0, 0, 0, None, None]
    assert complaints.may_say("b", 0.0) == 0
    assert complaints.may_say("a", 9.0) is None
    assert complaints.may_say("a", 10.0) == 3
    assert complaints.may_say("a", 10.0) is None


def test_many_places_share_a_ration_and_are_not_remembered_for_ever():
    complaints = Complaints(all_burst=50, all_every_s=1e9)
    said = sum(complaints.may_say(f"place {n}", 0.0) is not None for n in range(3 * MOST_PLACES))
    assert said == 50
    assert len(complaints._places) == MOST_PLACES


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("192.0.2.7:5000", "192.0.2.7"),
        ("::1:5000", "::1"),
        ("process 12 of this machine", "this machine"),
        ("this machine", "this machine"),
    ],
)
def test_place_of_an_address_has_no_port(address, host):
    assert host_of(address) == host


# --- quarantine ------------------------------------------------------------------------------


def is_kept_out(quarantine: Quarantine, now: float, name: str = "arm") -> bool:
    try:
        quarantine.check("192.0.2.7", name, now)
    except QuarantinedError:
        return True
    return False


def test_five_faults_within_a_minute_cost_ten_seconds_and_each_further_time_twice_as_many():
    quarantine = Quarantine()
    now = 0.0
    for length_s in (10, 20, 40, 80, 160, 320, 320):
        faults = 0
        while not is_kept_out(quarantine, now):
            quarantine.fault("192.0.2.7", "arm", "contract", now)
            faults += 1
        assert faults <= 5
        assert is_kept_out(quarantine, now + length_s - 0.1)
        assert not is_kept_out(quarantine, now + length_s)
        now += length_s


def test_rare_faults_are_forgiven_and_a_quiet_hour_is_a_new_beginning():
    quarantine = Quarantine()
    for n in range(50):
        quarantine.fault("192.0.2.7", "arm", "contract", 15.1 * n)  # four within a minute
        assert not is_kept_out(quarantine, 15.1 * n)
    for _ in range(5):
        quarantine.fault("192.0.2.7", "arm", "contract", 1000.0)
    assert is_kept_out(quarantine, 1009.0)
    for _ in range(5):
        quarantine.fault("192.0.2.7", "arm", "contract", 5000.0)
    assert is_kept_out(quarantine, 5009.0)
    assert not is_kept_out(quarantine, 5010.0)


def test_other_names_and_other_machines_do_not_suffer():
    quarantine = Quarantine()
    for _ in range(5):
        quarantine.fault("192.0.2.7", "arm", "contract", 0.0)
    quarantine.check("192.0.2.8", "arm", 0.0)
    quarantine.check("192.0.2.7", "leg", 0.0)


@pytest.mark.parametrize("code", ["timeout", "capacity", "internal", "quarantine", "refused"])
def test_bad_luck_is_no_offence(code):
    quarantine = Quarantine()
    for _ in range(50):
        quarantine.fault("192.0.2.7", "arm", code, 0.0)
    assert not is_kept_out(quarantine, 0.0)


def test_clients_are_not_remembered_for_ever():
    quarantine = Quarantine()
    for n in range(2 * MOST_CLIENTS):
        quarantine.fault("192.0.2.7", f"arm-{n}", "contract", 0.0)
    assert len(quarantine._accounts) == MOST_CLIENTS
