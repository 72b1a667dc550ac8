"""All alarms that come with Royale, in the order in which they are listed."""

from __future__ import annotations

from royale_server.alarms.builtin_learning import LEARNING_ALARMS
from royale_server.alarms.builtin_serving import SERVING_ALARMS
from royale_server.alarms.declaration import Alarm

BUILT_IN_ALARMS: tuple[Alarm, ...] = (*LEARNING_ALARMS, *SERVING_ALARMS)
