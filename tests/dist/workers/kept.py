"""A fit with checkpoints that takes its time, so that it can be killed, stopped and asked to end."""

import json
import os
import signal
import sys
import time
import warnings

import numpy
from common import FOLDER, RANK, keep, rows, tell

import cartograd
from cartograd.errors import DistributedError

ATTEMPT = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
METHOD, STEPS, PAUSE = sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
METHODS = {
    "UMAP": (cartograd.UMAP, {"n_neighbors": 8}),
    "TSNE": (cartograd.TSNE, {"perplexity": 8, "method": "exact", "early_exaggeration_iter": 100}),
    "PACMAP": (cartograd.PACMAP, {"n_neighbors": 6, "iter_per_phase": STEPS // 4}),
    "encoder": (cartograd.UMAP, {"n_neighbors": 8, "encoder": "mlp", "hidden_sizes": (16,), "n_epochs": STEPS}),
}


def main():
    warnings.simplefilter("ignore")  # an interrupted fit warns
    X = rows(300)
    begun = FOLDER / f".begun-{ATTEMPT}-{RANK}"
    begun.write_text(str(os.getpid()))
    begun.rename(FOLDER / f"begun-{ATTEMPT}-{RANK}")
    kind, options = METHODS[METHOD]

    class Slow(kind):
        def on_training_step_end(self):
            (FOLDER / f"step-{RANK}").write_text(str(self.n_iter_ + 1))
            time.sleep(PAUSE)

    Slow.__name__ = kind.__name__
    usual = {"max_iter": STEPS, "random_state": 1, "check_interval": 5, "checkpoint_every": 5}
    model = Slow(**options, **usual, checkpoint_dir=FOLDER / "kept", resume=True)
    began = time.monotonic()
    try:
        model.fit(X)
    except DistributedError as error:
        tell(seconds=time.monotonic() - began, said=str(error))
        raise
    finally:
        handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        names = [getattr(one, "__name__", None) or one.name for one in handlers]
        (FOLDER / f"handlers-{RANK}").write_text(json.dumps(names))
    keep(Z=model.embedding_)
    whole = kind(**options, **usual, distributed=False).fit_transform(X)
    apart = float(numpy.abs(model.embedding_ - whole).max())
    tell(steps=model.n_iter_, attempt=ATTEMPT, apart=apart)


if __name__ == "__main__":
    main()
