//! Ranks on GPUs, compared with ranks that are threads of the CPU, and with one GPU.

use super::*;
use crate::gradient_readiness::ParameterGroups;
use crate::parallel::{Reducer, Rendezvous, SyncPoint, buckets, numbers, summed};
use crate::parameters::ParamSpec;
use crate::task::Loaded;
use std::sync::Arc;
use std::time::Duration;

/// A cell of the CPU on `gpus` GPUs.
fn on_cards(cell: &Cell, gpus: i64) -> Cell {
    let mut cell = cell.clone();
    cell.config.remove("hardware.cpu_ranks");
    cell.config.insert("hardware.device".to_owned(), "cuda".into());
    cell.config.insert("hardware.gpus".to_owned(), gpus.into());
    cell
}

/// Products may use TF32, whose numbers have 11 bits: losses are compared to 1% of the first.
#[test]
#[ignore = "needs two GPUs"]
fn two_cards_learn_what_two_threads_learn_and_what_one_card_learns_on_gpu() {
    let cells = [
        ("softmax", with_sgd(cell("softmax"), 0.1)),
        ("mnist_mlp", with_sgd(cell("mnist_mlp"), 0.1)),
        ("gpt2", with_sgd(tiny_cell("gpt2"), 0.1)),
    ];
    for (model, cell) in cells {
        let threads = run_recorded(&shared(&cell, 2)).expect(model);
        let cards = run_recorded(&on_cards(&shared(&cell, 2), 2)).expect(model);
        let card = run_recorded(&on_cards(&cell, 1)).expect(model);
        let (from_threads, from_one) = (threads.apart(&cards, "loss"), card.apart(&cards, "loss"));
        println!("{model}: two cards are off two threads by {from_threads:.1e}, and off one card by {from_one:.1e}");
        assert!(from_threads < 1e-2 && from_one < 1e-2, "{model}");
        assert_eq!(cards.facts["ranks"].as_int(), Some(2));
        let again = run_recorded(&on_cards(&shared(&cell, 2), 2)).expect(model);
        assert_eq!(again.digests["weights"], cards.digests["weights"], "{model}: the same bits every time");
    }
}

/// A GPU with limited memory has no room for a graph.
#[test]
#[ignore = "needs two GPUs"]
fn two_cards_learn_the_same_with_graphs_and_without_on_gpu() {
    let mut cell = with_sgd(cell("mnist_mlp"), 0.1);
    cell.config.insert("training.epochs".to_owned(), 12_i64.into());
    let cell = on_cards(&shared(&cell, 2), 2);
    let replayed = run_recorded(&cell).expect("trains");
    for fact in ["step_graph", "step_graph.1"] {
        assert!(
            replayed.facts[fact].as_str().is_some_and(|told| told.starts_with("from step")),
            "{:?}",
            replayed.facts
        );
    }
    let mut small = cell;
    small.config.insert("hardware.memory_limit_gib".to_owned(), 8_i64.into());
    let queued = run_recorded(&small).expect("trains");
    assert!(queued.facts["step_graph"].as_str().is_some_and(|told| told.contains("memory")), "{:?}", queued.facts);
    assert_eq!(replayed.digests["weights"], queued.digests["weights"]);
}

