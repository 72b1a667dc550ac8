"""The suite passes sound peers and fails broken ones, each for the right reason."""

from __future__ import annotations

import contextlib

import pytest

from royale_client.conformance import server_seats
from royale_client.conformance.client_resumes import RESUMES
from royale_client.conformance.client_scenarios import CLIENT_SCENARIOS
from royale_client.conformance.client_seats import SEATS
from royale_client.conformance.client_stage import ClientUnderTest
from royale_client.conformance.listener import Listener
from royale_client.conformance.scenario import Outcome, Settings, play
from royale_client.conformance.server_lies import LIES
from royale_client.conformance.server_refusals import REFUSALS
from royale_client.conformance.server_scenarios import SERVER_SCENARIOS
from royale_client.conformance.server_stage import ServerUnderTest
from royale_client.transport import ServerAddress
from tests.conformance import clients, seated, servers

PATIENT = Settings(timeout_s=10.0, quiet_s=0.03)
IMPATIENT = Settings(timeout_s=0.3, quiet_s=0.3)
"""For peers that are to miss a time limit."""


def graded_server(kind, names=None, settings=PATIENT):
    scenarios = [s for s in SERVER_SCENARIOS if names is None or s.name in names]
    with servers.listening(kind()) as url:
        return play(scenarios, ServerUnderTest(ServerAddress(url=url), settings))


def graded_client(kind, names=None, settings=PATIENT):
    connect_s = 1.0 if settings is IMPATIENT else 30.0
    scenarios = [s for s in CLIENT_SCENARIOS if names is None or s.name in names]
    with contextlib.closing(Listener()) as listener:
        client = ClientUnderTest(listener, clients.starting(kind), settings, connect_s)
        return play(scenarios, client)


def faults_of(results):
    return {r.name: (r.broken, r.sentence) for r in results if r.outcome is Outcome.FAILED}


SEATS_OF_CLIENTS = {scenario.name for scenario in SEATS}
SEATS_OF_SERVERS = {scenario.name for scenario in server_seats.SEATS}


def test_sound_peers_that_seat_and_probe_pass():
    results = graded_client(seated.SoundClient, SEATS_OF_CLIENTS)
    assert faults_of(results) == {}
    assert [r.name for r in results if r.outcome is Outcome.SKIPPED] == ["deals"]
    results = graded_client(seated.SoundJudge, SEATS_OF_CLIENTS)
    assert [r.outcome for r in results] == [Outcome.PASSED] * len(SEATS)
    about_probes = [scenario.name for scenario in server_seats.ASKED_FIRST]
    results = graded_server(seated.AsksFirst, about_probes)
    assert [r.outcome for r in results] == [Outcome.PASSED] * len(about_probes)
    results = graded_server(seated.SeatedServer, SEATS_OF_SERVERS)
    assert [(r.name, r.outcome, r.sentence) for r in results] == [
        (scenario.name, Outcome.PASSED, "") for scenario in server_seats.SEATS
    ]


def test_sound_server_passes():
    results = graded_server(servers.SoundServer)
    assert faults_of(results) == {}
    # It asks nothing, assigns nothing, and was given no token.
    skipped = {r.name for r in results if r.outcome is Outcome.SKIPPED}
    about_probes = {scenario.name for scenario in server_seats.ASKED_FIRST}
    assert skipped == {"token"} | about_probes | SEATS_OF_SERVERS - {"one-seat-each"}


def test_sound_client_passes():
    results = graded_client(clients.SoundClient)
    assert faults_of(results) == {}
    # It has no feature at all, and the suite was given no token.
    skipped = {r.name for r in results if r.outcome is Outcome.SKIPPED}
    features = {"float16", "no-float16", "snapshot", "restart", "restore"}
    others = {scenario.name for scenario in (*RESUMES, *SEATS)}
    assert skipped == {"token"} | features | others


BROKEN_SERVERS = [
    (servers.AnswersAnotherNumber, "turns", ("P34",), "request 2"),
    (servers.SendsText, "turns", ("P3",), "text message"),
    (servers.ShiftsRows, "turns", ("P34",), "in other rows"),
    (servers.ExchangesGroups, "two-groups", ("P34",), "shape"),
    (servers.AnswersInNarrowIntegers, "turns", ("P34",), "int32"),
    (servers.ForgetsWhereActionsStart, "turns", ("P36",), "start included"),
    (servers.IgnoresMasks, "turns", ("P29", "P34"), "legal were"),
    (servers.AnswersAll, "asks", ("P34",), "shape"),
    (servers.SpeaksFirst, "client-speaks-first", ("P19", "P42"), "busy came"),
    (servers.TakesAnything, "no-legal-action", ("P29",), "answered with action"),
    (servers.TakesAnything, "number-again", ("P33",), "answered with action"),
    (servers.TakesAnything, "text-message", ("P3",), "answered with action"),
    (servers.IsSilentAboutFaults, "wrong-dtype", ("P32",), "closed (1008)"),
    (servers.TellsSecrets, "wrong-dtype", ("P24", "P45"), "tells a secret"),
    (servers.TellsTracebacks, "wrong-dtype", ("P45",), "no sentence"),
    (servers.GoesOnAfterFault, "wrong-dtype", ("P45",), "busy after the fault"),
    (servers.GoesOnWithAnybody, "back-as-another", ("P72",), "must begin anew"),
    (servers.ForgetsNumbers, "back-with-all-answers", ("P73",), "last_requests [0]"),
    (servers.GivesAnotherToken, "back-with-all-answers", ("P73",), "another token"),
    (servers.RepeatsItself, "back-for-an-answer", ("P34", "P74"), "action came"),
    (servers.ClosesWithAnotherCode, "wrong-dtype", ("P47",), "closed (1011"),
    (servers.ClosesWithAnotherCode, "early-goodbye", ("P47",), "closed (1011"),
    (seated.AssignsTooFew, "seats", ("P67",), "expected {0: 2"),
    (seated.AssignsTheNext, "seats", ("P67",), "told of the episodes {0: 1"),
    (seated.NamesStrangeBots, "seats", ("P65",), "stranger"),
    (seated.LetsBotsAsk, "bot-asks", ("P68",), "answered with action"),
    (seated.LetsSeatsEndApart, "ends-apart", ("P69",), "answered with action"),
    (seated.DealsUnevenly, "deals", ("P70",), "seeds"),
    (seated.AsksTwiceAtOnce, "probes", ("P77",), "probe before the answer"),
    (seated.WaitsForNoAnswer, "probes", ("P77",), "welcome before the answer"),
    (seated.AsksAnybody, "turns", ("P76",), "answers no probes"),
    (seated.BelievesAnyAnswer, "other-probed-number", ("P78",), "answered with welcome"),
    (seated.BelievesAnyAnswer, "other-probed-shape", ("P78", "P79"), "answered with welcome"),
]


