"""The request loop: one JSON request a line on stdin, replies on the pipe that was stdout.

Nothing but replies can reach that pipe: file descriptor 1 is pointed at stderr before torch is imported. A thread
watches stdin, so that the worker ends at once when its keeper is gone, also in the middle of a trace.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import queue
import sys
import threading
from functools import cache
from typing import Any


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    requests: queue.Queue[str] = queue.Queue()
    stdin = os.fdopen(os.dup(0), "r", encoding="utf-8")

    def read() -> None:
        for line in stdin:
            requests.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()

    def reply(**message: Any) -> None:
        replies.write(json.dumps({"id": mark, **message}) + "\n")
        replies.flush()

    from opscope_schemas.errors import OpscopeError

    while True:
        request = json.loads(requests.get())
        mark = request["id"]
        try:
            reply(result=_answer(request, lambda text: reply(progress=text)))
        except OpscopeError as error:
            reply(error=_described(error))
        except MemoryError:
            reply(error={"type": "WorkerError", "message": "The trace needs more memory than its limit allows."})
        except Exception as error:  # a bug of ours: the keeper reports it as one
            import traceback

            traceback.print_exc(file=sys.stderr)
            reply(
                error={"type": "TraceError", "message": f"Tracing failed unexpectedly: {type(error).__name__}: {error}"}
            )


@cache
def _import() -> None:
    """What every trace needs, without the collector, which would walk the libraries' objects again and again: they stay."""
    gc.disable()
    try:
        import opscope_tools.trace.worker.attempts  # noqa: F401
    finally:
        gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)  # a trace makes objects by the hundred thousand, and few cycles


def _answer(request: dict[str, Any], say: Any) -> Any:
    kind, payload = request["kind"], request["payload"]
    if kind == "ping":
        return "pong"
    say("importing torch and transformers")
    _demand("torch", "transformers")
    _import()
    from opscope_tools.trace.protocol import InspectRequest, TraceRequest
    from opscope_tools.trace.worker.attempts import trace

    if kind == "warm":
        return "ready"
    if kind == "trace":
        return trace(TraceRequest.model_validate(payload), say).model_dump(mode="json")
    if kind == "configure":
        from opscope_tools.trace.worker.models import configured_sizes

        return configured_sizes(InspectRequest.model_validate(payload).model)
    if kind == "inspect":
        from opscope_tools.trace.worker.inspection import inspect_model

        return inspect_model(InspectRequest.model_validate(payload)).model_dump(mode="json")
    raise ValueError(f"unknown request {kind!r}")


def _demand(*packages: str) -> None:
    """Raises `WorkerError` where this interpreter lacks one of the packages that every trace stands on."""
    from opscope_schemas.errors import WorkerError

    absent = [package for package in packages if importlib.util.find_spec(package) is None]
    if absent:
        raise WorkerError(
            f"Tracing runs the model's code, and {sys.executable} has no {' and no '.join(absent)}.",
            next_step=f"Install {' and '.join(absent)} there, or name an interpreter that has both torch and transformers "
            "with --python PATH. What reads source alone (classes, configurations, maps, kernels, checks) needs neither.",
        )


def _described(error: Any) -> dict[str, Any]:
    return {
        "type": type(error).__name__, "message": error.message, "next_step": error.next_step, "location": error.location
    }  # fmt: skip


if __name__ == "__main__":
    main()
