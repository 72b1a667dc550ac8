"""``python -m royale_server.tools`` is ``royale``."""

from __future__ import annotations

import sys

from royale_server.tools.main import main

sys.exit(main())