@pytest.mark.parametrize(
    ("kind", "scenario", "clauses", "words"),
    BROKEN_SERVERS,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_broken_server_fails_for_the_right_reason(kind, scenario, clauses, words):
    (fault,) = faults_of(graded_server(kind, [scenario])).values()
    assert fault[0] == clauses
    assert words in fault[1]


def test_server_that_takes_anything_fails_all_that_must_be_refused():
    refusals = {scenario.name for scenario in REFUSALS}
    results = [r for r in graded_server(servers.TakesAnything) if r.name in refusals]
    assert [r.name for r in results if r.outcome is not Outcome.FAILED] == []
    assert len(results) == len(refusals)


@pytest.mark.parametrize(
    ("kind", "scenario", "clauses"),
    [
        (servers.StaysAfterFault, "wrong-dtype", ("P47",)),
        (servers.LeavesOlderConnectionAlone, "newest-connection", ("P75",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_server_that_misses_a_time_limit_fails_for_the_right_reason(kind, scenario, clauses):
    (fault,) = faults_of(graded_server(kind, [scenario], IMPATIENT)).values()
    assert fault[0] == clauses


BROKEN_CLIENTS = [
    (seated.AsksForBots, "seats", ("P68",), "the row of a bot asks"),
    (seated.LeavesSeatsEmpty, "seats", ("P68",), "does not ask"),
    (seated.PlaysOneEpisodeLate, "seats", ("P68",), "environment"),
    (seated.EndsSeatsApart, "seats", ("P69",), "some seats end"),
    (seated.DealsAsItLikes, "deals", ("P70",), "begins otherwise"),
    (seated.SaysNotWhoWon, "deals", ("P70",), "ratios []"),
    (seated.AnswersAnotherProbe, "probes", ("P78",), "layout"),
    (seated.AnswersInAnotherShape, "probes", ("P78", "P79"), "shape (3, 2)"),
    (seated.KnowsEverything, "probes", ("P78",), "nobody knows"),
    (clients.ShiftsRows, "probe", ("P34",), "that of row 1"),
    (clients.ActsTwice, "probe", ("P25", "P33"), "lost or doubled"),
    (clients.MergesEndings, "probe", ("P30",), "expected terminated"),
    (clients.SendsNextEpisodeAsFinal, "probe", ("P30",), "final observation"),
    (clients.ForgetsToReset, "probe", ("P31",), "expected"),
    (clients.SeedsAsItLikes, "probe", ("P24",), "seed"),
    (clients.SendsText, "turns", ("P3",), "text message"),
    (clients.SendsWideObservations, "turns", ("P32",), "float64"),
    (clients.AsksTwice, "one-open-request", ("P33",), "request 2"),
    (clients.CountsFromOne, "numbers-go-on", ("P33",), "request 1"),
    (clients.StepsUnwelcome, "waits-for-welcome", ("P42",), "not welcomed"),
    (clients.LeavesWithoutGoodbye, "stop-finished", ("P43", "P44"), "no goodbye"),
    (clients.SpeaksAfterGoodbye, "stop-finished", ("P42", "P44"), "after the goodbye"),
    (clients.ComesBackWithoutToken, "back-for-answers", ("P72",), "names no session"),
    (clients.BelievesEverything, "number-too-high", ("P34",), "sends step 4"),
]


@pytest.mark.parametrize(
    ("kind", "scenario", "clauses", "words"),
    BROKEN_CLIENTS,
    ids=lambda value: getattr(value, "__name__", None),
)
def test_broken_client_fails_for_the_right_reason(kind, scenario, clauses, words):
    (fault,) = faults_of(graded_client(kind, [scenario])).values()
    assert fault[0] == clauses
    assert words in fault[1]


def test_client_that_believes_everything_fails_all_that_must_not_be_believed():
    lies = [scenario.name for scenario in LIES]
    results = graded_client(clients.BelievesEverything, lies)
    assert [r.name for r in results if r.outcome is not Outcome.FAILED] == []
    assert len(results) == len(lies)


@pytest.mark.parametrize(
    ("kind", "scenario", "clauses"),
    [
        (clients.IgnoresStop, "stop-finished", ("P43", "P44")),
        (clients.ComesBackAfterFault, "fault-when-ready", ("P45",)),
        (clients.StaysAway, "back-for-answers", ("P71",)),
        (clients.HangsOnNonsense, "row-missing", ("P34",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_client_that_misses_a_time_limit_fails_for_the_right_reason(kind, scenario, clauses):
    (fault,) = faults_of(graded_client(kind, [scenario], IMPATIENT)).values()
    assert fault[0] == clauses
