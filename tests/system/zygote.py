"""Starts our commands fast: forks of one process that has imported what they need.

These tests start dozens of servers, and importing torch takes seconds of processor time. Here one
process imports everything, and a command is a fork of it with its own arguments, environment,
directory and output: its signals, sockets and exit codes are real.

    python zygote.py DESCRIPTOR      # of a Unix socket: one JSON object and two descriptors a start

Of the two descriptors, one takes the command's output; over the other its process number is told at
once, and its exit code (negative: the signal that ended it) when it ends.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import signal
import socket
import struct
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NUMBER = struct.Struct("<i")
LARGEST_REQUEST = 1 << 16
PR_SET_PDEATHSIG = 1

SERVER, CLIENT = "royale-server", "royale-env-client"


def serve(control: socket.socket) -> None:
    """Fork a command for every request; return in the fork, with its request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the forks report for themselves
    while True:
        data, descriptors, _, _ = socket.recv_fds(control, LARGEST_REQUEST, 2)
        if not data:
            os._exit(0)
        output, report = descriptors
        if os.fork() == 0:
            control.close()
            watch_over(json.loads(data), output, report)
            return
        os.close(output)
        os.close(report)


def watch_over(request: dict[str, Any], output: int, report: int) -> None:
    """Fork the command and report what becomes of it; return in the command."""
    die_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(report)
        become(request, output)
        return
    os.close(output)
    os.write(report, NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(report, NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def become(request: dict[str, Any], output: int) -> None:
    """Turn this process into the one that was asked for."""
    die_with_parent()
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, descriptor in enumerate((null, output, output)):
        os.dup2(descriptor, target)
    os.close(null)
    os.close(output)
    os.chdir(request["directory"])
    os.environ.update(request["environment"])
    sys.argv = [request["program"], *request["arguments"]]


def die_with_parent() -> None:
    """Have the kernel end this process when its parent ends, however that happens."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def import_everything() -> None:
    """Import what servers and clients import in their lives, by using it where they are lazy."""
    import gymnasium.vector
    import torch._dynamo
    import websockets.asyncio.server
    import websockets.sync.client

    import algorithms.dummy.learner
    import algorithms.policies.dummy
    import algorithms.policies.mlp
    import algorithms.ppo.learner
    import royale_client.cli
    import royale_client.serve
    import royale_server.app
    import royale_server.cli
    import royale_server.inline
    from royale_client.envs.gymnasium_envs import PROVIDER, GymConfig, make_driver
    from royale_server.builtin_components import builtin_registry

    make_driver(GymConfig(env_id="CartPole-v1"), 1).close()
    royale_client.cli.parse_flags(PROVIDER, ["--env-id", "CartPole-v1"])
    for pair in ("mlp-policy default ppo classic", "dummy-policy default dummy default"):
        royale_server.cli.read_command(pair.split(), builtin_registry())


def run() -> int:
    """Run the command that this process became, and return its exit code."""
    import royale_client.cli
    import royale_server.cli

    program, *arguments = sys.argv
    command = {SERVER: royale_server.cli.main, CLIENT: royale_client.cli.main}[program]
    try:
        return int(command(arguments))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # a boundary: what would end the interpreter ends this process
        traceback.print_exc()
        return 1


def leave(code: int) -> None:
    """End as an interpreter does, but for taking itself apart.

    That would touch, and so copy, every page that this process shares with the others.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads, as it would
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    """Serve; in a fork, run its command and end with its exit code."""
    sys.path[0] = str(ROOT)
    import_everything()
    gc.freeze()  # a fork that collects garbage would copy every page it looks at
    with socket.socket(fileno=int(sys.argv[1])) as control:
        serve(control)
    leave(run())


if __name__ == "__main__":
    main()
