"""Results of Mask R-CNN with PyTorch and torchvision, in float64. See src/train/models/mask_rcnn/parity.rs.

`python mask_rcnn.py` writes every file that the tests read; `python mask_rcnn.py NAME…` writes those of these names. Nothing is drawn: the first boxes are
learned from.
"""

import pathlib
import sys
from unittest import mock

import torch
from formula import line, sequence, values
from torch import nn
from torchvision.models import detection, resnet
from torchvision.models.detection import _utils, backbone_utils, faster_rcnn, mask_rcnn, rpn
from torchvision.ops import MultiScaleRoIAlign, feature_pyramid_network, misc


class Body(resnet.ResNet):
    """torchvision's residual network with another number of channels, which its constructor fixes, and frozen norms."""

    def __init__(self, blocks, base):
        nn.Module.__init__(self)
        self._norm_layer = misc.FrozenBatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = base, 1, 1, 64
        self.conv1 = nn.Conv2d(3, base, 7, 2, 3, bias=False)
        self.bn1 = misc.FrozenBatchNorm2d(base)
        self.relu = nn.ReLU()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        for stage, count in enumerate(blocks):
            layer = self._make_layer(resnet.Bottleneck, base << stage, count, 1 if stage == 0 else 2)
            setattr(self, f"layer{stage + 1}", layer)


def build(blocks, base, channels, hidden, classes, sizes, train, test, anchors, regions, found):
    stages = {f"layer{stage + 1}": str(stage) for stage in range(4)}
    pool = feature_pyramid_network.LastLevelMaxPool()
    wide = [4 * (base << stage) for stage in range(4)]
    return detection.MaskRCNN(
        backbone_utils.BackboneWithFPN(Body(blocks, base), stages, wide, channels, pool),
        rpn_anchor_generator=rpn.AnchorGenerator(tuple((size,) for size in sizes), ((0.5, 1.0, 2.0),) * 5),
        box_head=faster_rcnn.TwoMLPHead(channels * 49, hidden),
        box_predictor=faster_rcnn.FastRCNNPredictor(hidden, classes + 1),
        mask_head=mask_rcnn.MaskRCNNHeads(channels, (channels,) * 4, 1),
        mask_predictor=mask_rcnn.MaskRCNNPredictor(channels, channels, classes + 1),
        rpn_pre_nms_top_n_train=train[0],
        rpn_post_nms_top_n_train=train[1],
        rpn_pre_nms_top_n_test=test[0],
        rpn_post_nms_top_n_test=test[1],
        rpn_batch_size_per_image=anchors,
        box_batch_size_per_image=regions,
        box_detections_per_img=found,
    )


TINY = ([1] * 4, 4, 16, 32, 3, (8, 16, 32, 64, 128), (100, 50), (50, 20), 64, 16, 8)
FULL = ([3, 4, 6, 3], 64, 256, 1024, 90, (32, 64, 128, 256, 512), (2000, 2000), (1000, 1000), 256, 512, 100)
CASES = {"mask_rcnn_tiny": (TINY, 64), "mask_rcnn_128": (FULL, 128)}

# Of layers whose answers are boxes and scores.
LAST = ("cls_logits.weight", "cls_score.weight", "bbox_pred.weight")

# Class and box of the objects of each picture, for pictures of 64 x 64.
OBJECTS = [
    [(1, (5.5, 8.25, 30.75, 40.5)), (0, (28.0, 20.0, 60.5, 61.25))],
    [(2, (10.25, 12.0, 50.0, 36.5))],
    [],
]

# Regions in pictures of 64 x 64: the picture, and the box.
REGIONS = [
    (0, (3.3, 4.7, 20.1, 29.9)),
    (1, (0.0, 0.0, 64.0, 64.0)),
    (1, (-9.0, -3.0, 11.0, 40.0)),
    (0, (57.5, 60.0, 90.0, 91.0)),
    (0, (5.0, 5.0, 5.0, 5.0)),
    (1, (-100.0, -50.0, 130.0, 100.0)),
    (0, (-300.0, -250.0, 330.0, 300.0)),
]


