//! A convolution with the bias of each channel, and the rectifier behind it, as one kernel: the sums are rounded once, and nothing between
//! is written to memory.

use super::{Convolution, Kind, Part, WORKSPACE, operation, output, windows};
use crate::cuda::Fault;
use crate::cuda::dnn::descriptors::{self, Plans, ask, code};
use crate::cuda::dnn::execution::{self, Demand, Operand, Target};
use crate::cuda::dnn::graph::{APPLY, Graph, Object, POINTWISE, Value, graph};
use crate::cuda::dnn::job::queue;
use crate::cuda::dnn::{card, primitive, tensor};
use crate::cuda::format;
use crate::cuda::plan::Format;
use burn::tensor::Tensor;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex};

/// Images, weights, result and bias.
type Plan = execution::Plan<4>;

/// With the rectifier or without.
static PLANS: Plans<(Kind, bool), Plan> = LazyLock::new(Mutex::default);

/// Images `[count, channels in, height, width]` through weights `[channels out, channels in, height, width]`, plus a bias `[channels out]`,
/// all in one number format; with `rectified` the larger of that and zero. Arithmetic is in float32. None where cuDNN cannot do this.
pub fn convolve_biased(
    x: &Tensor<4>,
    w: &Tensor<4>,
    bias: &Tensor<1>,
    rectified: bool,
    how: Convolution,
) -> Option<Tensor<4>> {
    let (input, weight, dtype, card) = (x.dims(), w.dims(), x.dtype(), card(x)?);
    let alike = |of: Option<usize>, other| of == Some(card) && other == dtype;
    let fits = alike(self::card(w), w.dtype()) && alike(self::card(bias), bias.dtype()) && bias.dims() == [weight[0]];
    let output = output(input, weight, how).filter(|_| fits)?;
    let kind = Kind { card, part: Part::Result, format: format(dtype)?, input, weight, output, how };
    let plan = descriptors::plan(&PLANS, &(kind, rectified), |dnn| {
        let graph = graph().ok_or(Fault::Absent)?;
        ask(dnn, card, |handle| planned(graph, kind, rectified, &Target::handle(handle)))
    })?;
    let lying = |operand: &Tensor<4>| primitive(&how.storage.lying(operand.clone()));
    let given = [lying(x)?, lying(w)?, primitive(bias)?];
    let shape = how.storage.shape(output);
    let [made] = queue(given, [(shape.into(), dtype)], plan.workspace, |_, handle, places| {
        let ([x, w, bias], [y]) = (places.inputs, places.outputs);
        plan.run(handle, [x, w, y, bias], places.workspace)
    });
    Some(how.storage.named(tensor(made)))
}

/// The first plan that will do.
pub(super) fn planned(graph: &'static Graph, kind: Kind, rectified: bool, target: &Target<'_>) -> Result<Plan, Fault> {
    let channels = [1, kind.weight[0], 1, 1];
    let mut parts = Vec::with_capacity(12);
    for (place, shape) in [kind.input, kind.weight, kind.output, channels].into_iter().enumerate() {
        parts.push(kind.operand(shape).given(graph, place)?);
    }
    let between = |place| Operand { format: Format::F32, ..kind.operand(kind.output) }.between(graph, place);
    let (convolved, windows, add) = (between(4)?, windows(graph, kind.how)?, function(graph, 0)?);
    let [x, w, y, bias] = parts.as_slice() else { unreachable!("four operands") };
    let mut operations = vec![operation(graph, Part::Result, [x, w, &convolved, &windows])?];
    let mut more = Vec::new();
    if rectified {
        let (sum, relu) = (between(5)?, function(graph, RELU)?);
        operations.push(apply(graph, &add, [&convolved, &sum], Some(bias))?);
        operations.push(apply(graph, &relu, [&sum, y], None)?);
        more.extend([sum, relu]);
    } else {
        operations.push(apply(graph, &add, [&convolved, y], Some(bias))?);
    }
    more.extend([convolved, windows, add]);
    parts.extend(more);
    let demand = Demand { forbidden: kind.forbidden(), workspace: WORKSPACE, passed_over: 0 };
    execution::plan(graph, operations, parts, target, &demand)
}

/// `CUDNN_POINTWISE_RELU_FWD`; `CUDNN_POINTWISE_ADD` is 0.
const RELU: c_int = 100;

/// A function of each value, in float32.
fn function(graph: &'static Graph, mode: c_int) -> Result<Object, Fault> {
    let attributes = [
        (0, Value::Pointwise(mode)),           // CUDNN_ATTR_POINTWISE_MODE
        (1, Value::Format(code(Format::F32))), // CUDNN_ATTR_POINTWISE_MATH_PREC
        // CUDNN_ATTR_POINTWISE_NAN_PROPAGATION: CUDNN_PROPAGATE_NAN. What is no number stays none.
        (2, Value::Nan(1)),
    ];
    Object::new(graph, POINTWISE, &attributes)
}

/// The function of a tensor, and of another one beside it, into a third.
fn apply(
    graph: &'static Graph,
    function: &Object,
    [from, to]: [&Object; 2],
    beside: Option<&Object>,
) -> Result<Object, Fault> {
    // CUDNN_ATTR_OPERATION_POINTWISE_… _PW_DESCRIPTOR, _XDESC, _YDESC and _BDESC.
    let mut attributes = vec![(750, Value::Object(function)), (751, Value::Object(from)), (753, Value::Object(to))];
    attributes.extend(beside.map(|beside| (752, Value::Object(beside))));
    Object::new(graph, APPLY, &attributes)
}