/// Sums of two numbers have the same bits in either order.
#[test]
#[ignore = "needs two GPUs"]
fn the_reducer_of_cards_gives_the_bits_of_the_host_s_on_gpu() {
    let connected = nccl::communicators(2, Duration::from_secs(120)).expect("NCCL connects");
    let lengths = [1_usize, 63, 65_537, 32 << 20];
    let reduced = |link: Link, device: fn(usize) -> Device| -> Vec<Vec<Vec<f32>>> {
        let rendezvous = Arc::new(Rendezvous::of(2));
        std::thread::scope(|scope| {
            let start = |rank: usize| {
                let reducer = link.reducer(rank, Arc::clone(&rendezvous));
                scope.spawn(move || {
                    let at = SyncPoint { what: "all_reduce", index: 1, limit: Some(Duration::from_secs(120)) };
                    let values = |len: usize| {
                        (0_u32..).take(len).map(|n| single(f64::from(n) * 0.37 + real_len(rank))).collect::<Vec<f32>>()
                    };
                    let tensor =
                        |len: usize| Tensor::<1>::from_data(TensorData::from(values(len).as_slice()), &device(rank));
                    let given: Vec<Tensor<1>> = lengths.map(tensor).to_vec();
                    let sent = reducer.broadcast(at, given.clone()).expect("all come");
                    let all = reducer.all_reduce(at, given).expect("all come");
                    let read = |tensor: Tensor<1>| tensor.try_into_vec_as::<f32>().expect("readable");
                    sent.into_iter().chain(all).map(read).collect()
                })
            };
            let threads: Vec<_> = (0..2).map(start).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    };
    let host = reduced(Link::Host, |_| Device::flex());
    let cards = reduced(Link::Cards(connected), Device::cuda);
    for rank in 0..2 {
        assert!(cards[rank] == host[rank], "rank {rank}");
    }
}

/// Sums that begin during the backward pass have the bits of sums that begin at its end. For most of a model they do
/// begin early. From the fourth step on, the passes of three models are replayed.
#[test]
#[ignore = "needs two GPUs"]
fn sums_beside_the_backward_pass_have_the_bits_of_those_after_it_on_gpu() {
    let connected = nccl::communicators(2, Duration::from_secs(120)).expect("NCCL connects");
    let link = Link::Cards(connected);
    for model in ["resnet50", "vgg16", "bert", "gpt2", "lstm", "gru", "yolov3", "maskrcnn"] {
        for precision in ["fp32", "bf16"] {
            let mut cell = on_cards(&shared(&tiny_cell(model), 2), 2);
            cell.config.insert("training.precision".to_owned(), precision.into());
            let spec = Spec::read(&cell).expect(model);
            let rendezvous = Arc::new(Rendezvous::of(2));
            let (early, all, graph) = std::thread::scope(|scope| {
                let start = |rank: usize| {
                    let (reducer, spec) = (link.reducer(rank, Arc::clone(&rendezvous)), &spec);
                    scope.spawn(move || sums(&*reducer, spec, rank))
                };
                let threads: Vec<_> = (0..2).map(start).collect();
                threads.into_iter().map(|thread| thread.join().expect("no panic")).next().expect("two of them")
            });
            println!(
                "{model} in {precision}: {early} of {all} buckets before the end of the backward pass; replayed: {graph:?}"
            );
            // Built-in operations of Burn use its last parameters.
            assert!(2 * early > all || model == "maskrcnn", "{model} in {precision}");
            let expected = ["resnet50", "lstm", "gru"].contains(&model).then_some("from step 4");
            assert_eq!(graph.as_deref().filter(|told| told.starts_with("from")), expected, "{model} in {precision}");
        }
    }
}

/// Compares both ways of summing of a rank over some steps. Returns the number of marked buckets, the number of
/// buckets, and the report about replayed passes.
fn sums(reducer: &dyn Reducer, spec: &Spec, rank: usize) -> (usize, usize, Option<String>) {
    let place = device::open(DeviceSpec::Cuda, rank).expect("a card");
    place.tolerate_other_recordings().expect("the driver allows it");
    let mut task = Loaded::load(spec).expect("generated").task(spec, &place, rank);
    let lengths: Vec<usize> = task.param_specs().iter().map(ParamSpec::len).collect();
    let buckets = buckets(&lengths, 4096);
    let groups = ParameterGroups::new(numbers(&buckets));
    let upload = |values: Vec<f32>| Tensor::<1>::from_data(TensorData::from(values.as_slice()), &place.device());
    let parameters: Vec<Tensor<1>> = task.initial(1).into_iter().map(upload).collect();
    let (sink, indices) = (EventLog::default(), (8 * rank..8 * rank + 8).collect::<Vec<usize>>());
    let mut marked = 0;
    for number in 1..=12 {
        let at = SyncPoint { what: "all_reduce", index: number, limit: Some(Duration::from_secs(120)) };
        reducer.barrier(at).expect("all come");
        let mut gradients = |groups: Option<&ParameterGroups>, may_replay: bool| {
            // The GPU lags far behind, so that work that does not wait for it would run too early.
            let mut busy = Tensor::<2>::ones([4096, 4096], &place.device());
            for _ in 0..20 {
                busy = busy.clone().matmul(busy) * 1e-4;
            }

            let step = Step { groups, may_replay, ..Step::of_rank(rank, &indices, &place, &sink, number) };
            let Gradients { gradients, marks, .. } = task.gradients(&step, &parameters).expect("trains");
            (gradients, marks)
        };
        let read = |sums: Vec<Tensor<1>>| -> Vec<Vec<f32>> {
            sums.into_iter().map(|sum| sum.try_into_vec_as().expect("readable")).collect()
        };
        let (alone, _) = gradients(None, false);
        let expected = read(summed(reducer, at, &buckets, alone, 0.5).expect("all come").all());
        let late = read(reducer.sum(at, &buckets, gradients(None, false), 0.5).expect("all come").all());
        let (early, marks) = gradients(Some(&groups), number > 2);
        marked = marks.groups.iter().flatten().count();
        // Work of its own behind each part allocates memory, which must not be that of another bucket's gradients.
        let mut parts = Vec::new();
        for (tensors, sums) in reducer.sum(at, &buckets, (early, marks), 0.5).expect("all come").parts() {
            drop(sums.iter().map(|sum| sum.clone() * 3.0 + 1.0).collect::<Vec<_>>());
            parts.push((tensors.start, sums));
        }
        parts.sort_by_key(|(start, _)| *start);
        let early = read(parts.into_iter().flat_map(|(_, sums)| sums).collect());
        assert!(late == expected && early == expected, "rank {rank}, step {number}");
    }
    assert_eq!(crate::native::fault_on(rank), None);
    let told = sink.0.into_inner().expect("no panic").into_iter().find_map(|(_, event)| match event {
        EventKind::Fact { name, value } if name == "step_graph" => value.as_str().map(str::to_owned),
        _ => None,
    });
    (marked, buckets.len(), told)
}

/// Compares pipeline stages on two and four GPUs with one GPU and the same micro-batches. The order of summation is the
/// same except for the gradient of a tied parameter.
#[test]
#[ignore = "needs two GPUs"]
fn stages_on_cards_learn_what_one_card_learns_on_gpu() {
    let there = Device::enumerate(burn::tensor::DeviceType::Cuda).into_iter().count();
    let there = i64::try_from(there).expect("few");
    for model in ["resnet50", "vgg16", "bert", "gpt2"] {
        let mut one = with_sgd(tiny_cell(model), 0.1);
        one.config.insert("training.micro_batches".to_owned(), 4_i64.into());
        let mut several = one.clone();
        several.config.insert("hardware.parallelism".to_owned(), "pipeline".into());
        let alone = run_recorded(&on_cards(&one, 1)).expect(model);
        for gpus in [2, 4].into_iter().filter(|gpus| *gpus <= there.max(2)) {
            let cell = on_cards(&several, gpus);
            let cards = run_recorded(&cell).expect(model);
            let far = alone.apart(&cards, "loss");
            println!("{model}: {} are off one card by {far:.1e}", cards.facts["stages"]);
            assert!(far < 1e-2, "{model} on {gpus}");
            let again = run_recorded(&cell).expect(model);
            assert_eq!(
                again.digests["weights"], cards.digests["weights"],
                "{model} on {gpus}: the same bits every time"
            );
        }
    }
}
