use super::*;
use crate::parameters::Init;
use burn::tensor::{Device, TensorData};
use proptest::prelude::*;

/// The rules in float64, as in PyTorch's documentation.
struct Reference {
    rule: Rule,
    decay: Decay,
    step: i32,
    p: Vec<f64>,
    m: Vec<f64>,
    v: Vec<f64>,
}

impl Reference {
    fn new(rule: Rule, decay: Decay, p: &[f32]) -> Self {
        let zeros = vec![0.0; p.len()];
        Self { rule, decay, step: 0, p: p.iter().map(|p| f64::from(*p)).collect(), m: zeros.clone(), v: zeros }
    }

    fn step(&mut self, g: &[f32], rate: f64) {
        self.step += 1;
        for (i, g) in g.iter().map(|g| f64::from(*g)).enumerate() {
            let g = match self.decay {
                Decay::None => g,
                Decay::Coupled(decay) => g + decay * self.p[i],
                Decay::Decoupled(decay) => {
                    self.p[i] -= rate * decay * self.p[i];
                    g
                }
            };
            match self.rule {
                Rule::Sgd => self.p[i] -= rate * g,
                Rule::Momentum { momentum } => {
                    self.m[i] = momentum * self.m[i] + g;
                    self.p[i] -= rate * self.m[i];
                }
                Rule::Adam { beta1, beta2, epsilon } => {
                    self.m[i] = beta1 * self.m[i] + (1.0 - beta1) * g;
                    self.v[i] = beta2 * self.v[i] + (1.0 - beta2) * g * g;
                    let mean = self.m[i] / (1.0 - beta1.powi(self.step));
                    let square = self.v[i] / (1.0 - beta2.powi(self.step));
                    self.p[i] -= rate * mean / (square.sqrt() + epsilon);
                }
            }
        }
    }
}

fn tensor(values: &[f32]) -> Tensor<1> {
    Tensor::from_data(TensorData::from(values), &Device::flex())
}

/// All gradients as one part.
fn whole(gradients: Vec<Tensor<1>>) -> impl Iterator<Item = (Range<usize>, Vec<Tensor<1>>)> {
    std::iter::once((0..gradients.len(), gradients))
}

fn values(tensor: &Tensor<1>) -> Vec<f32> {
    tensor.clone().try_into_vec_as().expect("readable")
}

const RULES: [Rule; 3] =
    [Rule::Sgd, Rule::Momentum { momentum: 0.9 }, Rule::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }];

const DECAYS: [Decay; 3] = [Decay::None, Decay::Coupled(0.1), Decay::Decoupled(0.1)];

/// A matrix of one row, since vectors do not decay.
fn row(len: usize) -> [ParamSpec; 1] {
    [ParamSpec::new("p", &[1, len], Init::Constant(0.0))]
}

/// Compares both implementations with the reference: they may differ by a few units in the last place of the largest number for each step.
fn agree((rule, decay): (Rule, Decay), start: &[f32], gradients: &[Vec<f32>], rate: f64) {
    let mut reference = Reference::new(rule, decay, start);
    let mut hosts = vec![tensor(start)];
    let mut host = Optimizer::on_host(rule, decay, &row(start.len()));
    let mut devices = vec![tensor(start)];
    let mut device = Optimizer::on_device(rule, decay, &row(start.len()), &Device::flex());
    let mut largest = start.iter().fold(0.0, |largest: f64, p| largest.max(f64::from(p.abs())));
    for gradient in gradients {
        reference.step(gradient, rate);
        host.step(&mut hosts, whole(vec![tensor(gradient)]), rate).expect("readable");
        device.step(&mut devices, whole(vec![tensor(gradient)]), rate).expect("readable");
        largest = reference.p.iter().fold(largest, |largest, p| largest.max(p.abs()));
    }
    let bound = 8.0 * f64::from(f32::EPSILON) * (largest + rate * 10.0) * (1.0 + f64::from(reference.step));
    for (got, want) in [values(&hosts[0]), values(&devices[0])].iter().flat_map(|got| got.iter().zip(&reference.p)) {
        assert!((f64::from(*got) - want).abs() <= bound, "{rule:?}, {decay:?}: {got} is not {want} within {bound}");
    }
}

