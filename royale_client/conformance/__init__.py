"""The conformance suite: grades any client and any server of the wire protocol.

``python -m royale_client.conformance server URL`` talks to a running server as a scripted client;
``python -m royale_client.conformance client`` listens as a scripted server. What is legal is read
from `royale_client.wire`; the suite adds what to say, and what must come back. It never imports
torch and takes no part in a run.
"""
