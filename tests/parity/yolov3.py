"""Results of YOLOv3 with PyTorch, in float64. See src/train/models/parity.rs.

The network is written from the paper and from the layers of Darknet's configuration, the loss place by place. `python yolov3.py` writes every file that the tests read;
`python yolov3.py NAME…` writes those of these names; `python yolov3.py flops` counts operations.
"""

import pathlib
import sys

import torch
from formula import below, images, line, sequence, values
from torch import nn
from torch.nn import functional

ANCHORS = [(10, 13), (16, 30), (33, 23), (30, 61), (62, 45), (59, 119), (116, 90), (156, 198), (373, 326)]


class Convolution(nn.Sequential):
    def __init__(self, n, before, to, side, stride=1, normed=True):
        super().__init__()
        self.add_module(f"conv_{n}", nn.Conv2d(before, to, side, stride, side // 2, bias=not normed))
        if normed:
            self.add_module(f"batch_norm_{n}", nn.BatchNorm2d(to))
            self.add_module(f"leaky_{n}", nn.LeakyReLU(0.1))


class Darknet(nn.Module):
    """Layers by their number; each knows which answers it takes."""

    def __init__(self, blocks, base, classes):
        super().__init__()
        self.module_list, self.takes, self.outputs, widths = nn.ModuleList(), [], [], []

        def add(layer, takes, width):
            self.module_list.append(layer)
            self.takes.append(takes)
            widths.append(width)
            return len(widths) - 1

        def convolution(to, side, stride=1, normed=True):
            n = len(widths)
            return add(Convolution(n, widths[-1] if widths else 3, to, side, stride, normed), [n - 1], to)

        convolution(base, 3)
        ends = []
        for stage, count in enumerate(blocks):
            width = base << (stage + 1)
            end = convolution(width, 3, 2)
            for _ in range(count):
                convolution(width // 2, 1)
                after = convolution(width, 3)
                end = add(nn.Identity(), [after, end, "+"], width)
            ends.append(end)
        for level, width in enumerate([base * 32, base * 16, base * 8]):
            if level:
                add(nn.Identity(), [branch], widths[branch])
                convolution(width // 2, 1)
                small = add(nn.Upsample(scale_factor=2), [len(widths) - 1], width // 2)
                skip = ends[4 - level]
                add(nn.Identity(), [small, skip, "cat"], width // 2 + widths[skip])
            for _ in range(3):
                branch = convolution(width // 2, 1)
                convolution(width, 3)
            self.outputs.append(convolution(3 * (5 + classes), 1, normed=False))
            add(nn.Identity(), [len(widths) - 1], 0)

    def forward(self, x):
        answers = []
        for layer, takes in zip(self.module_list, self.takes):
            found = [x if n == -1 else answers[n] for n in takes if not isinstance(n, str)]
            if takes[-1] == "+":
                found = [found[0] + found[1]]
            elif takes[-1] == "cat":
                found = [torch.cat(found, 1)]
            answers.append(layer(found[0]))
        return [answers[n] for n in self.outputs]


def iou(a, b):
    """Of boxes left, top, right, bottom."""
    common = [torch.clamp(torch.minimum(a[n + 2], b[n + 2]) - torch.maximum(a[n], b[n]), min=0) for n in (0, 1)]
    common = common[0] * common[1]
    area = lambda box: (box[2] - box[0]) * (box[3] - box[1])
    return common / (area(a) + area(b) - common)


def best_anchor(width, height, anchors):
    shares = []
    for a, b in anchors:
        common = min(a, width) * min(b, height)
        shares.append(common / (a * b + width * height - common))
    return max(range(9), key=lambda n: (shares[n], -n))


def picture_loss(outputs, objects, anchors, side, margins):
    """The loss of one picture: outputs [3, 5 + classes, cells, cells] of each level, objects (class, left, top, right, bottom)."""
    loss = 0
    assigned = {}
    for kind, left, top, right, bottom in objects:
        width, height = right - left, bottom - top
        n = best_anchor(width, height, anchors)
        level, cells = 2 - n // 3, outputs[2 - n // 3].shape[-1]
        x, y = (left + right) / 2 / side * cells, (top + bottom) / 2 / side * cells
        column, row = min(int(x), cells - 1), min(int(y), cells - 1)
        wanted = torch.tensor([x - column, y - row, width / anchors[n][0], height / anchors[n][1]], dtype=torch.float64)
        assigned[level, n % 3, row, column] = (kind, wanted, 2 - width * height / side**2)
    for (level, n, row, column), (kind, wanted, weight) in assigned.items():
        entry = outputs[level][n, :, row, column]
        centre = functional.binary_cross_entropy_with_logits(entry[:2], wanted[:2], reduction="sum")
        extent = 0.5 * ((entry[2:4] - wanted[2:].log()) ** 2).sum()
        classes = functional.one_hot(torch.tensor(kind), len(entry) - 5).double()
        loss = loss + weight * (centre + extent) - functional.logsigmoid(entry[4])
        loss = loss + functional.binary_cross_entropy_with_logits(entry[5:], classes, reduction="sum")
    for level, output in enumerate(outputs):
        cells = output.shape[-1]
        grid = torch.arange(cells, dtype=torch.float64)
        for n in range(3):
            entry, (width, height) = output[n].detach(), anchors[3 * (2 - level) + n]
            x = (entry[0].sigmoid() + grid[None, :]) * (side / cells)
            y = (entry[1].sigmoid() + grid[:, None]) * (side / cells)
            half_width, half_height = entry[2].exp() * width / 2, entry[3].exp() * height / 2
            boxes = [x - half_width, y - half_height, x + half_width, y + half_height]
            counts = torch.ones(cells, cells, dtype=torch.bool)
            for _, *truth in objects:
                shares = iou(boxes, [torch.tensor(edge, dtype=torch.float64) for edge in truth])
                margins.append((shares - 0.5).abs().min().item())
                counts &= shares <= 0.5
            ignored = (~counts).sum().item()
            for at, m, row, column in assigned:
                if (at, m) == (level, n):
                    ignored -= not counts[row, column]
                    counts[row, column] = False
            margins[0] += ignored
            loss = loss + functional.softplus(output[n, 4][counts]).sum()
    return loss


def truths(rows, count, side, classes):
    """Objects of every row: the centre anywhere, sides between a sixteenth and ten sixteenths of the picture's, cut off at its border."""
    kinds = below("kinds", rows * count, classes).tolist()
    shares = (sequence("objects", rows * count * 4).astype(float) / 2 + 0.5).reshape(rows, count, 4)
    objects = []
    for row in range(rows):
        objects.append([])
        for n in range(count):
            x, y, width, height = shares[row, n].tolist()
            # Whole pixels, so that both sides have the same numbers.
            edges = []
            for middle, extent in ((x, width), (y, height)):
                half = int((1 + extent * 9) / 32 * side) + 1
                centre = int(middle * side)
                edges.append((max(centre - half, 0), min(centre + half, side)))
            (left, right), (top, bottom) = edges
            objects[-1].append((kinds[row * count + n], left, top, right, bottom))
    return objects


TINY = ([1] * 5, 4, 3)
FULL = ([1, 2, 8, 8, 4], 32, 80)
SIXTH = [(width / 6, height / 6) for width, height in ANCHORS]

# Name: network, anchors, rows, side, objects of a row, whether it trains.
CASES = {
    "yolov3_tiny_train": (TINY, SIXTH, 4, 64, 5, True),
    "yolov3_tiny_eval": (TINY, SIXTH, 3, 96, 11, False),
    "yolov3_128": (FULL, ANCHORS, 3, 128, 5, True),
    "yolov3_416": (FULL, ANCHORS, 2, 416, 7, True),
}


def lines(network, anchors, rows, side, count, trains):
    model = Darknet(*network)
    state = {name: tensor for name, tensor in model.state_dict().items() if "num_batches" not in name}
    with torch.no_grad():
        for name, tensor in state.items():
            tensor.copy_(torch.from_numpy(values(name, tuple(tensor.shape))))
    model.double().train(trains)
    answers = model(images(rows, 3, side).double())
    entries = 5 + network[2]
    levels = [answer.reshape(rows, 3, entries, *answer.shape[2:]) for answer in answers]
    margins = [0]
    objects = truths(rows, count, side, network[2])
    loss = sum(picture_loss([level[row] for level in levels], objects[row], anchors, side, margins) for row in range(rows)) / rows
    loss.backward()
    print(f"{side}: {margins[0]} places ignored, no overlap nearer to a half than {min(margins[1:]):.1e}", file=sys.stderr)
    yield f"loss {loss.item()!r}"
    yield line("answers", torch.cat([level.transpose(1, 2).reshape(rows, entries, -1) for level in levels], 2))
    for name, parameter in model.named_parameters():
        yield line(name, parameter.grad)
    for name, buffer in model.named_buffers():
        if "num_batches" not in name:
            yield line(name, buffer)


def flops():
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        model = Darknet(*FULL)
        model(torch.empty(1, 3, 416, 416))
    return counter.get_total_flops(), sum(parameter.numel() for parameter in model.parameters())


if __name__ == "__main__":
    if sys.argv[1:] == ["flops"]:
        print(*flops())
        sys.exit()
    for case in sys.argv[1:] or CASES:
        text = "".join(f"{one}\n" for one in lines(*CASES[case]))
        pathlib.Path(__file__).with_name(f"{case}.txt").write_text(text)
