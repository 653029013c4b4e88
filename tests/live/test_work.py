"""Work says what it does, stops where it can, and leaves programs behind that are compiled once."""

import threading

import jax
import jax.numpy as jnp
import pytest

from duat_jax.live.work import COMPILED, LOWERED, TRACED, Stopped, Work


def test_a_step_is_told_and_a_stopped_one_ends():
    told = []
    with Work(told.append) as work:
        work.step("explaining")
        work.stop()
        with pytest.raises(Stopped):
            work.step("writing")
    assert told == ["explaining"]


def test_a_program_that_is_compiled_is_named():
    told = []

    @jax.jit
    def a_program(x):
        return 2 * x + len(told)

    with Work(told.append) as work:
        work.step("explaining")
        a_program(jnp.ones(3))
    assert "explaining: compiling 'a program', once for texts of about this length" in told
    a_program(jnp.ones(5))  # outside of it nobody is told
    assert sum("a program" in each for each in told) == 1


@pytest.mark.parametrize("event", [TRACED, COMPILED])
def test_a_stopped_compilation_ends_and_its_program_is_compiled_once_afterwards(event, monkeypatch):
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **more: compiled.append(more.get("fun_name")) if name == COMPILED else None
    )

    @jax.jit
    def stopped_one(x):
        return 3 * x

    with Work(lambda doing: None) as work:
        heard = work.heard
        monkeypatch.setattr(work, "heard", lambda name, program: (name == event and work.stop(), heard(name, program)))
        work.step("explaining")
        with pytest.raises(Stopped):
            stopped_one(jnp.ones(3))
    compiled.clear()
    for _ in range(3):
        assert stopped_one(jnp.ones(3)).tolist() == [3.0, 3.0, 3.0]
    assert compiled.count("jit(stopped_one)") == 1


def test_nothing_is_raised_after_lowering():
    """A program whose compilation is broken off there would be compiled at every call from then on."""
    told = []
    work = Work(told.append)
    work.stop()
    work.heard(LOWERED, "split")
    assert told == [": compiling 'split', once for texts of about this length"]


def test_work_in_another_thread_hears_nothing():
    told = []

    @jax.jit
    def other_thread(x):
        return x - 1

    with Work(told.append):
        thread = threading.Thread(target=lambda: other_thread(jnp.ones(2)))
        thread.start()
        thread.join()
    assert told == []


def test_events_that_carry_counts_are_heard():
    """Orbax reports the number of its commits as a duration."""
    from duat_jax.cli.progress import Compiling

    heard = Compiling("work")
    with Work(lambda doing: None):
        jax.monitoring.record_event_duration_secs("/jax/checkpoint/write/async/commit_future_count", 3)
    assert str(heard.__rich__()) == "work"
