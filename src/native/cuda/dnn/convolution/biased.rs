//! A convolution with bias, residual and ReLU in one kernel: sums are rounded once, and no intermediate result is
//! written to memory.

use super::{Convolution, Kind, Part, WORKSPACE, operation, output, windows};
use crate::cuda::Fault;
use crate::cuda::dnn::descriptors::{self, Plans, ask, code};
use crate::cuda::dnn::execution::{self, Demand, Operand, Plan, Target};
use crate::cuda::dnn::graph::{APPLY, Graph, Object, POINTWISE, Value, graph};
use crate::cuda::dnn::job::queue_all;
use crate::cuda::dnn::{card, primitive, tensor};
use crate::cuda::format;
use crate::cuda::plan::Format;
use crate::cuda::submit::pointer;
use burn::tensor::Tensor;
use std::ffi::c_int;
use std::sync::{LazyLock, Mutex};

/// Optional operations after the convolution, in the same kernel: adding a residual, and ReLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Epilogue {
    pub residual: bool,
    pub rectified: bool,
}

/// The operands are images, weights, result, bias, and the residual if there is one.
static PLANS: Plans<(Kind, Epilogue), Plan> = LazyLock::new(Mutex::default);

/// Convolves images `[count, channels in, height, width]` with weights `[channels out, channels in, height, width]`,
/// and adds a bias `[channels out]` and a residual of the result's shape. With `rectified`, ReLU follows. All tensors
/// have one number format; arithmetic is in float32. `None` if cuDNN does not support it.
pub fn convolve_biased(
    x: &Tensor<4>,
    w: &Tensor<4>,
    bias: &Tensor<1>,
    residual: Option<&Tensor<4>>,
    rectified: bool,
    how: Convolution,
) -> Option<Tensor<4>> {
    let (input, weight, dtype, card) = (x.dims(), w.dims(), x.dtype(), card(x)?);
    let alike = |of: Option<usize>, other| of == Some(card) && other == dtype;
    let fits = alike(self::card(w), w.dtype()) && alike(self::card(bias), bias.dtype()) && bias.dims() == [weight[0]];
    let output = output(input, weight, how).filter(|_| fits)?;
    if let Some(residual) = residual
        && !(alike(self::card(residual), residual.dtype()) && residual.dims() == output)
    {
        return None;
    }
    let kind = Kind { card, part: Part::Result, format: format(dtype)?, input, weight, output, how };
    let epilogue = Epilogue { residual: residual.is_some(), rectified };
    let plan = descriptors::plan(&PLANS, &(kind, epilogue), |dnn| {
        let graph = graph().ok_or(Fault::Absent)?;
        ask(dnn, card, |handle| planned(graph, kind, epilogue, &Target::handle(handle)))
    })?;
    let lying = |operand: &Tensor<4>| primitive(&how.storage.lying(operand.clone()));
    let mut given = vec![lying(x)?, lying(w)?, primitive(bias)?];
    if let Some(residual) = residual {
        given.push(lying(residual)?);
    }
    let shape = how.storage.shape(output);
    let mut made = queue_all(given, vec![(shape.into(), dtype)], [plan.workspace], |_, handle, places| {
        let order = places.inputs[..2].iter().chain(&places.outputs).chain(&places.inputs[2..]);
        let operands = order.map(|place| pointer(Some(place))).collect::<Result<Vec<_>, _>>()?;
        plan.run(handle, &operands, pointer(places.scratch.first())?)
    });
    made.pop().map(|made| how.storage.named(tensor(made)))
}

/// Returns the first acceptable plan.
pub(super) fn planned(
    graph: &'static Graph,
    kind: Kind,
    epilogue: Epilogue,
    target: &Target<'_>,
) -> Result<Plan, Fault> {
    let channels = [1, kind.weight[0], 1, 1];
    let shapes =
        [kind.input, kind.weight, kind.output, channels].into_iter().chain(epilogue.residual.then_some(kind.output));
    let given = shapes.enumerate().map(|(place, shape)| kind.operand(shape).given(graph, place));
    let given = given.collect::<Result<Vec<_>, _>>()?;
    let [x, w, y, bias, residual @ ..] = given.as_slice() else { unreachable!("four operands") };
    let between = |place| Operand { format: Format::F32, ..kind.operand(kind.output) }.between(graph, place);
    let (windows, add, relu) = (windows(graph, kind.how)?, function(graph, ADD)?, function(graph, RELU)?);
    // The operations after the sums, each with its second operand. The residual is first, because cuDNN has precompiled
    // kernels only for this order.
    let beside = residual.iter().chain([bias]).map(|operand| (&add, Some(operand)));
    let behind: Vec<_> = beside.chain(epilogue.rectified.then_some((&relu, None))).collect();
    // The operands have the smaller numbers.
    let sums = (5..5 + behind.len()).map(between).collect::<Result<Vec<_>, _>>()?;
    let mut operations = vec![operation(graph, Part::Result, [x, w, &sums[0], &windows])?];
    for (number, (function, beside)) in behind.iter().enumerate() {
        operations.push(apply(graph, function, [&sums[number], sums.get(number + 1).unwrap_or(y)], *beside)?);
    }
    let demand = Demand { forbidden: kind.forbidden(), workspace: WORKSPACE };
    let parts = given.into_iter().chain(sums).chain([windows, add, relu]).collect();
    execution::plan(graph, operations, parts, target, &demand)
}

/// `CUDNN_POINTWISE_ADD` and `CUDNN_POINTWISE_RELU_FWD`.
const ADD: c_int = 0;
const RELU: c_int = 100;

/// Describes a pointwise function in float32.
fn function(graph: &'static Graph, mode: c_int) -> Result<Object, Fault> {
    let attributes = [
        (0, Value::Pointwise(mode)),           // CUDNN_ATTR_POINTWISE_MODE
        (1, Value::Format(code(Format::F32))), // CUDNN_ATTR_POINTWISE_MATH_PREC
        // CUDNN_ATTR_POINTWISE_NAN_PROPAGATION: CUDNN_PROPAGATE_NAN, so that NaN stays NaN.
        (2, Value::Nan(1)),
    ];
    Object::new(graph, POINTWISE, &attributes)
}

/// Describes the application of a function to a tensor, with an optional second operand.
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
