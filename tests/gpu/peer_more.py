#!/usr/bin/env python3
"""YOLOv3, Mask R-CNN and DQN in PyTorch: more models for peer_worker.py and peers.py, and a worker of `ledger run` for them.

Usage: peer_more.py CELL STEPS [--seed N] [--idle SECONDS] [--inference '[1, 128]'] [--device cuda|cpu], as peer_worker.py, whose models it accepts too.
The models are in a file of their own because peer_worker.py and peer_models.py are part of the ids of recorded attempts.
The modes are those of peer_models.py. Each class names the exceptions, and the differences from ledger's step.
"""

import argparse
import copy
import sys
from pathlib import Path

import peer_models
import peer_worker

CLASSES = 80
MOST_OBJECTS = 8


def read_cell(text, read=peer_models.Cell):
    """A cell of the command line. Of other errors argparse does not show the text."""
    try:
        cell = read(text)
        check(cell)
    except ValueError as fault:
        raise argparse.ArgumentTypeError(str(fault)) from None
    return cell


def check(cell):
    if (cell.name, cell.mode) == ("maskrcnn", "graphs"):
        raise ValueError("Mask R-CNN has no mode `graphs`: the number of its regions differs from step to step, and a CUDA graph has fixed shapes (use eager, fast or compile)")


class Work(peer_models.Work):
    """A cell of one of these models. A subclass has the model, the inputs and the loss."""

    def __init__(self, cell, device="cuda", seed=1, around=lambda model: model):
        import torch

        check(cell)
        self.torch, self.cell, self.device = torch, cell, torch.device(device)
        self.on_gpu = self.device.type == "cuda"
        torch.manual_seed(seed)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.allow_tf32 = True
        # With a number of masks that differs from step to step, cuDNN would measure its algorithms again for each new one.
        torch.backends.cudnn.benchmark = cell.mode != "eager" and cell.name != "maskrcnn"
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.channels_last = cell.mode != "eager" and cell.name != "maskrcnn"
        model = self.opened().to(self.device).train()
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)
        self.model = around(model)
        self.prepare()
        self.rule = self.optimizer({"fused": True} if cell.mode != "eager" else {})
        self.compile({"compile": {}, "graphs": {"mode": "reduce-overhead"}}.get(cell.mode))

    def compile(self, options):
        """Compiles loss and answer, each as one function. `options` is None in modes without compilation."""
        self.loss_of, self.answer_of = self.loss, self.network
        if options is not None:
            self.loss_of, self.answer_of = (self.torch.compile(function, dynamic=False, **options) for function in (self.loss, self.network))

    def network(self, x):
        with self.cast():
            return self.model(x)

    def optimizer(self, options):
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        return self.torch.optim.SGD(parameters, 1e-4, momentum=0.9, **options)

    def step(self):
        """Queues a training step. Its loss, on the device; valid until the next step."""
        self.begin()
        self.rule.zero_grad(set_to_none=True)
        loss = self.loss_of(*self.batch())
        loss.backward()
        self.rule.step()
        return loss.detach()

    def close(self):
        self.loss_from = self.target = self.pairs = self.frames = self.outcomes = None
        super().close()


def random_objects(torch, rows, side, classes):
    """Objects of each row: 1 to 8 of (class, left, top, right, bottom), in whole pixels, with sides from 1/16 to 10/16 of the image's before they are cut off at its border."""
    objects = []
    for row in range(rows):
        objects.append([])
        for _ in range(int(torch.randint(1, MOST_OBJECTS + 1, ()))):
            x, y, width, height = torch.rand(4).tolist()
            edges = []
            for middle, extent in ((x, width), (y, height)):
                half, centre = int((1 + extent * 9) / 32 * side) + 1, int(middle * side)
                edges.append((max(centre - half, 0), min(centre + half, side)))
            (left, right), (top, bottom) = edges
            objects[-1].append((int(torch.randint(0, classes, ())), left, top, right, bottom))
    return objects


def parity_yolov3():
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "parity"))
    import yolov3

    return yolov3


