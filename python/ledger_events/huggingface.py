"""A callback for the Trainer of Hugging Face's transformers: `Trainer(..., callbacks=[LedgerCallback()])`."""

from __future__ import annotations

import transformers
from transformers import TrainerCallback

from . import fact, is_recorded, metric, plan
from .trainer import Phases, Steps, numbers


class LedgerCallback(TrainerCallback):
    """Reports steps with their durations, what the Trainer logs, and the phases `epoch`, `eval` and `checkpoint`.

    The Trainer logs the mean loss of the last `logging_steps` steps; the record has a fact that says so. Steps are timed on the GPU
    if there is one. The end of an evaluation makes its values metrics, such as `eval_loss`.
    """

    def __init__(self):
        self.steps, self.phases = Steps(), Phases()

    def on_train_begin(self, args, state, control, **_):
        if not is_recorded():
            return
        samples = args.train_batch_size * args.gradient_accumulation_steps * args.world_size
        epochs = int(state.num_train_epochs or 0)
        plan(state.max_steps, epochs=epochs, samples_per_step=samples)
        fact("transformers", transformers.__version__)
        steps = args.logging_steps
        is_every = args.logging_strategy == "steps" and steps == 1
        if not is_every:
            period = f"last {steps:g} steps" if args.logging_strategy == "steps" else "steps since the last log"
            fact("loss_averaged_over", period)

    def on_epoch_begin(self, args, state, control, **_):
        self.phases.start("epoch", int(state.epoch or 0) + 1)

    def on_step_begin(self, args, state, control, **_):
        self.phases.stop("checkpoint")
        self.steps.begin()

    def on_step_end(self, args, state, control, **_):
        self.steps.end(state.global_step)
        self._what_follows(state, control)

    def on_epoch_end(self, args, state, control, **_):
        # A last log comes after this, for the last step.
        self.phases.stop("epoch")
        self._what_follows(state, control)

    def _what_follows(self, state, control):
        if control.should_evaluate:
            self.phases.start("eval", state.global_step)
        elif control.should_save:
            self.phases.start("checkpoint", state.global_step)

    def on_log(self, args, state, control, logs=None, **_):
        logs = logs or {}
        results = {name: value for name, value in logs.items() if name.startswith("train_") or name == "total_flos"}
        for name, value in numbers(results).items():
            metric(name, value)
        self.steps.log(state.global_step, numbers({name: value for name, value in logs.items() if name not in results}))

    def on_evaluate(self, args, state, control, metrics=None, **_):
        self.phases.stop("eval")
        for name, value in numbers(metrics or {}).items():
            if name != "epoch":
                metric(name, value)
        if control.should_save:
            self.phases.start("checkpoint", state.global_step)

    def on_save(self, args, state, control, **_):
        self.phases.stop("checkpoint")

    def on_train_end(self, args, state, control, **_):
        self.steps.close()
        self.phases.stop_all()
