"""Training images per CPU second, for comparisons of gates."""

import time

from benchmarks.experiments.runner import TrainedRun

_STEPS = 10


def rate(run: TrainedRun) -> dict[str, float]:
    """The best of a few steps, forward and backward, on one thread."""
    problem = run.config.prepare(run.folder, new=False)
    model, batch = problem.build_model().train(), problem.load_batch(problem.plan_epoch(0)[0], 0, 1)
    best = float("inf")
    for _ in range(_STEPS):
        begun = time.process_time()
        problem.loss(model, batch).total.backward()
        best = min(best, time.process_time() - begun)
    return {"rate": len(batch.labels) / best}
