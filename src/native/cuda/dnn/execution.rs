//! From an operation of cuDNN's graph interface to a plan that is ready to run: chosen once, by the library's own heuristics and never by measuring, so that it is the
//! same in each run.

use super::descriptors::code;
use super::graph::{
    CONFIGURATION, ENGINE, Graph, HEURISTICS, OPERANDS, OPERATIONS, Object, PLAN, TENSOR, Value, long, longs,
};
use super::storage::Storage;
use crate::cuda::Fault;
use crate::cuda::library::Opaque;
use crate::cuda::plan::Format;
use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

/// What the address of an operand is a multiple of.
const ALIGNMENT: i64 = 16;

/// `CUDNN_HEUR_MODE_A`, then `CUDNN_HEUR_MODE_FALLBACK`, which has the slow and general engines.
const MODES: [c_int; 2] = [3, 2];

/// `CUDNN_ATTR_ENGINEHEUR_RESULTS`.
const RESULTS: c_int = 202;
/// `CUDNN_ATTR_ENGINECFG_ENGINE`.
const ENGINE_OF: c_int = 300;
/// `CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE`.
const WORKSPACE_SIZE: c_int = 402;
/// `CUDNN_ATTR_ENGINE_NUMERICAL_NOTE`.
const NUMERICAL_NOTE: c_int = 1303;

/// What an engine may do to numbers: some of `cudnnBackendNumericalNote_t`.
pub mod note {
    use std::ffi::c_int;

    /// Products are those of tensor cores: float32 is rounded to TF32.
    pub const TENSOR_CORE: c_int = 0;
    /// Operands are rounded to a shorter format.
    pub const DOWN_CONVERT_INPUTS: c_int = 1;
    /// Sums are in a shorter format than was asked for.
    pub const REDUCED_PRECISION_REDUCTION: c_int = 2;
    /// Sums are in an order that is not always the same.
    pub const NONDETERMINISTIC: c_int = 4;
}