def mask(box, side):
    """Whole pixels within the box with a pattern of holes."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    inside = (x >= box[0]) & (x < box[2]) & (y >= box[1]) & (y < box[3])
    return (inside & ((7 * x + 13 * y) % 11 > 1)).to(torch.uint8)


def targets(side):
    def of(objects):
        boxes = [[edge * side / 64 for edge in box] for _, box in objects]
        masks = [mask(box, side) for box in boxes]
        return {
            "boxes": torch.tensor(boxes, dtype=torch.float64).reshape(-1, 4),
            "labels": torch.tensor([kind + 1 for kind, _ in objects], dtype=torch.int64),
            "masks": torch.stack(masks) if masks else torch.zeros(0, side, side, dtype=torch.uint8),
        }

    return [of(objects) for objects in OBJECTS]


def fill(model):
    """Linear weights are [in, out] in ours. Those of the last layers are an eighth of the formula's, so that boxes have an extent and scores are not all 0 or 1."""
    turned = {f"{name}.weight" for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            shape = tuple(tensor.shape)
            ours = torch.from_numpy(values(name, shape[::-1] if name in turned else shape))
            ours = ours / 8 if name.endswith(LAST) else ours
            tensor.copy_(ours.t() if name in turned else ours)
    return turned


def forward(model, images, side):
    """Features, anchors, what the proposal network says, and what is found, in pictures of one pixel's width."""
    shown, _ = model.transform(images)
    features = model.backbone(shown.tensors)
    for level, feature in enumerate(features.values()):
        yield line(f"level{level}", feature)
    anchors = model.rpn.anchor_generator(shown, list(features.values()))
    yield line("anchors", anchors[0] / side)
    objectness, deltas = rpn.concat_box_prediction_layers(*model.rpn.head(list(features.values())))
    yield line("proposals", torch.cat([objectness, deltas], 1))
    found = model(images)
    yield line("found.boxes", torch.cat([one["boxes"] for one in found]) / side)
    yield line("found.scores", torch.cat([one["scores"] for one in found]))
    yield line("found.classes", torch.cat([one["labels"] - 1 for one in found]))
    areas = [(one["masks"] > 0.5).sum((1, 2, 3)) for one in found]
    yield line("found.masks", torch.cat(areas) / side**2)


def regions():
    """RoIAlign of levels for pictures of 64 x 64, and its gradients."""
    def level(n):
        shape = (2, 3, 16 >> n, 16 >> n)
        data = sequence(f"level{n}", 2 * 3 * (16 >> n) ** 2)
        return torch.from_numpy(data.reshape(shape)).double().requires_grad_()

    levels = {str(n): level(n) for n in range(4)}
    boxes = [torch.tensor([box for at, box in REGIONS if at == row], dtype=torch.float64) for row in range(2)]
    y = MultiScaleRoIAlign(list(levels), 7, 2)(levels, boxes, [(64, 64)] * 2)
    yield line("regions", y)
    slopes = torch.from_numpy(sequence("slopes", y.numel())).reshape(y.shape)
    (y * slopes).sum().backward()
    for n, one in levels.items():
        yield line(f"regions.{n}", one.grad)


def training(model, images, side, turned):
    losses = model.train()(images, targets(side))
    loss = sum(losses.values())
    loss.backward()
    yield f"loss {loss.item()!r}"
    for name, one in losses.items():
        yield f"{name} {one.item()!r}"
    for name, parameter in model.named_parameters():
        yield line(name, parameter.grad.t() if name in turned else parameter.grad)


def written(name, lines):
    pathlib.Path(__file__).with_name(f"{name}.txt").write_text("".join(f"{one}\n" for one in lines))


def first(count, device=None):
    return torch.arange(count)


if __name__ == "__main__":
    published = detection.maskrcnn_resnet50_fpn(weights=None, weights_backbone=None)
    expected = [name for name in published.state_dict() if "num_batches" not in name]
    assert expected == list(build(*FULL).state_dict()), "the names are those of torchvision's own"
    print(sum(parameter.numel() for parameter in build(*FULL).parameters()), "parameters")
    for case in sys.argv[1:] or CASES:
        sizes, side = CASES[case]
        model = build(*sizes)
        turned = fill(model)
        model.double().eval()
        model.transform.resize = lambda image, target: (image, target)
        pictures = (1 + sequence("input", 3 * 3 * side * side).reshape(3, 3, side, side)) / 2
        images = list(torch.from_numpy(pictures).double())
        with torch.no_grad():
            written(case, list(forward(model, images, side)))
        with mock.patch.object(_utils.torch, "randperm", first):
            written(f"{case}_train", training(model, images, side, turned))
    written("mask_rcnn_regions", regions())
