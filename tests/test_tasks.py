"""A pool of actors does numbered tasks, and gives up on one that ends its process again and again."""

import os
import pathlib

import pytest

from erag_ray.config.retrieval import SearchConfig
from erag_ray.inference.cluster.tasks import task_pool
from erag_ray.store.sharded_tasks import Tasks
from erag_ray.support.errors import JobError


@pytest.mark.cluster
def test_a_task_that_ends_its_process_is_tried_again_and_at_last_ends_the_job(
    local_ray: None, tmp_path: pathlib.Path
) -> None:
    # inside, so that it travels by value
    class Fatal:
        def __init__(self, folder: str, often: int) -> None:
            self.folder, self.often = pathlib.Path(folder), often

        def __call__(self, number: int) -> None:
            tries = len(list(self.folder.glob(f"{number}-*")))
            (self.folder / f"{number}-{tries}").touch()
            if number == 1 and tries < self.often:
                os._exit(1)

    def tasks(often: int) -> Tasks:
        folder = tmp_path / str(often)
        folder.mkdir()
        return Tasks(
            worker=Fatal, settings={"folder": str(folder), "often": often}, numbers=[0, 1, 2], noun="tasks"
        )

    with task_pool(SearchConfig(num_actors=1), show=False) as do:
        do(tasks(2))
        assert len(list((tmp_path / "2").glob("1-*"))) == 3
        with pytest.raises(JobError, match=r"tasks: a task ended its process 4 times. See Ray's worker logs"):
            do(tasks(99))
    assert len(list((tmp_path / "99").glob("1-*"))) == 4
