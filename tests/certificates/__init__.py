"""Certificates of the tests, for localhost and the loopback addresses; the key protects nothing.

Made with ``openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500
-addext subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1``. ``other_cert.pem`` has another key.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
CERT = FOLDER / "cert.pem"
KEY = FOLDER / "key.pem"
OTHER_CERT = FOLDER / "other_cert.pem"
ENCRYPTED_KEY = FOLDER / "encrypted_key.pem"
