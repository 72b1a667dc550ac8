"""``python -m royale_server`` is ``royale-server``."""

from __future__ import annotations

import sys

from royale_server.cli import main

sys.exit(main())
