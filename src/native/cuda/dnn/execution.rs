//! Turns an operation of cuDNN's graph interface into an executable plan. The library's heuristics choose it, never a
//! measurement, so that it is the same in each run.

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

/// The alignment of operands, in bytes.
const ALIGNMENT: i64 = 16;

/// `CUDNN_HEUR_MODE_A`, then `CUDNN_HEUR_MODE_FALLBACK`, which proposes the slow general engines.
const MODES: [c_int; 2] = [3, 2];

/// `CUDNN_ATTR_ENGINEHEUR_RESULTS`.
const RESULTS: c_int = 202;
/// `CUDNN_ATTR_ENGINECFG_ENGINE`.
const ENGINE_OF: c_int = 300;
/// `CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE`.
const WORKSPACE_SIZE: c_int = 402;
/// `CUDNN_ATTR_ENGINE_NUMERICAL_NOTE`.
const NUMERICAL_NOTE: c_int = 1303;

/// Numerical effects of an engine: some of `cudnnBackendNumericalNote_t`.
pub mod note {
    use std::ffi::c_int;

    /// It uses tensor cores: float32 is rounded to TF32.
    pub const TENSOR_CORE: c_int = 0;
    /// It rounds operands to a shorter format.
    pub const DOWN_CONVERT_INPUTS: c_int = 1;
    /// It sums in a shorter format than requested.
    pub const REDUCED_PRECISION_REDUCTION: c_int = 2;
    /// The order of its sums may vary.
    pub const NONDETERMINISTIC: c_int = 4;
}

/// The GPU that a plan is for, as an attribute for each step of planning.
pub struct Target<'a> {
    graph: Option<(c_int, Value<'a>)>,
    heuristics: Option<(c_int, Value<'a>)>,
    plan: Option<(c_int, Value<'a>)>,
}

impl<'a> Target<'a> {
    /// Returns the GPU of a handle, whose context is current.
    pub fn handle(handle: Opaque) -> Self {
        // CUDNN_ATTR_OPERATIONGRAPH_HANDLE and CUDNN_ATTR_EXECUTION_PLAN_HANDLE.
        let [graph, plan] = [800, 400].map(|attribute| Some((attribute, Value::Handle(handle))));
        Self { graph, heuristics: None, plan }
    }

    /// Returns a GPU by its properties; it need not exist.
    #[cfg(test)]
    pub fn properties(properties: &'a Object) -> Self {
        // CUDNN_ATTR_ENGINEHEUR_DEVICEPROP and CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP.
        let [heuristics, plan] = [204, 407].map(|attribute| Some((attribute, Value::Object(properties))));
        Self { graph: None, heuristics, plan }
    }
}

/// The requirements for a plan.
pub struct Demand<'a> {
    /// Notes that an engine must not have.
    pub forbidden: &'a [c_int],
    /// The maximum workspace in bytes.
    pub workspace: usize,
}

/// An executable plan.
pub struct Plan {
    graph: &'static Graph,
    /// cuDNN does not promise that two threads may run a plan at once. The plan is kept with the objects it was made
    /// from.
    held: Mutex<(Object, Vec<Object>)>,
    /// The size of its workspace in bytes.
    pub workspace: usize,
}

/// Returns the id of a tensor in graphs and operand lists, from its index.
fn id(place: usize) -> Result<i64, Fault> {
    long(place).map(|place| place + 1)
}

/// A tensor of a graph: its format, shape [count, channels, height, width] and storage.
#[derive(Clone, Copy)]
pub struct Operand {
    pub format: Format,
    /// The lengths of the axes in cuDNN's order.
    pub shape: [usize; 4],
    pub storage: Storage,
}

impl Operand {
    /// Returns the descriptor of the operand with this index in [`Plan::run`].
    pub fn given(self, graph: &'static Graph, place: usize) -> Result<Object, Fault> {
        self.described(graph, place, false)
    }

    /// Returns the descriptor of an intermediate tensor, which is never written to memory. Its index must differ from
    /// those of the operands.
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

/// Returns the first acceptable plan that the library proposes. `parts` are the objects that the operations refer to.
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

/// Returns the library's proposals, the best first.
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

/// Returns a configuration's plan and the size of its workspace, or `None` if it is not acceptable.
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
    /// Runs the plan on operands in the order of their indices. They must be on the plan's GPU, in its layout, and
    /// aligned to 16 bytes. The workspace must have the size that the plan asks for. The GPU's context must be current,
    /// and the handle must belong to this thread.
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

    /// Returns the engine's CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE: 0 if it is compiled at run time.
    #[cfg(test)]
    pub fn behaviours(&self) -> Vec<c_int> {
        let held = self.held.lock().unwrap();
        held.1.last().unwrap().object(ENGINE_OF, ENGINE).unwrap().behaviours(1305).unwrap()
    }

    /// Returns the engine's numerical notes.
    #[cfg(test)]
    pub fn notes(&self) -> Vec<c_int> {
        let held = self.held.lock().unwrap();
        held.1.last().unwrap().object(ENGINE_OF, ENGINE).unwrap().notes(NUMERICAL_NOTE).unwrap()
    }
}