class Yolov3Loss:
    """The loss of tests/parity/yolov3.py for a whole batch on the device, without a loop over places: the mean over the images.

    Targets of each level are dense, [rows, 3, 7, cells, cells]: x, y, log width, log height, their weight, 1 for an object, and its class.
    """

    def __init__(self, torch, objects, anchors, side, classes, device, dtype):
        from torch import nn

        parity = parity_yolov3()
        self.torch, self.functional, self.side, self.classes = torch, nn.functional, side, classes
        self.anchors = [torch.tensor(anchors[3 * (2 - level) : 3 * (3 - level)], device=device, dtype=dtype) for level in range(3)]
        self.kinds = torch.arange(classes, device=device, dtype=dtype)[:, None, None]
        boxes = torch.zeros(len(objects), MOST_OBJECTS, 4, dtype=dtype)
        targets = [torch.zeros(len(objects), 3, 7, side // cell, side // cell, dtype=dtype) for cell in (32, 16, 8)]
        for target in targets:
            target[:, :, 6] = -1
        for row, of_row in enumerate(objects):
            for place, (kind, left, top, right, bottom) in enumerate(of_row):
                boxes[row, place] = torch.tensor([left, top, right, bottom], dtype=dtype)
                width, height = right - left, bottom - top
                n = parity.best_anchor(width, height, anchors)
                level = 2 - n // 3
                cells = targets[level].shape[-1]
                x, y = (left + right) / 2 / side * cells, (top + bottom) / 2 / side * cells
                column, line = min(int(x), cells - 1), min(int(y), cells - 1)
                extent = torch.tensor([width / anchors[n][0], height / anchors[n][1]], dtype=torch.float64).log().tolist()
                values = [x - column, y - line, *extent, 2 - width * height / side**2, 1, kind]
                targets[level][row, n % 3, :, line, column] = torch.tensor(values, dtype=dtype)
        self.targets, self.boxes = [target.to(device) for target in targets], boxes.to(device)

    def ignored(self, entry, anchors, boxes):
        """Places whose box overlaps with that of any object by more than a half, [rows, 3, cells, cells]."""
        torch, cells = self.torch, entry.shape[-1]
        grid = torch.arange(cells, device=entry.device, dtype=entry.dtype)
        x = (entry[:, :, 0].sigmoid() + grid) * (self.side / cells)
        y = (entry[:, :, 1].sigmoid() + grid[:, None]) * (self.side / cells)
        half_width = entry[:, :, 2].exp() * (anchors[:, 0, None, None] / 2)
        half_height = entry[:, :, 3].exp() * (anchors[:, 1, None, None] / 2)
        left, top, right, bottom = (edge[..., None] for edge in (x - half_width, y - half_height, x + half_width, y + half_height))
        of_object = boxes[:, None, None, None].unbind(-1)
        wide = (torch.minimum(right, of_object[2]) - torch.maximum(left, of_object[0])).clamp(min=0)
        high = (torch.minimum(bottom, of_object[3]) - torch.maximum(top, of_object[1])).clamp(min=0)
        common = wide * high
        areas = (right - left) * (bottom - top) + (of_object[2] - of_object[0]) * (of_object[3] - of_object[1])
        return (common / (areas - common) > 0.5).any(-1)

    def __call__(self, answers, targets, boxes):
        cross_entropy = lambda logits, wanted: self.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        loss = 0
        for answer, target, anchors in zip(answers, targets, self.anchors):
            rows, _, cells, _ = answer.shape
            entry = answer.reshape(rows, 3, 5 + self.classes, cells, cells).to(target.dtype)
            weight, there, kind = target[:, :, 4], target[:, :, 5], target[:, :, 6:]
            centre = cross_entropy(entry[:, :, :2], target[:, :, :2]).sum(2)
            extent = 0.5 * ((entry[:, :, 2:4] - target[:, :, 2:4]) ** 2).sum(2)
            classes = cross_entropy(entry[:, :, 5:], (self.kinds == kind).to(entry.dtype)).sum(2)
            with self.torch.no_grad():
                counts = ((there > 0) | ~self.ignored(entry[:, :, :4], anchors, boxes)).to(entry.dtype)
            loss = loss + (weight * (centre + extent) + there * classes + counts * cross_entropy(entry[:, :, 4], there)).sum()
        return loss / answers[0].shape[0]


class Yolov3(Work):
    """YOLOv3 on 416 x 416 images, 80 classes: Darknet-53 with three levels, and all terms of ledger's loss.

    Differences from ledger's step:
    - Objects are matched to anchors once, before the first step. ledger matches each batch on the host.
    - Images are noise that lies on the device. ledger copies a new batch from the host for each step.
    In each step every image takes the objects of the next one, so that no image is learned by heart.
    An answer is the network alone: no decoded boxes, no suppression.
    """

    side = 416

    def opened(self):
        return parity_yolov3().Darknet([1, 2, 8, 8, 4], 32, CLASSES)

    def prepare(self):
        torch, batch = self.torch, self.cell.batch
        self.x = self.make(batch)
        objects = random_objects(torch, batch, self.side, CLASSES)
        self.loss_from = Yolov3Loss(torch, objects, parity_yolov3().ANCHORS, self.side, CLASSES, self.device, torch.float32)
        self.y = torch.arange(batch, device=self.device)

    def make(self, batch):
        x = self.torch.randn(batch, 3, self.side, self.side, device=self.device)
        return x.to(memory_format=self.torch.channels_last) if self.channels_last else x

    def batch(self):
        self.y.add_(1).remainder_(self.cell.batch)
        return (self.x, self.y, *self.loss_from.targets, self.loss_from.boxes)

    def loss(self, x, rows, coarse, middle, fine, boxes):
        targets = [target.index_select(0, rows) for target in (coarse, middle, fine)]
        return self.loss_from(self.network(x), targets, boxes.index_select(0, rows))

    def ask(self, batch):
        self.model.eval()
        return self.make(batch)


class MaskRcnn(Work):
    """torchvision's Mask R-CNN on ResNet-50 with a feature pyramid, 512 x 512 images, 80 classes and the background.

    As in ledger, all layers are trained and the norms of the body are frozen, with the statistics of the first batch. Images come in their final size, so torchvision's
    resizing is off. Each image has 1 to 8 objects with elliptic masks.
    Differences from ledger's step:
    - Proposals, matching and sampling are on the GPU. ledger computes them on the host.
    - Images are noise and lie on the device, as boxes and masks do. ledger copies a new batch from the host for each step.
    In each step every image takes the objects of the next one.
    An answer has pasted masks. torchvision computes masks for detections above its threshold only, so the time depends on the weights.
    Modes: `fast` has the fused optimiser alone; `compile` also compiles the body and the pyramid.
    """

    side = 512

    def opened(self):
        from torchvision.models import detection
        from torchvision.models.detection import backbone_utils

        # The same network as maskrcnn_resnet50_fpn, which has frozen norms with pretrained weights only.
        backbone = backbone_utils.resnet_fpn_backbone(backbone_name="resnet50", weights=None, trainable_layers=5)
        return detection.MaskRCNN(backbone, CLASSES + 1, min_size=self.side, max_size=self.side, _skip_resize=True)

    def prepare(self):
        torch = self.torch
        self.x = self.make(self.cell.batch)
        line = torch.arange(self.side, device=self.device)

        def target(objects):
            kinds, boxes = [one[0] + 1 for one in objects], torch.tensor([one[1:] for one in objects], dtype=torch.float32, device=self.device)
            left, top, right, bottom = (edge[:, None] for edge in boxes.unbind(1))
            across, down = (2 * line + 1 - left - right) / (right - left), (2 * line + 1 - top - bottom) / (bottom - top)
            masks = across[:, None, :] ** 2 + down[:, :, None] ** 2 <= 1
            return {"boxes": boxes, "labels": torch.tensor(kinds, device=self.device), "masks": masks.to(torch.uint8)}

        self.y = [target(objects) for objects in random_objects(torch, self.cell.batch, self.side, CLASSES)]
        self.calibrate()

    def calibrate(self):
        """Sets the statistics of each frozen norm to those of its input for the first batch."""
        from torchvision.ops.misc import FrozenBatchNorm2d

        def measure(norm, inputs):
            norm.running_mean.copy_(inputs[0].mean((0, 2, 3)))
            norm.running_var.copy_(inputs[0].var((0, 2, 3), unbiased=False))

        norms = [module for module in self.model.modules() if isinstance(module, FrozenBatchNorm2d)]
        hooks = [norm.register_forward_pre_hook(measure) for norm in norms]
        with self.torch.no_grad():
            self.model.backbone(self.model.transform(self.x)[0].tensors)
        for hook in hooks:
            hook.remove()

    def compile(self, options):
        super().compile(None)
        if options is not None:
            self.model.backbone = self.torch.compile(self.model.backbone, dynamic=False, **options)

    def make(self, batch):
        return list(self.torch.rand(batch, 3, self.side, self.side, device=self.device))

    def batch(self):
        self.y.append(self.y.pop(0))
        return self.x, self.y

    def loss(self, x, targets):
        with self.cast():
            return sum(self.model(x, targets).values())

    def ask(self, batch):
        self.model.eval()
        return self.make(batch)


class Dqn(Work):
    """DQN on frames: the network of Mnih et al. 2015 with six actions, Huber's loss, Adam, and a target network that moves by 1% in each update.

    Differences from ledger's step:
    - There is no environment and no acting: a step is the update alone. ledger's step has four steps of the game before it.
    - The replay memory lies on the device: 100,000 random frames as bytes, from which each step draws. ledger draws on the host and copies the frames.
    """

    ACTIONS, SEEN, SIDE = 6, 4, 84
    DISCOUNT, SHARE = 0.99, 0.01

    def opened(self):
        from torch import nn

        convolution = lambda inner, outer, side, stride: [nn.Conv2d(inner, outer, side, stride), nn.ReLU()]
        convolutions = [*convolution(self.SEEN, 32, 8, 4), *convolution(32, 64, 4, 2), *convolution(64, 64, 3, 1)]
        return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, self.ACTIONS))

    def prepare(self):
        torch = self.torch
        kept = 100_000 if self.on_gpu else 1_000
        draw = lambda low, high, *shape, **kind: torch.randint(low, high, shape, device=self.device, **kind)
        self.target = copy.deepcopy(self.model).requires_grad_(False)
        self.pairs = [list(network.parameters()) for network in (self.target, self.model)]
        self.frames = draw(0, 256, kept, self.SIDE, self.SIDE, dtype=torch.uint8)
        # Reward, whether the episode goes on, and action.
        self.outcomes = torch.stack([draw(-1, 2, kept).float(), (draw(0, 100, kept) > 0).float(), draw(0, self.ACTIONS, kept).float()], 1)
        self.window = torch.arange(self.SEEN + 1, device=self.device)
        self.x = self.y = torch.empty(self.cell.batch, dtype=torch.long, device=self.device)

    def optimizer(self, options):
        if self.cell.mode == "graphs" and self.on_gpu:
            options = {**options, "capturable": True}
        return self.torch.optim.Adam(self.model.parameters(), 2.5e-4, **options)

    def batch(self):
        # Drawn outside of the compiled function: a CUDA graph would copy all frames, as it does with inputs.
        with self.torch.no_grad():
            self.torch._foreach_lerp_(*self.pairs, self.SHARE)
        self.x.random_(0, len(self.frames) - self.SEEN)
        return self.frames[self.x[:, None] + self.window], self.outcomes[self.x]

    def loss(self, frames, outcomes):
        torch = self.torch
        rewards, goes_on, actions = outcomes.unbind(1)
        shown = frames.float() / 255
        with self.cast():
            with torch.no_grad():
                worth = self.target(shown[:, 1:]).float().amax(1)
                goals = torch.where(goes_on > 0, rewards + self.DISCOUNT * worth, rewards)
            values = self.model(shown[:, : self.SEEN]).float().gather(1, actions.long()[:, None])[:, 0]
            return torch.nn.functional.huber_loss(values, goals)

    def ask(self, batch):
        self.model.eval()
        return self.torch.rand(batch, self.SEEN, self.SIDE, self.SIDE, device=self.device)


MORE = {"yolov3": Yolov3, "maskrcnn": MaskRcnn, "dqn": Dqn}


def add_models():
    """Lets peer_models read cells of these models."""
    peer_models.IMAGES = (*peer_models.IMAGES, *(name for name in MORE if name not in peer_models.IMAGES))


def main():
    add_models()
    others = peer_models.Work
    peer_models.Cell, peer_models.Work = read_cell, lambda cell, *options: MORE.get(cell.name, others)(cell, *options)
    peer_worker.main()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