#[test]
fn the_first_adam_step_moves_each_number_by_the_learning_rate() {
    let mut parameters = vec![tensor(&[1.0, 1.0, 1.0])];
    let mut adam = Optimizer::on_host(RULES[2], Decay::None, &row(3));
    adam.step(&mut parameters, whole(vec![tensor(&[1e-3, -50.0, 0.0])]), 0.25).expect("readable");
    let moved = values(&parameters[0]);
    // ε is 1e-5 times the first gradient.
    assert!((moved[0] - 0.75).abs() < 1e-5, "{moved:?}");
    assert_eq!(moved[1..], [1.25, 1.0]);
}

#[test]
fn vectors_do_not_decay() {
    let param_specs = [ParamSpec::new("bias", &[2], Init::Constant(0.0)), row(2)[0].clone()];
    for decay in [Decay::Coupled(0.5), Decay::Decoupled(0.5)] {
        let mut parameters = vec![tensor(&[1.0, -2.0]), tensor(&[1.0, -2.0])];
        let mut sgd = Optimizer::on_host(Rule::Sgd, decay, &param_specs);
        sgd.step(&mut parameters, whole(vec![tensor(&[0.0; 2]), tensor(&[0.0; 2])]), 0.5).expect("readable");
        assert_eq!(parameters.iter().map(values).collect::<Vec<_>>(), [[1.0, -2.0], [0.75, -1.5]]);
    }
}

#[test]
fn gradients_in_parts_give_the_same_update_as_all_at_once() {
    let param_specs: Vec<ParamSpec> = [3, 1, 2, 4].iter().flat_map(|len| row(*len)).collect();
    let start = |scale: f32| -> Vec<Tensor<1>> {
        param_specs
            .iter()
            .zip([0.5, -1.0, 2.0, 0.25])
            .map(|(param_spec, value)| tensor(&vec![scale * value; param_spec.len()]))
            .collect()
    };
    for (rule, decay) in [(RULES[1], Decay::Coupled(0.1)), (RULES[2], Decay::Decoupled(0.1))] {
        for host in [true, false] {
            let of = || match host {
                true => Optimizer::on_host(rule, decay, &param_specs),
                false => Optimizer::on_device(rule, decay, &param_specs, &Device::flex()),
            };
            let (mut once, mut parts) = (start(1.0), start(1.0));
            let (mut at_once, mut in_parts) = (of(), of());
            for scale in [0.1, -0.3, 0.7] {
                at_once.step(&mut once, whole(start(scale)), 0.01).expect("readable");
                let mut gradients = start(scale);
                // The order of buckets: the last tensors first.
                let each = [(3..4, gradients.split_off(3)), (1..3, gradients.split_off(1)), (0..1, gradients)];
                in_parts.step(&mut parts, each.into_iter(), 0.01).expect("readable");
            }
            let all = |parameters: &[Tensor<1>]| parameters.iter().map(values).collect::<Vec<_>>();
            assert_eq!(all(&parts), all(&once), "{rule:?}");
            assert_ne!(all(&once), all(&start(1.0)));
        }
    }
}

#[test]
fn long_tensors_are_updated_to_their_last_number() {
    let start = vec![1.0; 3 * CHUNK + 7];
    for rule in RULES {
        agree((rule, Decay::None), &start, &[vec![0.5; start.len()], vec![-0.25; start.len()]], 0.1);
    }
}

proptest! {
    #[test]
    fn every_rule_matches_pytorch(
        start in proptest::collection::vec(-2.0..2.0_f32, 3),
        gradients in proptest::collection::vec(proptest::collection::vec(-1.0..1.0_f32, 3), 1..60),
        exponent in -5.0..0.0_f64,
    ) {
        for rule in RULES {
            // Adam's steps do not shrink with the gradient: if only coupled decay determines its sign, rounding does.
            for decay in DECAYS.into_iter().filter(|decay| matches!((rule, decay), (Rule::Adam { .. }, Decay::None | Decay::Decoupled(_)) | (Rule::Sgd | Rule::Momentum { .. }, _))) {
                agree((rule, decay), &start, &gradients, 10_f64.powf(exponent));
            }
        }
    }
}
