"""Runs our commands in forks of one process that has imported torch already.

The pages show a dozen servers. Importing torch for each would take most of the time of these tests;
here one process imports everything, and a command is a fork of it with its own arguments,
directory, environment and standard streams. ``request`` is what stands on the PATH in place of the
real commands.

    python fork_server.py serve SOCKET
    python fork_server.py request PROGRAM ARGUMENTS…
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOCKET, ADDRESS, FLAGS, DRY_RUN = (
    f"ROYALE_DOCS_{name}" for name in ("SOCKET", "ADDRESS", "FLAGS", "DRY_RUN")
)
SERVER, CLIENT, PYTHON = "royale-server", "royale-env-client", "python"
IMPORTED_ONCE = (
    "gymnasium.vector",
    "torch._dynamo",  # what the first optimizer of a process imports
    "algorithms.policies.mlp",
    "algorithms.ppo.learner",
    "royale_client.cli",
    "royale_client.serve",
    "royale_server.app",
    "royale_server.cli",
    "royale_server.inline",
)
LARGEST_REQUEST = 1 << 20
URL_OF_THE_PAGES = "ws://127.0.0.1:8000"


# -- the process that forks --------------------------------------------------------------------


def serve(path: str) -> None:
    """Import what commands need, listen on a Unix socket, and fork for every request."""
    sys.path[0] = str(ROOT)
    for module in IMPORTED_ONCE:
        importlib.import_module(module)

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks: they answer
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                _answer(connection)
            connection.close()


def _answer(connection: socket.socket) -> None:
    """Be the command of one request, send its exit code, and end."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, descriptors, _, _ = socket.recv_fds(connection, LARGEST_REQUEST, 3)
    request = json.loads(data)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    code = _run(request["program"], request["arguments"])
    sys.stdout.flush()
    sys.stderr.flush()
    connection.sendall(str(code).encode())
    os._exit(code)


def _run(program: str, arguments: list[str]) -> int:
    """Run a command as its console script would, and return its exit code."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:0] = paths
    sys.argv = [program, *arguments]
    try:
        return _main(program, arguments)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1


def _main(program: str, arguments: list[str]) -> int:
    import royale_client.cli
    import royale_client.envs.registry
    import royale_server.cli

    if program == SERVER:
        return int(royale_server.cli.main(arguments))
    if program == CLIENT and os.environ.get(DRY_RUN):
        provider = royale_client.envs.registry.find_provider(arguments[0])
        royale_client.cli.parse_flags(provider, arguments[1:])
        return 0
    if program == CLIENT:
        return royale_client.cli.main(arguments)
    sys.argv = arguments
    sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
    runpy.run_path(arguments[0], run_name="__main__")
    return 0


# -- what stands in place of the commands ----------------------------------------------------------


def request(program: str, arguments: list[str]) -> int:
    """Have a command run in a fork, and return its exit code."""
    content = {
        "program": program,
        "arguments": _adapted(program, arguments),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ[SOCKET])
        socket.send_fds(connection, [json.dumps(content).encode()], [0, 1, 2])
        return int(connection.recv(64) or b"1")


def _adapted(program: str, arguments: list[str]) -> list[str]:
    """Make a command of a page small, and lead it to the server of the test."""
    address = os.environ.get(ADDRESS)
    if program == SERVER:
        more = ["--dry-run"] if os.environ.get(DRY_RUN) else os.environ.get(FLAGS, "").split()
        if address:
            more += ["--port", "0", "--address-file", address]
        return [*arguments, *more]
    if not address:
        return arguments
    url = f"ws://{Path(address).read_text('utf-8').strip()}"
    return [*arguments, "--server-url", url] if program == CLIENT else [*arguments, url]


def main(arguments: list[str]) -> int:
    """Serve, or request."""
    if arguments[0] == "serve":
        with contextlib.suppress(KeyboardInterrupt):
            serve(arguments[1])
        return 0
    return request(arguments[1], arguments[2:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
