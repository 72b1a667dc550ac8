"""What is watched in every conversation, whatever its scenario is about, by clause."""

from __future__ import annotations

WATCHED_OF_CLIENTS = {
    "P3": "every message is binary",
    "P4": "messages have a header, padding and a tail",
    "P5": "headers are strict msgpack maps",
    "P6": "all keys are there, and the type is known",
    "P10": "arrays lie where the table says",
    "P19": "the hello comes first and is one that a server can serve",
    "P32": "steps fit the hello to the type and shape",
    "P33": "requests are numbered without a gap, one at a time",
    "P42": "only legal messages come, in their states",
    "P44": "goodbye is the last message, and comes when the server stops",
}
"""What is watched in every conversation with a client."""
WATCHED_OF_PROBES = {
    "P24": "episodes begin from the seeds of the welcome",
    "P25": "no step is lost or done twice, no row shifts",
    "P28": "a row asks if its episode goes on",
    "P30": "endings and final observations are those of the ended episode",
    "P31": "a row that asks again shows the first observation of a new episode",
    "P34": "each action is carried out in its row",
}
"""What is watched as well if the client runs the probe."""
WATCHED_OF_SERVERS = {
    "P3": "every message is binary",
    "P4": "messages have a header, padding and a tail",
    "P5": "headers are strict msgpack maps",
    "P6": "all keys are there, and the type is known",
    "P10": "arrays lie where the table says",
    "P24": "the welcome answers the hello",
    "P34": "each request is answered once, with its number, row by row",
    "P36": "actions lie in their space",
    "P37": "a client that waits is told why at least every 5 s",
    "P42": "only legal messages come, in their states",
    "P45": "a fault is one sentence, without a traceback or a secret, and the last message",
    "P47": "the connection is closed with the right code",
}
"""What is watched in every conversation with a server."""
