"""Which alarms a run asks: those that come with Royale, those of plug-ins, as the settings say."""

from __future__ import annotations

from royale_client.wire.errors import ConfigError
from royale_server.alarms.config import AlarmConfig
from royale_server.alarms.declaration import Alarm
from royale_server.alarms.engine import configured
from royale_server.registry import Registry, close_match_hint


def chosen_alarms(config: AlarmConfig, registry: Registry) -> tuple[list[Alarm], list[str]]:
    """Return the alarms of a run; installed plug-ins are imported only if the settings name them.

    Args:
        config: Settings of the alarms.
        registry: Every alarm by name.

    Returns:
        The alarms with their final patience and severity, and every problem with the settings, each
        starting with its flag.
    """
    alarms = registry.alarms.described()
    problems = []
    for name in config.use:
        try:
            alarm = registry.alarms.get(name)
        except ConfigError as error:
            problems += [f"--alarms.use: {line}" for line in str(error).splitlines()]
            continue
        alarms += [] if alarm in alarms else [alarm]
    known = [alarm.name for alarm in alarms]
    for setting, names in config.named().items():
        flag = f"--alarms.{setting.replace('_', '-')}"
        problems += [
            f"{flag}: there is no alarm {name!r}{close_match_hint(name, known)}; "
            "royale alarms lists them"
            for name in names
            if name not in known
        ]
    return configured(alarms, config), problems
