"""Tests that all ranks of a job run in step: unisono run -n N python -m pytest tests/ranks"""

import pytest

import unisono


@pytest.fixture(scope="session")
def world():
    """The job's communicator; a test that gets out of step fails here and not after ten minutes."""
    with unisono.init(timeout=20) as comm:
        yield comm


@pytest.fixture
def comm(world):
    """One for each test, so that a failure does not reach the next."""
    with world.duplicate() as comm:
        yield comm
