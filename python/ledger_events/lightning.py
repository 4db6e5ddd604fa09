"""A logger and a callback for Lightning: `Trainer(logger=LedgerLogger(), callbacks=[LedgerCallback()])`."""

from __future__ import annotations

try:
    import lightning.pytorch as lightning
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers.logger import Logger
except ImportError:
    import pytorch_lightning as lightning
    from pytorch_lightning.callbacks import Callback
    from pytorch_lightning.loggers.logger import Logger

from . import fact, is_recorded, metric, plan
from .trainer import Phases, Steps, numbers

# Values that the logger gets between the end of a step and the next one are that step's.
_steps = Steps()


class LedgerLogger(Logger):
    """Reports what `self.log` logs as curves, and the hyperparameters as facts."""

    @property
    def name(self):
        return "ledger"

    @property
    def version(self):
        return None

    def log_metrics(self, metrics, step=None):
        _steps.log(step or 0, numbers(metrics))

    def log_hyperparams(self, params, *_, **__):
        if not is_recorded():
            return
        for name, value in dict(params if isinstance(params, dict) else vars(params)).items():
            if isinstance(value, (bool, int, float, str)):
                fact(f"hyperparameters.{name}", value)

    def finalize(self, status):
        _steps.close()


class LedgerCallback(Callback):
    """Reports the duration of each step and the phases `epoch` and `eval`; at the end, the last values as metrics.

    Steps are timed on the GPU if there is one.
    """

    def __init__(self):
        self.phases = Phases()

    def on_train_start(self, trainer, module):
        if not is_recorded():
            return
        fact("lightning", lightning.__version__)
        steps, epochs = trainer.estimated_stepping_batches, trainer.max_epochs
        if steps != float("inf") and steps > 0:
            plan(int(steps), epochs=epochs if epochs and epochs > 0 else None)

    def on_train_epoch_start(self, trainer, module):
        self.phases.start("epoch", trainer.current_epoch + 1)

    def on_train_batch_start(self, trainer, module, batch, batch_index):
        _steps.begin()

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_index):
        _steps.end(trainer.global_step)

    def on_validation_start(self, trainer, module):
        if not trainer.sanity_checking:
            self.phases.start("eval", trainer.current_epoch + 1)

    def on_validation_end(self, trainer, module):
        self.phases.stop("eval")

    def on_train_epoch_end(self, trainer, module):
        self.phases.stop("epoch")

    def on_train_end(self, trainer, module):
        _steps.close()
        self.phases.stop_all()
        for name, value in numbers(trainer.callback_metrics).items():
            metric(name, value)

    def on_exception(self, trainer, module, exception):
        _steps.close()
        self.phases.stop_all()
