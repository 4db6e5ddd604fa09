//! The cost of each unit of a model on a device: the time of its forward and backward pass over a micro-batch.

use super::Parts;
use super::boundary::Boundary;
use super::micro::part;
use crate::TrainError;
use crate::device::Place;
use crate::models::units::Activation;
use crate::number::real;
use crate::parallel::shard;
use crate::parameters;
use crate::task::classification::standard_input;
use crate::task::network::{Network, leaves};
use burn::tensor::{Tensor, TensorData};
use std::time::Instant;

/// The number of passes through a unit before a measurement, and within one.
const WARM_UP: u32 = 3;
const TIMES: u32 = 5;

/// The number of measurements. The shortest counts, because other work on the host only makes a time longer.
const MEASUREMENTS: u32 = 4;

/// Returns the cost of each unit: in seconds on a device, and in floating-point operations on the host. There only the
/// model should decide how it is cut.
///
/// Only one unit's parameters are on the device at a time. The passes compile and tune the stages' kernels. Calls
/// `beat` before each pass.
///
/// # Errors
/// If the data cannot be read or the device fails.
pub fn costs(parts: Parts, place: &Place, beat: &dyn Fn()) -> Result<Vec<f64>, TrainError> {
    let Parts { model, precision, data, seed, batch, micro_batches } = parts;
    let Some(made) = model.units() else { panic!("the model is not made of units") };
    let units = made.units(data.width());
    if matches!(place, Place::Host) {
        return Ok(units.iter().map(|unit| real(unit.flops)).collect());
    }
    let indices: Vec<usize> = (0..batch.min(data.train_len())).collect();
    let rows = shard(&indices, 0, micro_batches);
    let samples = data.train(seed, 1, &indices)?;
    let input = standard_input(part(&samples, rows).inputs, &place.device());
    let (param_specs, statistics) = (model.param_specs(), model.statistics());
    let (mut costs, mut activation) = (Vec::new(), None::<Boundary>);
    let mut network = Network::part(model, [Vec::new(), Vec::new()], precision, place);
    for (number, unit) in units.iter().enumerate() {
        let own = param_specs.iter().enumerate().filter(|(_, param_spec)| unit.has(&param_spec.name));
        let own: Vec<_> = own.map(|(place, param_spec)| (place, param_spec.clone())).collect();
        let running = statistics.iter().filter(|param_spec| unit.has(&param_spec.name)).cloned().collect();
        let of_unit = own.iter().map(|(_, param_spec)| param_spec.clone()).collect();
        network = Network::part(network.model, [of_unit, running], precision, place);
        let upload = |values: Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), &place.device());
        let values: Vec<Tensor<1>> = parameters::initial_of(&own, seed).into_iter().map(upload).collect();
        let mut once = || {
            beat();
            let leaves = leaves(&values);
            let (model, mut ctx) = network.training(&leaves, [seed, 1]);
            let input_leaves = activation.clone().map(Boundary::leaves);
            let taken = match input_leaves.clone() {
                Some(input_leaves) => input_leaves.activation(),
                None => Activation::Input(input.clone().taped(&ctx)),
            };
            let made = Boundary::of(super::run(model, &mut ctx, number..number + 1, taken, 0));
            let values = made.clone().off_tape();
            let mut tape = made.root(values.ones()).backward();
            let gradients = input_leaves.map(|input_leaves| input_leaves.gradients(&mut tape));
            (values, gradients)
        };
        for _ in 0..WARM_UP {
            once();
        }
        place.sync()?;
        let (mut least, mut last) = (f64::INFINITY, None);
        for _ in 0..MEASUREMENTS {
            let start = Instant::now();
            for _ in 0..TIMES {
                last = Some(once().0);
            }
            place.sync()?;
            least = least.min(start.elapsed().as_secs_f64() / f64::from(TIMES));
        }
        costs.push(least);
        activation = last;
    }
    Ok(costs)
}
