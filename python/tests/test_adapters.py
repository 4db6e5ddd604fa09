"""Adapters of Hugging Face and Lightning, called as their loops call them, with stand-ins for their packages."""

import importlib
import sys
import types
import unittest
from unittest import mock

from support import Case, lines_of

import ledger_events
from ledger_events.client import Client


def module(name, **members):
    made = types.ModuleType(name)
    made.__dict__.update(members)
    return made


def space(**members):
    return types.SimpleNamespace(**members)


class Adapter(Case):
    def setUp(self):
        super().setUp()
        self.client = Client(self.file())
        callback = module("lightning.pytorch.callbacks", Callback=object)
        logger = module("lightning.pytorch.loggers.logger", Logger=object)
        fakes = {
            "transformers": module("transformers", TrainerCallback=object, __version__="4.0"),
            "lightning": module("lightning"),
            "lightning.pytorch": module("lightning.pytorch", __version__="2.0"),
            "lightning.pytorch.callbacks": callback,
            "lightning.pytorch.loggers": module("lightning.pytorch.loggers"),
            "lightning.pytorch.loggers.logger": logger,
        }
        fakes["lightning"].pytorch = fakes["lightning.pytorch"]
        for patched in (mock.patch.dict(sys.modules, fakes), mock.patch.object(ledger_events, "_client", self.client)):
            patched.start()
            self.addCleanup(patched.stop)
        for name in ("trainer", "huggingface", "lightning"):
            sys.modules.pop(f"ledger_events.{name}", None)

    def load(self, name):
        return importlib.import_module(f"ledger_events.{name}")

    def short(self):
        self.client.close()
        found = []
        for line in lines_of(self.file()):
            event = line.pop("event")
            line.pop("t_ns")
            if event == "step":
                found.append((event, line["step"], "duration_ns" in line, line["values"]))
            elif event.startswith("phase"):
                found.append((event, line["name"], line.get("index")))
            else:
                found.append((event, *line.values()))
        return found

    def test_hugging_face_gives_one_event_a_step_and_says_what_its_loss_is(self):
        callback = self.load("huggingface").LedgerCallback()
        args = space(
            train_batch_size=8, gradient_accumulation_steps=2, world_size=1, logging_steps=2, logging_strategy="steps"
        )
        state = space(max_steps=2, num_train_epochs=1, epoch=0.0, global_step=0)
        control = space(should_evaluate=False, should_save=False)
        callback.on_train_begin(args, state, control)
        callback.on_epoch_begin(args, state, control)
        for step in (1, 2):
            callback.on_step_begin(args, state, control)
            state.global_step = step
            control.should_evaluate = control.should_save = step == 2
            callback.on_step_end(args, state, control)
        callback.on_log(args, state, control, logs={"loss": 0.5, "learning_rate": 0.1, "note": "text"})
        callback.on_evaluate(args, state, control, metrics={"eval_loss": 0.4, "epoch": 1.0})
        callback.on_save(args, state, control)
        control.should_evaluate = control.should_save = False
        callback.on_epoch_end(args, state, control)
        callback.on_log(args, state, control, logs={"train_loss": 0.6})
        callback.on_train_end(args, state, control)
        expected = [
            ("plan", 2, 1, 16),
            ("fact", "transformers", "4.0"),
            ("fact", "loss_averaged_over", "last 2 steps"),
            ("phase_start", "epoch", 1),
            ("step", 1, True, {}),
            ("phase_start", "eval", 2),
            ("phase_stop", "eval", 2),
            ("metric", "eval_loss", 0.4),
            ("phase_start", "checkpoint", 2),
            ("phase_stop", "checkpoint", 2),
            ("phase_stop", "epoch", 1),
            ("metric", "train_loss", 0.6),
            ("step", 2, True, {"loss": 0.5, "learning_rate": 0.1}),
        ]
        self.assertEqual(self.short(), expected)

    def test_lightning_gives_one_event_a_step_with_the_values_of_its_logger(self):
        loaded = self.load("lightning")
        logger, callback = loaded.LedgerLogger(), loaded.LedgerCallback()
        trainer = space(
            estimated_stepping_batches=2, max_epochs=1, current_epoch=0, global_step=0, sanity_checking=True,
            callback_metrics={"val_loss": 0.4},
        )  # fmt: skip
        logger.log_hyperparams({"lr": 0.1, "layers": [1]})
        callback.on_validation_start(trainer, None)
        callback.on_validation_end(trainer, None)
        trainer.sanity_checking = False
        callback.on_train_start(trainer, None)
        callback.on_train_epoch_start(trainer, None)
        for step in (1, 2):
            callback.on_train_batch_start(trainer, None, None, step - 1)
            trainer.global_step = step
            callback.on_train_batch_end(trainer, None, None, None, step - 1)
            logger.log_metrics({"loss": 1 / step}, step=step - 1)
        callback.on_validation_start(trainer, None)
        logger.log_metrics({"val_loss": 0.4}, step=1)
        callback.on_validation_end(trainer, None)
        callback.on_train_epoch_end(trainer, None)
        callback.on_train_end(trainer, None)
        expected = [
            ("fact", "hyperparameters.lr", 0.1),
            ("fact", "lightning", "2.0"),
            ("plan", 2, 1),
            ("phase_start", "epoch", 1),
            ("step", 1, True, {"loss": 1.0}),
            ("phase_start", "eval", 1),
            ("phase_stop", "eval", 1),
            ("phase_stop", "epoch", 1),
            ("step", 2, True, {"loss": 0.5, "val_loss": 0.4}),
            ("metric", "val_loss", 0.4),
        ]
        self.assertEqual(self.short(), expected)

    def test_without_the_callback_a_logger_logs_by_its_own_steps(self):
        logger = self.load("lightning").LedgerLogger()
        logger.log_metrics({"loss": 1.0}, step=7)
        self.assertEqual(self.short(), [("step", 7, False, {"loss": 1.0})])

    def test_outside_of_ledger_adapters_report_nothing(self):
        self.client.path = None
        callback = self.load("huggingface").LedgerCallback()
        state, control = space(global_step=1, epoch=0), space(should_evaluate=True, should_save=False)
        callback.on_train_begin(None, state, control)
        callback.on_epoch_begin(None, state, control)
        callback.on_step_begin(None, state, control)
        callback.on_step_end(None, state, control)
        callback.on_log(None, state, control, logs={"loss": 1.0})
        callback.on_evaluate(None, state, control, metrics={"eval_loss": 1.0})
        callback.on_train_end(None, state, control)
        self.assertIsNone(self.client._thread)


if __name__ == "__main__":
    unittest.main()
