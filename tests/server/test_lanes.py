"""Lanes: slots, queues, deadlines, one computation for all who ask, what is kept beside all of it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opscope_cache.store import MemoryStore
from opscope_schemas.errors import BusyError, CancelledError, DeadlineError, SourceError
from opscope_server.settings import Settings
from opscope_server.work import Work
from opscope_tools.running.tool import ToolContext
from opscope_tools.running.workspace import Workspace

#: longer than any test takes: what waits for it waits for an event in truth
LONG = 60.0


class Gate:
    """A computation that says when it has begun, and goes on when it is told; it looks at its context or does not."""

    def __init__(self, *, looks: bool = True) -> None:
        self.begun = threading.Semaphore(0)
        self.opened = threading.Event()
        self.ended = threading.Semaphore(0)
        self.count = 0
        self.looked = 0
        self._looks = looks

    def __call__(self, context: ToolContext) -> str:
        self.count += 1
        self.begun.release()
        try:
            while not self.opened.wait(0.005):
                if self._looks:
                    context.checkpoint()
                    self.looked += 1
            return "through"
        finally:
            self.ended.release()

    async def has_begun(self) -> None:
        assert await anyio.to_thread.run_sync(self.begun.acquire, True, LONG)

    async def goes_on(self) -> None:
        """It looks at its context again and is not told to stop."""
        before = self.looked
        while self.looked < before + 2:
            assert not self.ended.acquire(blocking=False), "it was stopped"
            await anyio.sleep(0.001)

    async def has_ended(self) -> None:
        assert await anyio.to_thread.run_sync(self.ended.acquire, True, LONG)


def spin(context: ToolContext) -> str:
    """A loop that never looks at its context."""
    del context
    SPINNING.set()
    number = 0
    try:
        while True:
            number += 1
    finally:
        SPUN.set()


SPINNING, SPUN = threading.Event(), threading.Event()


def run(story: Callable[[Work], Awaitable[Any]], tmp_path: Path, **settings: Any) -> Any:
    """Tell the story to a `Work` of one slot a lane; nothing of it runs on afterwards."""
    given = {"workers": 1, "queue": 1, "grace": 0.05, "heartbeat": LONG, **settings}

    async def main() -> Any:
        work = Work(Workspace(repositories={}, output=tmp_path, store=MemoryStore()), Settings(**given))
        try:
            with anyio.fail_after(LONG):
                return await story(work)
        finally:
            work.stop(0)

    return anyio.run(main)


async def failure(call: Awaitable[Any]) -> BaseException:
    try:
        await call
    except Exception as error:
        return error
    raise AssertionError("the call was answered")


def test_one_kind_of_call_never_waits_for_another_nor_does_what_is_kept(tmp_path: Path) -> None:
    async def story(work: Work) -> list[str]:
        gate = Gate()
        async with anyio.create_task_group() as group:
            for lane in ("static", "compile"):
                group.start_soon(work.run, lane, gate)
                await gate.has_begun()
            found = [await work.run("trace", lambda _: "traced"), await work.look(lambda: "kept")]
            gate.opened.set()
        return found

    assert run(story, tmp_path) == ["traced", "kept"]


def test_beyond_the_queue_a_call_is_told_at_once_that_opscope_is_busy(tmp_path: Path) -> None:
    async def story(work: Work) -> BaseException:
        gate = Gate()
        async with anyio.create_task_group() as group:
            group.start_soon(work.run, "static", gate)
            await gate.has_begun()
            group.start_soon(work.run, "static", lambda _: "second")
            await anyio.wait_all_tasks_blocked()
            refused = await failure(work.run("static", lambda _: "third"))
            gate.opened.set()
        return refused

    refused = run(story, tmp_path)
    assert isinstance(refused, BusyError)
    assert str(refused) == (
        "opscope is busy with questions about source: 1 running, 1 waiting; try again in about 1 s."
    )  # fmt: skip


def test_a_call_that_waits_can_be_cancelled_and_makes_room(tmp_path: Path) -> None:
    async def story(work: Work) -> str:
        gate = Gate()
        never = Gate()
        async with anyio.create_task_group() as group:
            group.start_soon(work.run, "static", gate)
            await gate.has_begun()
            async with anyio.create_task_group() as waiting:
                waiting.start_soon(work.run, "static", never)
                await anyio.wait_all_tasks_blocked()
                waiting.cancel_scope.cancel()
            async with anyio.create_task_group() as next_one:
                answer: list[str] = []

                async def ask() -> None:
                    answer.append(await work.run("static", lambda _: "answered"))

                next_one.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                gate.opened.set()
        assert never.count == 0
        return answer[0]

    assert run(story, tmp_path) == "answered"


def test_the_deadline_is_kept_in_the_queue_too_and_says_what_to_do(tmp_path: Path) -> None:
    async def story(work: Work) -> tuple[BaseException, BaseException]:
        begun, held = threading.Event(), threading.Event()
        found: list[BaseException] = []

        def deaf(context: ToolContext) -> None:
            del context
            begun.set()
            held.wait(LONG)  # in C: its slot is free only when the story says so

        async def first() -> None:
            found.append(await failure(work.run("static", deaf)))

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(first)
                assert await anyio.to_thread.run_sync(begun.wait, LONG)
                waited = await failure(work.run("static", lambda _: "second"))
        finally:
            held.set()
        return found[0], waited

    ran, waited = run(story, tmp_path, deadlines={"static": 0.5}, grace=LONG)
    assert isinstance(ran, DeadlineError)
    assert str(ran) == (
        "The call took longer, and questions about source may take 0.5 s; it was stopped. Ask for less (a narrower "
        "target, one repository, fewer rows), or have OPSCOPE_DEADLINE_STATIC raised."
    )
    assert isinstance(waited, DeadlineError)
    assert str(waited).startswith("The call waited ")


def test_a_tool_that_looks_is_stopped_at_the_deadline(tmp_path: Path) -> None:
    async def story(work: Work) -> None:
        gate = Gate()
        assert isinstance(await failure(work.run("static", gate)), DeadlineError)
        await gate.has_ended()
        assert await work.run("static", lambda _: "next") == "next"

    run(story, tmp_path, deadlines={"static": 0.05}, grace=LONG)


def test_a_loop_that_never_looks_is_broken_off_and_its_finally_runs(tmp_path: Path) -> None:
    SPUN.clear()

    async def story(work: Work) -> str:
        assert isinstance(await failure(work.run("static", spin)), DeadlineError)
        assert await anyio.to_thread.run_sync(SPUN.wait, LONG)
        return await work.run("compile", lambda _: "next")

    assert run(story, tmp_path, deadlines={"static": 0.05}) == "next"


def test_a_thread_that_cannot_be_stopped_gives_its_slot_back_until_too_many_are_stuck(tmp_path: Path) -> None:
    async def story(work: Work) -> BaseException:
        held = threading.Event()
        begun = threading.Semaphore(0)

        def deaf(context: ToolContext) -> None:
            del context
            begun.release()
            held.wait(LONG)  # in C: nothing can be raised here

        try:
            for _ in range(2):
                assert isinstance(await failure(work.run("static", deaf)), DeadlineError)
                assert await anyio.to_thread.run_sync(begun.acquire, True, LONG)
            while not isinstance(refused := await failure(work.run("static", deaf)), BusyError):
                pass  # the second one's grace is not over yet: this call waited for its slot
            return refused
        finally:
            held.set()

    assert str(run(story, tmp_path, deadlines={"static": 0.3}, grace=0.01)).startswith(
        "opscope is busy: 2 questions about source have not stopped at their deadline."
    )


def test_two_callers_of_the_same_result_share_one_computation(tmp_path: Path) -> None:
    async def story(work: Work) -> tuple[list[str], int]:
        gate = Gate()
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await work.run("static", gate, key="same"))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
            await gate.has_begun()
            await anyio.wait_all_tasks_blocked()
            gate.opened.set()
        return answers, gate.count

    assert run(story, tmp_path) == (["through"] * 3, 1)


def test_cancelling_one_of_two_callers_leaves_the_other_its_answer_and_cancelling_both_stops_it(tmp_path: Path) -> None:
    async def story(work: Work) -> list[str]:
        gate = Gate()
        answers: list[str] = []

        async def ask() -> None:
            answers.append(await work.run("static", gate, key="same"))

        async with anyio.create_task_group() as stays:
            async with anyio.create_task_group() as leaves:
                leaves.start_soon(ask)
                await gate.has_begun()
                stays.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                leaves.cancel_scope.cancel()
            await gate.goes_on()
            gate.opened.set()
        gate.opened.clear()
        async with anyio.create_task_group() as both:
            both.start_soon(ask)
            both.start_soon(ask)
            await gate.has_ended()  # the first round
            await gate.has_begun()
            both.cancel_scope.cancel()
        await gate.has_ended()
        return answers

    assert run(story, tmp_path, grace=LONG) == ["through"]


def test_what_a_shared_computation_raises_reaches_every_caller(tmp_path: Path) -> None:
    def broken(context: ToolContext) -> None:
        del context
        raise SourceError("The class has no forward.")

    async def story(work: Work) -> list[str]:
        said: list[str] = []

        async def ask() -> None:
            said.append(str(await failure(work.run("static", broken, key="same"))))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            group.start_soon(ask)
        return said

    assert run(story, tmp_path) == ["The class has no forward."] * 2


@pytest.mark.parametrize("what", ["runs", "waits", "says"])
def test_a_caller_that_hears_nothing_hears_that_its_call_goes_on(tmp_path: Path, what: str) -> None:
    heard: list[str] = []
    progress: list[float] = []

    async def story(work: Work) -> None:
        gate, enough = Gate(), anyio.Event()

        async def report(done: float, total: float | None, message: str) -> None:
            assert total == (5 if what == "says" else None)
            heard.append(message.partition(" (")[0])
            progress.append(done)
            if len(heard) >= 4:
                enough.set()

        def says(context: ToolContext) -> str:
            context.progress(2, 5, "reading")
            return gate(context)

        async with anyio.create_task_group() as group:
            if what == "waits":
                group.start_soon(work.run, "static", gate)
                await gate.has_begun()
                group.start_soon(work.run, "static", gate)
                await anyio.wait_all_tasks_blocked()
            group.start_soon(work.run, "static", says if what == "says" else gate, report)
            await enough.wait()
            gate.opened.set()
        told = len(heard)
        assert await work.run("static", lambda _: "after") == "after"
        assert len(heard) == told, "it goes on after the call has ended"

    run(story, tmp_path, heartbeat=0.02, queue=2)
    assert set(heard) == {{"runs": "working", "waits": "waiting for a slot, 1 before you", "says": "reading"}[what]}
    assert progress == sorted(set(progress)), "progress has to grow"


def test_a_slow_look_at_what_is_kept_is_told_too_and_has_a_deadline(tmp_path: Path) -> None:
    async def story(work: Work) -> str:
        opened, heard = threading.Event(), []

        async def report(done: float, total: float | None, message: str) -> None:
            del done, total
            heard.append(message)
            if len(heard) == 2:
                opened.set()

        assert await work.look(lambda: opened.wait(LONG), report)
        opened.clear()
        try:
            refused = await failure(work.look(lambda: opened.wait(LONG)))
        finally:
            opened.set()
        assert isinstance(refused, DeadlineError)
        return str(heard[0])

    found = run(story, tmp_path, heartbeat=0.02, deadlines={"static": 0.3})
    assert found.startswith("looking for a kept answer (0 s)")


def test_stopping_ends_everything_and_says_whether_it_has(tmp_path: Path) -> None:
    async def story(work: Work) -> bool:
        gate = Gate()
        ended: list[BaseException] = []

        async def ask() -> None:
            ended.append(await failure(work.run("static", gate)))

        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            await gate.has_begun()
            done = await anyio.to_thread.run_sync(work.stop, LONG)
        assert isinstance(ended[0], CancelledError)
        return done

    assert run(story, tmp_path, grace=LONG)