/// The card that a plan is for, as the library is told of it at each step.
pub struct Target<'a> {
    graph: Option<(c_int, Value<'a>)>,
    heuristics: Option<(c_int, Value<'a>)>,
    plan: Option<(c_int, Value<'a>)>,
}

impl<'a> Target<'a> {
    /// The card of a handle, whose context is current.
    pub fn handle(handle: Opaque) -> Self {
        // CUDNN_ATTR_OPERATIONGRAPH_HANDLE and CUDNN_ATTR_EXECUTION_PLAN_HANDLE.
        let [graph, plan] = [800, 400].map(|attribute| Some((attribute, Value::Handle(handle))));
        Self { graph, heuristics: None, plan }
    }

    /// A card that need not be there, by its properties.
    #[cfg(test)]
    pub fn properties(properties: &'a Object) -> Self {
        // CUDNN_ATTR_ENGINEHEUR_DEVICEPROP and CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP.
        let [heuristics, plan] = [204, 407].map(|attribute| Some((attribute, Value::Object(properties))));
        Self { graph: None, heuristics, plan }
    }
}

/// Which plans will do.
pub struct Demand<'a> {
    /// Notes of which an engine may have none.
    pub forbidden: &'a [c_int],
    /// Bytes beside the operands that a plan may take.
    pub workspace: usize,
}

/// Operations that are ready to run.
pub struct Plan {
    graph: &'static Graph,
    /// The library does not promise that one plan may be run on two threads at a time. Behind the plan is what it was made of.
    held: Mutex<(Object, Vec<Object>)>,
    /// Bytes that it needs beside the operands.
    pub workspace: usize,
}

/// The number by which a graph and its operands know a tensor, by its place among them.
fn id(place: usize) -> Result<i64, Fault> {
    long(place).map(|place| place + 1)
}

/// A tensor of a graph: its format, shape [count, channels, height, width] and storage.
#[derive(Clone, Copy)]
pub struct Operand {
    /// The number format.
    pub format: Format,
    /// The axes in the order in which cuDNN counts them.
    pub shape: [usize; 4],
    /// How they lie.
    pub storage: Storage,
}

impl Operand {
    /// The descriptor of the operand with this place among those of [`Plan::run`].
    pub fn given(self, graph: &'static Graph, place: usize) -> Result<Object, Fault> {
        self.described(graph, place, false)
    }

    /// The descriptor of an intermediate tensor, which is never written to memory. No operand has its place.
    pub fn between(self, graph: &'static Graph, place: usize) -> Result<Object, Fault> {
        self.described(graph, place, true)
    }

    fn described(self, graph: &'static Graph, place: usize, intermediate: bool) -> Result<Object, Fault> {
        let shape = longs(self.shape)?;
        let attributes = [
            (901, Value::Format(code(self.format))), // CUDNN_ATTR_TENSOR_DATA_TYPE
            (902, Value::Integers(&shape)),          // CUDNN_ATTR_TENSOR_DIMENSIONS
            (903, Value::Integers(&self.storage.strides(shape))), // CUDNN_ATTR_TENSOR_STRIDES
            (906, Value::Integers(&[id(place)?])),   // CUDNN_ATTR_TENSOR_UNIQUE_ID
            (900, Value::Integers(&[ALIGNMENT])),    // CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT
            (907, Value::Flag(intermediate)),        // CUDNN_ATTR_TENSOR_IS_VIRTUAL
        ];
        Object::new(graph, TENSOR, &attributes)
    }
}

/// The first plan that the library proposes for operations and that will do. `parts` are the objects that the operations refer to.
pub fn plan(
    graph: &'static Graph,
    operations: Vec<Object>,
    mut parts: Vec<Object>,
    target: &Target<'_>,
    demand: &Demand<'_>,
) -> Result<Plan, Fault> {
    let places: Vec<Opaque> = operations.iter().map(Object::place).collect();
    let mut attributes = vec![(801, Value::Objects(&places))]; // CUDNN_ATTR_OPERATIONGRAPH_OPS
    attributes.extend(target.graph);
    let whole = Object::new(graph, OPERATIONS, &attributes)?;
    let mut failed = Fault::Runtime("no engine that is exact and deterministic and takes little memory".to_owned());
    for mode in MODES {
        let proposed = proposals(graph, &whole, target, mode).unwrap_or_else(|fault| {
            failed = fault;
            Vec::new()
        });
        for configuration in proposed {
            match ready(graph, &configuration, target, demand) {
                Ok(Some((plan, workspace))) => {
                    parts.extend(operations);
                    parts.extend([whole, configuration]);
                    return Ok(Plan { graph, held: Mutex::new((plan, parts)), workspace });
                }
                Ok(None) => {}
                Err(fault) => failed = fault,
            }
        }
    }
    Err(failed)
}

/// What the library would do, the best first.
fn proposals(
    graph: &'static Graph,
    operations: &Object,
    target: &Target<'_>,
    mode: c_int,
) -> Result<Vec<Object>, Fault> {
    // CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH and CUDNN_ATTR_ENGINEHEUR_MODE.
    let mut attributes = vec![(201, Value::Object(operations)), (200, Value::Heuristics(mode))];
    attributes.extend(target.heuristics);
    Object::new(graph, HEURISTICS, &attributes)?.objects(RESULTS, CONFIGURATION)
}

/// A configuration's plan and the bytes that it needs; none where it will not do.
fn ready(
    graph: &'static Graph,
    configuration: &Object,
    target: &Target<'_>,
    demand: &Demand<'_>,
) -> Result<Option<(Object, usize)>, Fault> {
    let notes = configuration.object(ENGINE_OF, ENGINE)?.notes(NUMERICAL_NOTE)?;
    if notes.iter().any(|note| demand.forbidden.contains(note)) {
        return Ok(None);
    }
    let mut attributes = vec![(401, Value::Object(configuration))]; // CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG
    attributes.extend(target.plan);
    let plan = Object::new(graph, PLAN, &attributes)?;
    let workspace = usize::try_from(plan.integer(WORKSPACE_SIZE)?).ok();
    Ok(workspace.filter(|workspace| *workspace <= demand.workspace).map(|workspace| (plan, workspace)))
}

impl Plan {
    /// Computes with operands in the order of their places. They are on the card that the plan was made for, lie as it was told, and begin at multiples of 16
    /// bytes; the workspace is as long as the plan asks. The context of the card is current, and the handle is of this thread.
    pub fn run(&self, handle: Opaque, operands: &[Opaque], workspace: Opaque) -> Result<(), Fault> {
        let ids = (0..operands.len()).map(id).collect::<Result<Vec<_>, _>>()?;
        let attributes = [
            (1000, Value::Integers(&ids)),          // CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS
            (1001, Value::Addresses(operands)),     // CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS
            (1003, Value::Addresses(&[workspace])), // CUDNN_ATTR_VARIANT_PACK_WORKSPACE
        ];
        let operands = Object::new(self.graph, OPERANDS, &attributes)?;
        self.held.lock().unwrap_or_else(PoisonError::into_inner).0.execute(handle, &operands)
    }

    /// How the engine comes to be, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: 0 if it is compiled.
    #[cfg(test)]
    pub fn behaviours(&self) -> Vec<c_int> {
        let held = self.held.lock().unwrap();
        held.1.last().unwrap().object(ENGINE_OF, ENGINE).unwrap().behaviours(1305).unwrap()
    }

    /// What the engine does to numbers.
    #[cfg(test)]
    pub fn notes(&self) -> Vec<c_int> {
        let held = self.held.lock().unwrap();
        held.1.last().unwrap().object(ENGINE_OF, ENGINE).unwrap().notes(NUMERICAL_NOTE).unwrap()
    }
}
