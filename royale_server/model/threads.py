"""How many threads a matrix product may use: torch's and those of NumPy's linear algebra."""

from __future__ import annotations

import threadpoolctl
import torch


def limit_threads(count: int) -> None:
    """Let no single operation of this process use more threads than this.

    Small products on several threads are many times slower than on one, more so beside clients on
    the same machine; and how sums are split must not depend on the number of cores.
    """
    torch.set_num_threads(count)
    threadpoolctl.threadpool_limits(count, user_api="blas")
